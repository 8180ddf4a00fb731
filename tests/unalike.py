"""The built-in devices without those that differ from another one in figures alone, for tests that take long on each."""

from rollergen.hal.load import device_names

SIBLINGS = {"h100": "h200", "ipu2": "ipu", "l4": "a100", "mi210": "mi300x", "rtx4090": "a100", "v100-sxm2": "v100"}
"""Such devices, and the one that stands for each: of the same layers, instructions and language."""
UNALIKE = tuple(name for name in device_names() if name not in SIBLINGS)
