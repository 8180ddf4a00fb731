"""Benchmarks from the command line: which there are, running them, their committed results as one page."""
