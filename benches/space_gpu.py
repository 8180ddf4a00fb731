"""The published GPU space: CLBlast's GEMM, C = A B + C with M = N = K = 4096, A, B and C stored along m, n and m.

Columns as their authors describe them: a block of MWG x NWG with steps of KWG, MDIMC x NDIMC threads that
own wm x wn *adjacent* outputs each, vectors of VWM and VWN, operands staged (SA, SB) or read through the L1.
A staging thread of the original moves MWG/MDIMA adjacent floats of consecutive rows; an rProgram's moves
whole vectors in turn, so the staging wavefronts are those of the original where MWG/MDIMA = VWM only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rollergen.expr.combiners import named_combiner
from rollergen.expr.definition import Axis, Definition, Reduction
from rollergen.expr.index import Index
from rollergen.expr.values import Binary, Buffer, Load, Partial
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop, RProgram, Stage, Store

SIZE = 4096
ix = Index.axis


@lru_cache(maxsize=1)
def gemm() -> Definition:
    a, b, c = (Buffer(name, (SIZE, SIZE)) for name in ("A", "B", "C0"))
    body = Binary("mul", Load(a, (ix("k"), ix("i"))), Load(b, (ix("k"), ix("j"))), "float32")
    return Definition(
        Buffer("C", (SIZE, SIZE), kind="output"),
        (Axis("j", SIZE), Axis("i", SIZE), Axis("k", SIZE, "reduce")),
        (ix("j"), ix("i")),
        Binary("add", Partial("r", "float32"), Load(c, (ix("j"), ix("i"))), "float32"),
        (Reduction("r", named_combiner("sum", "float32"), ("k",), (body,)),),
    )


def gpu_program(row: Mapping[str, str]) -> RProgram:
    """The rProgram of one row."""
    mwg, nwg, kwg, mdimc, ndimc, kwi = (int(row[c]) for c in ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "KWI"))
    wm, wn = mwg // mdimc, nwg // ndimc
    loops = (
        Loop("j", SIZE // nwg, nwg, "grid"),
        Loop("i", SIZE // mwg, mwg, "grid"),
        Loop("j", ndimc, wn, "thread"),
        Loop("i", mdimc, wm, "thread"),
        Loop("k", SIZE // kwg, kwg, "serial"),
        Loop("k", kwg // kwi, kwi, "serial"),
        Loop("k", kwi, 1, "unroll"),
        Loop("j", wn, 1, "unroll"),
        Loop("i", wm, 1, "unroll"),
    )
    copies = []
    for load, axis, staged, vector in ((0, "i", row["SA"], int(row["VWM"])), (1, "j", row["SB"], int(row["VWN"]))):
        if staged == "1":
            copies.append(Copy(load, "dram", "shared", 5, ("k", axis), axis, vector=vector))
        source = "shared" if staged == "1" else "dram"
        copies.append(Copy(load, source, "registers", 7, (axis,), axis, vector=vector))
    store = Store(vector=int(row["VWM"]))
    stage = Stage("gemm", gemm(), loops, Compute("fma"), Accumulator(4, "float32"), tuple(copies), store=store)
    inputs = tuple(load.buffer for load in gemm().loads())
    return RProgram("gpu", inputs, (gemm().output,), (stage,))
