"""Figures of devices that are present: what the operating system tells, and what micro-benchmarks measure."""
