"""Kernels as directories that run without this package: `write.save`, `read.load`."""
