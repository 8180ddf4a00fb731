"""The command line: one module for each command, `problems.py` for what they all take."""
