"""Named lists of operators, one JSON file for each source; `rollergen.bench.suites` turns entries into expressions."""
