"""Kernels for all sizes of a range: plans that are programs at each size, and which of them serves which sizes."""
