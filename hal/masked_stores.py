"""Vectors of which chosen lanes are stored by one instruction."""

from __future__ import annotations

from rollergen.hal.spec import Device

_WIDEST = "min_vector_width(512)"
"""Of the attribute of CPUs whose vectors are of 512 bits: some lanes of these can be stored at once."""


def masked_stores(attribute: str) -> frozenset[tuple[str, int]]:
    """(dtype, lanes) of these vectors in OpenCL C kernels that carry `attribute`."""
    return frozenset({("float32", 16)}) if _WIDEST in attribute else frozenset()


def kernel_attribute(device: Device) -> str:
    """What every OpenCL C kernel of `device` carries; empty: nothing."""
    return next((dict(t.dialect).get("kernel_attribute", "") for t in device.targets if t.language == "opencl"), "")
