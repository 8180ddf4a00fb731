"""The parts of a device: memory layers, instructions, limits, translation buffers, targets, verifications.

Each field is declared once: its schema, loader and reference page follow (`hal.declared`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from rollergen.hal.dataclass import dataclass
from rollergen.hal.declared import (
    CUDA,
    SUPERSTEPS,
    VECTORS,
    VECTORS_ALONE,
    Reason,
    among,
    declared,
    has,
    one_of,
    without,
)
from rollergen.hal.dot_products import SUMMED
from rollergen.hal.dtypes import FLOAT8, sum_of

_ONE_BLOCK = Reason(
    "one block at a time: what it may hold is limits.block_memory_bytes, which is held against this",
    where=has(managed=True, scope="unit"),
    device={"properties": {"limits": has(blocks_per_unit=1)}},
)
_ONE_THREAD = Reason(
    "a program for such a device has one thread for each block, and one block on a core at a time",
    device=VECTORS_ALONE,
)


@dataclass(frozen=True, slots=True)
class MemoryLayer:
    """One level of the hierarchy: memory that the program fills, or a cache (whose capacity is no limit)."""

    TITLE: ClassVar[str] = "a memory layer"

    name: str = declared("registers, shared, l1, l2, dram, ...", accepts="name")
    scope: str = declared("who shares one instance", accepts={"enum": ["thread", "unit", "device"]})
    managed: bool = declared("true: the program fills it and its capacity is a limit; false: a cache")
    capacity_bytes: int = declared(
        "of one instance",
        Reason(
            "registers are counted in limits.registers_per_thread; this is the same in bytes, and held against "
            "it",
            where=has(scope="thread"),
        ),
        _ONE_BLOCK,
    )
    transaction_bytes: int = declared(
        "what one access moves at least: sector, line, word",
        Reason("a register is read whole", where=has(scope="thread")),
        Reason(
            "a managed layer with banks serves whole rows of them: banks and bank_bytes say the same, and are "
            "held against it",
            where={"properties": {"managed": {"const": True}}, "required": ["banks"]},
        ),
        Reason(
            "a thread by itself reads any width of its own memory, as many bytes a clock as bytes_per_clock "
            "says",
            where=has(managed=True, scope="unit"),
            device=has(execution_width=1),
        ),
        Reason(
            "what crosses to the backing store is whole transactions of the cache before it; this is what the "
            "interpreter counts in, and what tiles are aligned with, which seldom decides",
            where=has(managed=True, scope="device"),
            device=among("memory_layers", has(managed=False)),
        ),
    )
    bytes_per_clock: float = declared("what one unit reads from the layer in one clock", default=0.0)
    write_bytes_per_clock: float = declared(
        "the same for plain stores, where these are slower (the reading of their lines included, where "
        "costs.write_allocate says that they do)",
        default=0.0,
    )
    bandwidth_gb_s: float = declared(
        "the whole chip, achieved, decimal GB/s",
        Reason(
            "what a unit reads from its own banks in a clock is exact, and conflicts are counted one by one: "
            "bytes_per_clock is what predictions use, this is held against it",
            where={"properties": {"scope": {"const": "unit"}}, "required": ["bytes_per_clock", "banks"]},
        ),
        default=0.0,
    )
    bandwidth_nominal_gb_s: float = declared(
        "the whole chip, as printed, decimal GB/s",
        Reason("a bound, not a prediction: the roofline of explain() and the lints of devices check follow it"),
        default=0.0,
    )
    latency_clocks: float = declared(
        "of one dependent load",
        Reason(
            "what other threads leave of a latency is what costs time: costs.exposed_... say that, and are "
            "fitted or measured",
        ),
        default=0.0,
    )
    banks: int = declared("banks served side by side; with bank_bytes", default=0)
    bank_bytes: int = declared("width of a bank; with banks", default=0)
    sets: int = declared("sets that an address is known to select; with ways", default=0)
    ways: int = declared("lines of a set; with sets", default=0)
    reserved_bytes: int = declared(
        "of the capacity, not for tiles: code, stacks, the system",
        _ONE_BLOCK,
        accepts="whole",
        default=0,
    )
    asynchronous_copy_bytes: int = declared(
        "of the widest copy from the backing store into this managed layer that runs beside the program: a power "
        "of 2 from 4 (narrower ones exist down to 4); 0 or absent: there is none",
        accepts="whole",
        default=0,
    )
    box_extent: int = declared(
        "the longest side, in elements, of a box that a copy engine brings from the backing store into this managed "
        "layer beside the program (TMA); 0 or absent: there is no such engine",
        accepts="whole",
        default=0,
    )
    cluster_blocks: int = declared(
        "the most blocks that run side by side as a cluster, so that one copy of a box goes to this layer of all of "
        "them (multicast); 0 or absent: there are no clusters",
        accepts="whole",
        default=0,
    )
    block_reserved_bytes: int = declared(
        "of a managed layer of a unit, taken by the system for each block that runs, beside what the block asks for",
        accepts="whole",
        default=0,
    )

    def blocks_within(self, bytes_each: Any) -> Any:
        """How many blocks that ask for so many bytes (an int, or an int array) the layer holds at once."""
        return (self.capacity_bytes - self.reserved_bytes) // (bytes_each + self.block_reserved_bytes)


LAYOUTS = ["quads", "quad_pairs", "opaque", "warpgroup", "wavefront"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An arithmetic instruction: an ``m x n x k`` multiply-add (1 x lanes x 1 for a vector FMA).

    A matrix instruction (one with a ``layout``) is executed by ``lanes`` threads together, whose registers hold the
    operands in fragments; "opaque" results pass through the units' memory.  A vector instruction whose
    ``k`` fills a word of 32 bits adds up a dot product in each of its lanes: 1 x lanes x 4 of int8, x 2 of int16.
    """

    TITLE: ClassVar[str] = "an instruction"
    INFORMATIONAL: ClassVar[tuple[Reason, ...]] = (
        Reason(
            "programs add up in float32 or int32: the rate with narrower sums is told to readers, and used by none",
            where={"properties": {"accumulator_dtype": {"enum": ["float16", "bfloat16", "int8"]}}},
        ),
        Reason(
            "float32 goes through tf32 only where BuildOptions(allow_tf32=True) says that it may",
            where=has(dtype="tf32"),
        ),
        Reason(
            "float8 is added up in 14 bits only where BuildOptions(allow_fast_accumulation=True) says that it may",
            where={"properties": {"dtype": {"enum": list(FLOAT8)}}},
        ),
        Reason(
            "threads add up int8 products one by one: their dot products are constructed for vectors only",
            where={"properties": {"m": {"const": 1}, "k": {"not": {"const": 1}}, "lanes": {"const": 1}}},
            device=without(SUPERSTEPS),
        ),
        Reason(
            "matrix instructions are written in CUDA, and wavefronts' in OpenCL C: elsewhere this is told to readers",
            where={"properties": {"m": {"not": {"const": 1}}, "layout": {"not": {"const": "wavefront"}}}},
            device=without(CUDA),
        ),
        Reason(
            "programs take the vector instruction, of however many lanes: the scalar one is told to readers",
            where=has(m=1, k=1, lanes=1),
            device=VECTORS,
        ),
    )
    name: str = declared("fma, vfma, wmma, ...", accepts="name")
    dtype: str = declared(
        "of the factors; tf32: float32 of which the 13 lowest bits are not looked at",
        accepts="factor",
    )
    accumulator_dtype: str = declared("of the sum", accepts="dtype")
    m: int = declared("rows of the product")
    n: int = declared(
        "columns; of a vector instruction its lanes",
        Reason(
            "the shape of a scalar multiply-add: none below it is accepted, and where others limit a faster "
            "one moves nothing",
            where=has(n=1, lanes=1),
        ),
    )
    k: int = declared("products summed")
    lanes: int = declared(
        "lanes that one instruction fills: 1 of a scalar thread, the vector's width on a CPU",
        Reason(
            "vertices of supersteps count the outputs of a matrix instruction by n, which says the same",
            where={"properties": {"k": {"not": {"const": 1}}}},
            device=SUPERSTEPS,
        ),
    )
    per_clock: float = declared(
        "instructions, each of m x n x k multiply-adds, that one unit starts in one clock", accepts="positive"
    )
    latency_clocks: float = declared(
        "until a dependent one may start",
        Reason(
            "programs have them in chains of two products alone, whose tiles have many sums beside each other",
            where={"properties": {"layout": {"const": "quad_pairs"}}, "required": ["layout"]},
        ),
    )
    peak_dense_tflop_s: float = declared(
        "the whole chip, as printed, without sparsity, a multiply-add as two; the rate is held against it",
        Reason(
            "what is printed bounds the rate, which units, per_clock and clock_mhz make: devices check holds "
            "them together",
        ),
        default=0.0,
    )
    layout: str = declared(
        "of a matrix instruction that threads execute together: which of them holds what (quads: as PTX documents "
        "for mma.sync; quad_pairs: as for its m8n8k4, four of which, two along either side and each by eight threads, "
        "are one tile; warpgroup: as for wgmma, whose operands stay in the block's memory, and whose tiles along n, "
        "up to 32 side by side, are one instruction; wavefront: as for AMD's MFMA of 16 x 16)",
        accepts={"enum": LAYOUTS, "title": "quads, quad_pairs, opaque, warpgroup or wavefront"},
        default="",
    )
    a_registers: int = declared("32-bit registers of a thread for a fragment of the first factor", default=0)
    b_registers: int = declared("of the second factor", default=0)
    accumulator_registers: int = declared(
        "of the sum",
        Reason(
            "where threads know which results they hold, these are counted as values of the program; this "
            "bounds the tiles that are looked at, and the best are smaller",
            where={"properties": {"layout": {"enum": ["quads", "quad_pairs"]}}, "required": ["layout"]},
        ),
        default=0,
    )
    issued: int = declared("machine instructions of one matrix instruction or dot product", default=1)

    @property
    def is_dot_product(self) -> bool:
        """Whether each lane adds up the products of the numbers in two words (int8 stands for uint8 as well)."""
        summed = self.k == SUMMED.get(self.dtype, 0) and self.accumulator_dtype == sum_of(self.dtype)
        return summed and self.m == 1 and self.n == self.lanes and not self.is_matrix

    @property
    def at_once(self) -> int:
        """Points of a tensor op that it computes at once: multiply-adds, or of dot products those."""
        return self.lanes if self.is_dot_product else max(self.m * self.n * self.k, self.lanes)

    @property
    def is_matrix(self) -> bool:
        """Whether threads execute it together on fragments."""
        return bool(self.layout)

    @property
    def permission(self) -> str:
        """Which of `AlignmentRules` must allow it, as its results are less exact than those of float32; empty: none.

        It is also the `Compute.factors` of its programs."""
        if self.dtype == "tf32":
            return "tf32"
        return "float8" if self.is_matrix and self.dtype in FLOAT8 else ""

    @property
    def is_for_chains(self) -> bool:
        """Whether programs use it in chains of two products alone: a plain product has the same rate by wmma."""
        return self.layout == "quad_pairs"

    @property
    def is_asynchronous(self) -> bool:
        """Whether it runs beside the program, and takes both factors from the block's memory."""
        return self.layout == "warpgroup"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one block and one unit may hold."""

    TITLE: ClassVar[str] = "an object of limits"

    threads_per_block: int = declared(
        "threads (work-items) that one block (work-group) may have",
        _ONE_THREAD,
    )
    threads_per_unit: int = declared(
        "threads that a unit holds at the same time, of all its blocks",
        _ONE_THREAD,
    )
    blocks_per_unit: int = declared("blocks that a unit holds at the same time")
    registers_per_thread: int = declared("32-bit registers; on a CPU vector registers")
    registers_per_unit: int = declared(
        "registers of all threads that a unit holds",
        Reason(
            "threads that run one after another do not share registers: each has registers_per_thread",
            device={"anyOf": [has(execution_width=1), VECTORS]},
        ),
    )
    register_allocation: int = declared(
        "registers of one thread are allocated in multiples of this",
        Reason(
            "threads that run one after another do not share registers: nothing is allocated",
            device={"anyOf": [has(execution_width=1), VECTORS]},
        ),
    )
    block_memory_bytes: int = declared(
        "managed memory that one block may hold",
        Reason(
            "no memory of a unit is managed: there is nothing that a block could hold",
            device=without(among("memory_layers", has(managed=True, scope="unit"))),
        ),
    )
    accumulation_registers: int = declared(
        "32-bit registers of a thread beside registers_per_thread for matrix instructions alone, 0: none",
        accepts="whole",
        default=0,
    )


@dataclass(frozen=True, slots=True)
class Tlb:
    """Translation reach."""

    TITLE: ClassVar[str] = "a translation buffer"

    entries: int = declared("pages that it translates at a time")
    page_bytes: int = declared("of one page")
    miss_clocks: float = declared("of one translation that is not in it")


@dataclass(frozen=True, slots=True)
class Target:
    """How source for the device is written; ``dialect`` as sorted (key, value) pairs."""

    TITLE: ClassVar[str] = "a target"

    language: str = declared("opencl, cuda, bsp, or one that an installed package brings", accepts="name")
    arch: str = declared("sm_70, gfx906, ... or empty", accepts="word", default="")
    dialect: tuple[tuple[str, str], ...] = declared(
        "attributes of every kernel, build options, and what the compiler does: unrolled_steps (of a loop, at most), "
        "written_out (multiply-adds of a thread that it writes out at most, as hal/probes/unrolling.py reads them)",
        accepts="texts",
        default=(),
    )


@dataclass(frozen=True, slots=True)
class Verification:
    """What has been done to see that kernels for the device are right."""

    TITLE: ClassVar[str] = "a verification"

    how: str = declared(
        "executed elsewhere: the source for the device, run on another machine",
        accepts=one_of("ran on it", "compiled by its compiler", "executed elsewhere"),
    )
    what: str = declared("which kernels, by what, and where the results are", accepts="line")
