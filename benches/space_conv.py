"""The published convolution space: one 4096 x 4096 channel under a 15 x 15 filter, float32.

A block of block_size_x x block_size_y threads; a thread owns tile_size_x x tile_size_y outputs that lie a block
apart, so that lanes read neighbours.  With use_shmem the block stages the window that its outputs read, halo and all,
word by word; use_padding makes the stride of its rows congruent to block_size_x modulo 32.  (read_only changed nothing
that was measured.)  Without use_shmem threads read the image where they need it.

The rows' source unrolls the filter and a thread's outputs.  What a compiler makes of that is part of the program that
was measured, and the target of the device's spec says it (`compiled_by`):

- more than so many multiply-adds are not written out: the filter's rows then stay a loop of shorter runs;
- where sizes do not divide, results are stored under tests, and the accumulation of each output sinks below its own
  test, behind the reads of all: unless a loop is left, through which it passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Load, Partial, named_combiner
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop, RProgram, Stage

SIZE, FILTER = 4096, 15
TAPS = FILTER * FILTER
BLOCK = 4
"""Depth inside the grid and thread loops."""
ix = Index.axis


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiler makes of the source: ``written_out``: multiply-adds of a thread that it unrolls at most (0: any
    number; ``tested``: the same where results are stored under tests), else the filter's rows in runs of ``run``;
    ``sinks``: whether accumulations sink below tests."""

    written_out: int = 0
    tested: int = 0
    run: int = FILTER
    sinks: bool = False


AS_WRITTEN = Compiled()


def compiled_by(device: Device) -> Compiled:
    """What the compiler of the device's target does, by its dialect; `AS_WRITTEN` where that says nothing."""
    dialect = dict(device.targets[0].dialect)
    out = int(dialect.get("written_out", 0))
    tested, run = int(dialect.get("written_out_tested", out)), int(dialect.get("rolled_run", FILTER))
    return Compiled(out, tested, run, dialect.get("sinks_below_tests") == "yes")


@lru_cache(maxsize=1)
def convolution() -> TensorOp:
    image, weights = Buffer("X", (SIZE + FILTER - 1, SIZE + FILTER - 1)), Buffer("W", (FILTER, FILTER))
    window = Load(image, (ix("y") + ix("ky"), ix("x") + ix("kx")))
    body = Binary("mul", window, Load(weights, (ix("ky"), ix("kx"))), "float32")
    return TensorOp(
        Buffer("Y", (SIZE, SIZE), kind="output"),
        (Axis("y", SIZE), Axis("x", SIZE), Axis("ky", FILTER, "reduce"), Axis("kx", FILTER, "reduce")),
        (ix("y"), ix("x")),
        Partial("r", "float32"),
        (Reduction("r", named_combiner("sum", "float32"), ("ky", "kx"), (body,)),),
    )


def conv_program(row: Mapping[str, str], compiled: Compiled = AS_WRITTEN) -> RProgram:
    """The rProgram of one row, as it was compiled."""
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y")
    bx, by, tx, ty = (int(row[name]) for name in names)
    guards = tuple((axis, "mask") for axis, tile in (("y", by * ty), ("x", bx * tx)) if SIZE % tile)
    rolled = 0 < (compiled.tested if guards else compiled.written_out) < TAPS * tx * ty
    sunk = compiled.sinks and bool(guards) and tx * ty > 1 and not rolled
    rows = (Loop("ky", FILTER, 1, "unroll"),)
    if rolled:
        rows = (Loop("ky", FILTER // compiled.run, compiled.run, "serial"), Loop("ky", compiled.run, 1, "unroll"))
    taps = (*rows, Loop("kx", FILTER, 1, "unroll"))
    outputs = (Loop("y", ty, by, "unroll"), Loop("x", tx, bx, "unroll"))
    loops = (
        Loop("y", -(-SIZE // (by * ty)), by * ty, "grid"),
        Loop("x", -(-SIZE // (bx * tx)), bx * tx, "grid"),
        Loop("y", by, 1, "thread"),
        Loop("x", bx, 1, "thread"),
        *((*outputs, *taps) if sunk else (*taps, *outputs)),
    )
    copies = []
    if row["use_shmem"] == "1":
        width = bx * tx + FILTER - 1
        padding = (bx - width) % 32 if row["use_padding"] == "1" else 0
        copies.append(Copy(0, "dram", "shared", BLOCK, ("y", "x", "ky", "kx"), "kx", padding=padding, window=True))
    if sunk:
        source = "shared" if copies else "dram"
        copies.append(Copy(0, source, "registers", BLOCK, ("y", "x", "ky", "kx"), "kx"))
    accumulator = Accumulator(BLOCK + len(outputs) if sunk else BLOCK, "float32")
    stage = Stage("conv", convolution(), loops, Compute("fma"), accumulator, tuple(copies), guards=guards)
    inputs = tuple(load.buffer for load in convolution().loads())
    return RProgram("gpu", inputs, (convolution().output,), (stage,))


def slower_of_pairs(rows: list[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The rows that ran with a staged window; of the two that differ in `read_only`, replicates, the slower one."""
    kept: dict[tuple[str, ...], Mapping[str, str]] = {}
    for row in rows:
        if row["status"] != "ok" or row["use_shmem"] != "1":
            continue
        key = tuple(row[n] for n in ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "use_padding"))
        if key not in kept or float(row["time_ms"]) > float(kept[key]["time_ms"]):
            kept[key] = row
    return list(kept.values())
