"""Whole models as steps of kernels: nothing below imports this folder."""
