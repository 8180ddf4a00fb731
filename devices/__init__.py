"""Built-in device specs: one JSON file each."""
