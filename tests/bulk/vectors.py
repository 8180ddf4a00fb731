"""Four programs of the IPU's Mk1 with given grids, and what each of their supersteps costs, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import rollergen as rg
from rollergen.bsp.assemble import BulkPlan, bulk_stage, with_tile_mappings
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.expr.splitting import split_reduction
from rollergen.hal.load import load_device
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True)
class Vector:
    """``copies`` and ``owned`` bytes of both operands (and the result); clocks: exchange, local copies, matrix products;
    then the partial results' exchange and addition."""

    expression: Tensor
    blocks: tuple[tuple[str, int], ...]
    channels: str
    outputs: str
    parts: int
    copies: tuple[int, int]
    partial: int
    owned: tuple[int, int, int]
    peak: int
    received: int
    clocks: tuple[int, int, int]
    reduce: tuple[int, int]
    total: int


def _matmul(dtype: str) -> Tensor:
    return rg.ops.matmul(rg.tensor("A", (1024, 1024), dtype), rg.tensor("B", (1024, 1024), dtype), name="C")


def _conv(dtype: str) -> Tensor:
    x, w = rg.tensor("A", (8, 128, 28, 28), dtype), rg.tensor("B", (128, 128, 3, 3), dtype)
    return rg.ops.conv2d(x, w, padding=1, name="C")


VECTORS = {
    "matmul of float32": Vector(
        _matmul("float32"), (("i", 128), ("j", 56)), "k", "j", 8, (65536, 28672), 28672, (3456, 3584, 3584), 166272,
        87176, (21794, 880, 149760), (6272, 7260), 187166,
    ),
    "matmul of float16": Vector(
        _matmul("float16"), (("i", 147), ("j", 24)), "k", "j", 4, (75264, 12288), 14112, (1752, 1760, 1768), 139712,
        84056, (21014, 439, 42520), (2646, 4410), 72229,
    ),
    "convolution of float32": Vector(
        _conv("float32"), (("n", 1), ("oy", 28), ("f", 8)), "c", "f", 8, (57600, 4608), 25088, (3136, 576, 3136),
        126912, 51072, (12768, 464, 134146), (5488, 6330), 160396,
    ),
    "convolution of float16": Vector(
        _conv("float16"), (("n", 1), ("oy", 14), ("f", 8)), "c", "f", 4, (30720, 4608), 12544, (1568, 288, 1568),
        84064, 29632, (7408, 232, 43594), (2352, 3954), 58740,
    ),
}  # fmt: skip


def program_of(vector: Vector) -> RProgram:
    """The program with exactly the vector's grid: the parts of one block on adjacent tiles, added in shares."""
    device = load_device("ipu")
    graph = canonicalize(vector.expression)
    (op,) = graph.tensor_ops
    pair = split_reduction(op, vector.channels, vector.parts)
    assert pair is not None
    first, second = pair
    instruction = device.instruction("amp_f16" if op.output.dtype == "float16" else "amp_f32")
    blocks = (*vector.blocks, (f"{vector.channels}_part", 1))
    plan = BulkPlan(blocks, (0, 1), instruction, 1, vector.outputs, vector.channels)
    stages = (
        bulk_stage(first, plan, device, "products"),
        bulk_stage(second, BulkPlan(vector.blocks, shares=first.output.name), device, "sums"),
    )
    return with_tile_mappings(RProgram("ipu", graph.inputs, graph.outputs, stages, (first.output,)))
