"""The published convolution space: one 4096 x 4096 channel under a 15 x 15 filter, float32.

A block of block_size_x x block_size_y threads; a thread owns tile_size_x x tile_size_y outputs that lie a block
apart, so that lanes read neighbours.  With use_shmem the window of the block is staged once, word by word.
What is made of a row stands for the measured program, but is none that could be built: a window that a whole block
stages has no rProgram (copies into a block's layer hold an element for each combination of loops, and `check` refuses
one that leaves out the filter's axes; windows go into registers only).  The halo of the window, values that
neighbouring taps reuse, the filter in constant memory, and what compilers made of guards are therefore not seen.
`use_padding` changes the stride of the staged row (only where block_size_x is no multiple of 32) and is not mapped;
`read_only` changed nothing that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rollergen.expr.combiners import named_combiner
from rollergen.expr.definition import Axis, Definition, Reduction
from rollergen.expr.index import Index
from rollergen.expr.values import Binary, Buffer, Load, Partial
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop, RProgram, Stage

SIZE, FILTER = 4096, 15
ix = Index.axis


@lru_cache(maxsize=1)
def convolution() -> Definition:
    image, weights = Buffer("X", (SIZE + FILTER - 1, SIZE + FILTER - 1)), Buffer("W", (FILTER, FILTER))
    window = Load(image, (ix("y") + ix("ky"), ix("x") + ix("kx")))
    body = Binary("mul", window, Load(weights, (ix("ky"), ix("kx"))), "float32")
    return Definition(
        Buffer("Y", (SIZE, SIZE), kind="output"),
        (Axis("y", SIZE), Axis("x", SIZE), Axis("ky", FILTER, "reduce"), Axis("kx", FILTER, "reduce")),
        (ix("y"), ix("x")),
        Partial("r", "float32"),
        (Reduction("r", named_combiner("sum", "float32"), ("ky", "kx"), (body,)),),
    )


def conv_program(row: Mapping[str, str]) -> RProgram:
    """The rProgram of one row."""
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y")
    bx, by, tx, ty = (int(row[name]) for name in names)
    loops = (
        Loop("y", -(-SIZE // (by * ty)), by * ty, "grid"),
        Loop("x", -(-SIZE // (bx * tx)), bx * tx, "grid"),
        Loop("y", by, 1, "thread"),
        Loop("x", bx, 1, "thread"),
        Loop("ky", FILTER, 1, "unroll"),
        Loop("kx", FILTER, 1, "unroll"),
        Loop("y", ty, by, "unroll"),
        Loop("x", tx, bx, "unroll"),
    )
    staged = row["use_shmem"] == "1"
    copies = [Copy(0, "dram", "shared", 4, ("y", "x"), "x")] if staged else []
    copies.append(Copy(0, "shared" if staged else "dram", "registers", 6, ("y", "x"), "x"))
    copies.append(Copy(1, "dram", "registers", 6, ("kx",), "kx"))
    guards = tuple((axis, "mask") for axis, tile in (("y", by * ty), ("x", bx * tx)) if SIZE % tile)
    stage = Stage("conv", convolution(), loops, Compute("fma"), Accumulator(4, "float32"), tuple(copies), guards=guards)
    inputs = tuple(load.buffer for load in convolution().loads())
    return RProgram("gpu", inputs, (convolution().output,), (stage,))
