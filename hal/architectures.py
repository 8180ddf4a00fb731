"""What every device of one architecture has: figures that `devices new` takes and `devices check` holds a spec against.

    >>> facts_of("sm_75").figures["shared.bytes_per_clock"]
    64
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_NVIDIA = (
    "limits: cuda_occupancy.h of CUDA 12.9 and arch_traits.cuh of NVIDIA/cccl; cache, lanes and load/store units: "
    "CUDA C++ Programming Guide (compute capabilities) and NVIDIA's white papers of Volta, Turing, GA100, GA102, Ada "
    "and Hopper (recalled, verify); bytes a clock as measured by RRZE-HPC/gpu-benches (gpu-cache: V100, A100, H100) "
    "and Luo et al., arXiv 2402.13499 (recalled, verify)"
)
_AMD = (
    "ROCm documentation, GPU hardware specifications (LDS, caches, register files); rocprofiler-compute, pipeline "
    "descriptions (LDS: 32 banks, two ports of 16 lanes); bytes a clock of the vector cache as measured by "
    "RRZE-HPC/gpu-benches (gpu-cache: 59 to 62 a clock and unit on MI210 and MI300X); wavefronts of a SIMD as clang 19 "
    "plans for"
)
_RDNA = "ROCm documentation, GPU hardware specifications: half of a work-group processor, as a compute unit"
_KB = 1 << 10


class Architecture(NamedTuple):
    """``figures``: by path, as `hal.changes` writes them.  ``source``: where they are printed, or who measured them."""

    name: str
    figures: Mapping[str, float]
    source: str


def _nvidia(
    name: str, shared: int, reserved: int, cache: int, rate: int, threads: int, blocks: int, lanes: int, accesses: int
) -> Architecture:
    """KB of shared memory of a multiprocessor, what the system takes of each block's, KB of the SRAM that is shared
    memory and first cache, its bytes a clock; threads, blocks; float32 lanes, lanes of the load/store units."""
    figures = {
        "execution_width": 32,
        "schedulers": 4,
        "shared.capacity_bytes": shared * _KB,
        "shared.bytes_per_clock": rate,
        "shared.block_reserved_bytes": reserved * _KB,
        "l1.capacity_bytes": cache * _KB,
        "l1.bytes_per_clock": rate,
        "fma.per_clock": lanes,
        "limits.threads_per_block": 1024,
        "limits.threads_per_unit": threads,
        "limits.blocks_per_unit": blocks,
        "limits.registers_per_thread": 255,
        "limits.registers_per_unit": 65536,
        "limits.register_allocation": 8,
        "limits.block_memory_bytes": (shared - reserved) * _KB,
        "costs.load_store_lanes": accesses,
    }
    return Architecture(name, figures, _NVIDIA)


def _gfx9(name: str, cache: int, waves: int, registers: int, lanes: int, allocation: int) -> Architecture:
    """KB of the vector cache, wavefronts of a SIMD, 32-bit registers of a lane on each SIMD, float32 multiply-adds of a
    unit in a clock that are no packed ones, granule of registers."""
    figures = {
        "execution_width": 64,
        "schedulers": 4,
        "shared.capacity_bytes": 64 * _KB,
        "shared.bytes_per_clock": 128,
        "l1.capacity_bytes": cache * _KB,
        "l1.bytes_per_clock": 64,
        "fma.per_clock": lanes,
        "limits.threads_per_block": 1024,
        "limits.threads_per_unit": 4 * 64 * waves,
        "limits.registers_per_thread": 256,
        "limits.registers_per_unit": 4 * 64 * registers,
        "limits.register_allocation": allocation,
        "limits.block_memory_bytes": 64 * _KB,
        "costs.load_store_lanes": 32,
    }
    return Architecture(name, figures, _AMD)


def _rdna(name: str, cache: int, registers: int) -> Architecture:
    figures = {
        "execution_width": 32,
        "shared.capacity_bytes": 64 * _KB,
        "l1.capacity_bytes": cache * _KB,
        "limits.threads_per_block": 1024,
        "limits.threads_per_unit": 1024,
        "limits.registers_per_thread": 256,
        "limits.registers_per_unit": registers,
        "limits.block_memory_bytes": 64 * _KB,
    }
    return Architecture(name, figures, _RDNA)


ARCHITECTURES: Mapping[str, Architecture] = {
    "sm_70": _nvidia("Volta", 96, 0, 128, 128, 2048, 32, 64, 32),
    "sm_75": _nvidia("Turing", 64, 0, 96, 64, 1024, 16, 64, 16),
    "sm_80": _nvidia("Ampere GA100", 164, 1, 192, 128, 2048, 32, 64, 32),
    "sm_86": _nvidia("Ampere GA10x", 100, 1, 128, 128, 1536, 16, 128, 16),
    "sm_89": _nvidia("Ada", 100, 1, 128, 128, 1536, 24, 128, 16),
    "sm_90": _nvidia("Hopper", 228, 1, 256, 128, 2048, 32, 128, 32),
    "gfx906": _gfx9("Vega 20", 16, 10, 256, 64, 4),
    "gfx908": _gfx9("CDNA", 16, 10, 256, 64, 4),
    "gfx90a": _gfx9("CDNA 2", 16, 8, 512, 64, 8),
    "gfx942": _gfx9("CDNA 3", 32, 8, 512, 64, 8),
    "gfx1030": _rdna("RDNA 2", 16, 65536),
    "gfx1100": _rdna("RDNA 3", 32, 98304),
}
"""By the name that a target gives its compiler.  The float32 lanes of CDNA 2 and 3 are those of plain code; the packed
`v_pk_fma_f32` makes twice as many, where a compiler finds it."""


def facts_of(arch: str) -> Architecture | None:
    """What is known of an architecture (``sm_90a`` is as ``sm_90``); None where nothing is."""
    found = ARCHITECTURES.get(arch)
    return found or (ARCHITECTURES.get(arch[:-1]) if arch.startswith("sm_") and arch[-1:].isalpha() else None)
