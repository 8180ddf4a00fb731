"""Runs kernels: sessions, arrays of callers, prepared calls."""
