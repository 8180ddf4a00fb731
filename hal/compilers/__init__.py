"""Compilers that need no device, and what they say of machine code."""
