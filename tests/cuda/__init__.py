"""CUDA text compiled for the host, unchanged, and run there."""
