"""Vectors of which chosen lanes are stored, or loaded, by one instruction."""

from __future__ import annotations

from rollergen.hal.spec import Device

_WIDEST = "min_vector_width(512)"
"""Of the attribute of CPUs whose vectors are of 512 bits: some lanes of these can be stored at once."""


def masked_stores(attribute: str) -> frozenset[tuple[str, int]]:
    """(dtype, lanes) of these vectors in OpenCL C kernels that carry `attribute`."""
    return _STORED if _WIDEST in attribute else frozenset()


def masked_loads(attribute: str) -> frozenset[tuple[str, int]]:
    """(dtype, lanes) of vectors of which chosen lanes are loaded at once; what else they span need not exist."""
    return _LOADED if _WIDEST in attribute else frozenset()


MASK_REGISTERS = 7
"""Masks that are kept at once: others have to be made again at each load or store."""
_STORED = frozenset({("float32", 16), ("float16", 16)})
_LOADED = _STORED | {("float32", 8), ("float64", 8), ("float64", 4)}
"""Of narrower vectors chosen lanes are loaded, but stored one by one: sums over 400 x 50 x 7 took .9 of the time."""


def kernel_attribute(device: Device) -> str:
    """What every OpenCL C kernel of `device` carries; empty: nothing."""
    return device.dialect("opencl").get("kernel_attribute", "")
