"""Small device specs of the three kinds that the hand-written programs name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rollergen.hal.load import load_device
from rollergen.hal.spec import Device, Instruction, Limits, MemoryLayer, Target

_DOUBLE = Instruction("fma_f64", "float64", "float64", 1, 1, 1, 1, 1.0, 4.0)


def _device(name, layers, dialect=(), instructions=(_DOUBLE,)):
    limits = Limits(1024, 2048, 32, 255, 65536, 8, 49152)
    backing = MemoryLayer("dram", "device", False, 1 << 34, 64)
    registers = MemoryLayer("registers", "thread", True, 65536, 4)
    layers = (registers, *layers, backing)
    return Device(name, name, 1, 32, 1, 1000.0, layers, instructions, limits, 5.0, (Target("opencl", "", dialect),))


_SHARED = MemoryLayer("shared", "unit", True, 49152, 4, banks=32, bank_bytes=4)
_CACHES = (MemoryLayer("l1", "unit", False, 49152, 64), MemoryLayer("l2", "unit", False, 1 << 20, 64))

DEVICES = {
    "cpu": _device("cpu", _CACHES, (("kernel_attribute", "__attribute__((min_vector_width(512)))"), ("masked_vectors", "512"))),
    "v100": _device("v100", (_SHARED,)),
    "mi50": _device("mi50", (_SHARED,)),
    "mali": _device("mali", (_SHARED,), instructions=()),
}

AVX512 = replace(
    load_device(str(Path(__file__).parents[2] / "benches" / "devices" / "cpu_avx512_2mb.json")),
    targets=DEVICES["cpu"].targets,
)
"""A CPU that programs can be constructed for."""
