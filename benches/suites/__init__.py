"""Named lists of operators, one JSON file for each source; `rollergen.suites` turns entries into expressions."""
