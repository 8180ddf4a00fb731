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
    "plans for; operations of the matrix units in a clock: ROCm documentation, MI100, MI250 and MI300 microarchitecture"
)
_RDNA = (
    "ROCm documentation, GPU hardware specifications: half of a work-group processor, as a compute unit; two SIMDs of "
    "32 lanes, 128 bytes a clock of LDS and vector cache, packed float16 and float64 at 2 and 1/16 of a plain float32 "
    "(AMD's RDNA white paper; recalled, verify); granule of registers as clang 19 allocates for wavefronts of 32"
)
_KB = 1 << 10
_NO_FIGURES: Mapping[str, float] = {}


class Architecture(NamedTuple):
    """``figures``: by path, as `hal.changes` writes them.  ``source``: where they are printed, or who measured them.
    ``unused``: what its cards have and no program takes, "" where that is nothing."""

    name: str
    figures: Mapping[str, float]
    source: str
    unused: str = ""


def _nvidia(
    name: str, shared: int, reserved: int, cache: int, rate: int, threads: int, blocks: int, lanes: int, accesses: int,
    doubles: int, halves: int, copies: int = 16, box: int = 0,
) -> Architecture:  # fmt: skip
    """KB of shared memory of a multiprocessor, what the system takes of each block's, KB of the SRAM that is shared
    memory and first cache, its bytes a clock; threads, blocks; float32 lanes, lanes of the load/store units; float64
    lanes, pairs of float16 in a clock; bytes of the widest asynchronous copy, the longest side of a box of TMA's."""
    figures = {
        "execution_width": 32,
        "schedulers": 4,
        "shared.capacity_bytes": shared * _KB,
        "shared.bytes_per_clock": rate,
        "shared.block_reserved_bytes": reserved * _KB,
        "shared.asynchronous_copy_bytes": copies,
        "shared.box_extent": box,
        "l1.capacity_bytes": cache * _KB,
        "l1.bytes_per_clock": rate,
        **dict.fromkeys(("l1.transaction_bytes", "l2.transaction_bytes", "dram.transaction_bytes"), 32),
        "fma.per_clock": lanes,
        "fma_f64.per_clock": doubles,
        "hfma2.per_clock": halves,
        "limits.threads_per_block": 1024,
        "limits.threads_per_unit": threads,
        "limits.blocks_per_unit": blocks,
        "limits.registers_per_thread": 255,
        "limits.registers_per_unit": 65536,
        "limits.register_allocation": 8,
        "limits.block_memory_bytes": (shared - reserved) * _KB,
        "costs.load_store_lanes": accesses,
        "costs.thread_issue_clocks": 1,
    }
    return Architecture(name, figures, _NVIDIA)


def _gfx9(
    name: str, cache: int, waves: int, registers: int, lanes: int, allocation: int,
    mfma: Mapping[str, float] = _NO_FIGURES,
) -> Architecture:  # fmt: skip
    """KB of the vector cache, wavefronts of a SIMD, 32-bit registers of a lane on each SIMD, float32 multiply-adds of a
    unit in a clock that are no packed ones, granule of registers; figures of its MFMA's shapes and rates."""
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
        "costs.thread_issue_clocks": 4,
    }
    return Architecture(name, {**figures, **mfma}, _AMD)


def _rdna(name: str, cache: int, registers: int, allocation: int, unused: str = "") -> Architecture:
    """KB of the vector cache of a compute unit, its 32-bit registers, their granule; what no program takes."""
    figures = {
        "execution_width": 32,
        "schedulers": 2,
        "shared.capacity_bytes": 64 * _KB,
        "shared.bytes_per_clock": 128,
        "l1.capacity_bytes": cache * _KB,
        "l1.bytes_per_clock": 128,
        "fma.per_clock": 64,
        "pk_fma_f16.per_clock": 64,
        "fma_f64.per_clock": 4,
        "limits.threads_per_block": 1024,
        "limits.threads_per_unit": 1024,
        "limits.registers_per_thread": 256,
        "limits.registers_per_unit": registers,
        "limits.register_allocation": allocation,
        "limits.block_memory_bytes": 64 * _KB,
        "costs.load_store_lanes": 32,
        "costs.thread_issue_clocks": 1,
    }
    return Architecture(name, figures, _RDNA, unused)


def _mfma(bfloat16: int, int8: int, rate: float, doubles: int, registers: int) -> dict[str, float]:
    """The products that its MFMA of 16 x 16 results adds up: of bfloat16 and of int8 (of float16 always 16, of float32
    4), how many of float16's instructions a unit starts in a clock; float64 lanes; registers for sums beside others."""
    both = ("a_registers", "b_registers")
    return {
        "fma_f64.per_clock": doubles,
        "mfma.per_clock": rate,
        "mfma_bf16.k": bfloat16,
        **{f"mfma_bf16.{one}": bfloat16 // 8 for one in both},
        "mfma_bf16.per_clock": rate,
        "mfma_s8.k": int8,
        **{f"mfma_s8.{one}": int8 // 16 for one in both},
        "mfma_s8.per_clock": rate,
        "mfma_f32.per_clock": 0.125,
        "limits.accumulation_registers": registers,
    }


_WMMA = "the matrix units of RDNA 3 (WMMA)"

ARCHITECTURES: Mapping[str, Architecture] = {
    "sm_70": _nvidia("Volta", 96, 0, 128, 128, 2048, 32, 64, 32, 32, 64, 0),
    "sm_75": _nvidia("Turing", 64, 0, 96, 64, 1024, 16, 64, 16, 2, 64, 0),
    "sm_80": _nvidia("Ampere GA100", 164, 1, 192, 128, 2048, 32, 64, 32, 32, 128),
    "sm_86": _nvidia("Ampere GA10x", 100, 1, 128, 128, 1536, 16, 128, 16, 2, 64),
    "sm_89": _nvidia("Ada", 100, 1, 128, 128, 1536, 24, 128, 16, 2, 64),
    "sm_90": _nvidia("Hopper", 228, 1, 256, 128, 2048, 32, 128, 32, 64, 128, 16, 256),
    "gfx906": _gfx9("Vega 20", 16, 10, 256, 64, 4),
    "gfx908": _gfx9("CDNA", 16, 10, 256, 64, 4, _mfma(8, 16, 0.125, 32, 0)),
    "gfx90a": _gfx9("CDNA 2", 16, 8, 512, 64, 8, _mfma(16, 16, 0.125, 64, 256)),
    "gfx942": _gfx9("CDNA 3", 32, 8, 512, 64, 8, _mfma(16, 32, 0.25, 64, 256)),
    "gfx1030": _rdna("RDNA 2", 16, 65536, 16),
    "gfx1100": _rdna("RDNA 3", 32, 98304, 24, _WMMA),
}
"""By the name that a target gives its compiler.  The float32 lanes of CDNA 2 and 3 are those of plain code; the packed
`v_pk_fma_f32` makes twice as many, where a compiler finds it, as does the dual issue of RDNA 3.  CDNA's registers for
sums are a file of their own, as large as the other: they are counted as none, since a kernel that fills both is held
by the fuller one."""


def facts_of(arch: str) -> Architecture | None:
    """What is known of an architecture (``sm_90a`` is as ``sm_90``); None where nothing is."""
    found = ARCHITECTURES.get(arch)
    return found or (ARCHITECTURES.get(arch[:-1]) if arch.startswith("sm_") and arch[-1:].isalpha() else None)
