"""Hardware abstraction: device specs and runtimes."""
