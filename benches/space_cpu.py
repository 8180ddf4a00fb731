"""The measured CPU space: packing stages, then items of MP x NP register tiles of MR rows x NV vectors."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Index
from rollergen.expr.packing import pack_operand
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Load, Partial, named_combiner
from rollergen.program.rprogram import Accumulator, Compute, Loop, RProgram, Stage

ix = Index.axis


def matmul(m: int, n: int, k: int) -> TensorOp:
    a, b = Buffer("A", (m, k)), Buffer("B", (k, n))
    body = Binary("mul", Load(a, (ix("i"), ix("k"))), Load(b, (ix("k"), ix("j"))), "float32")
    return TensorOp(
        Buffer("C", (m, n), kind="output"),
        (Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        (ix("i"), ix("j")),
        Partial("r", "float32"),
        (Reduction("r", named_combiner("sum", "float32"), ("k",), (body,)),),
    )


def cpu_program(row: Mapping[str, str]) -> RProgram:
    """The rProgram of one row; columns as in the space's description (benches/data/README.md)."""
    m, n, k = (int(row[c]) for c in "MNK")
    mr, nv, lanes = (int(row[c]) for c in ("MR", "NV", "VW"))
    op, stages = matmul(m, n, k), []
    loads = dict(zip("AB", op.loads(), strict=True))
    if row["pb"] == "1":
        copy, op = pack_operand(op, loads["B"], "j", nv * lanes)
        stages.append(_pack_columns(copy, nv, lanes))
    if row["pa"] == "1":
        copy, op = pack_operand(op, loads["A"], "i", mr)
        stages.append(_pack_rows(copy, mr))
    temporaries = tuple(stage.op.output for stage in stages)
    stages.append(_multiplication(row, op))
    inputs = {load.buffer.name: load.buffer for stage in stages for load in stage.op.loads()}
    given = tuple(buffer for buffer in inputs.values() if buffer.kind == "input")
    return RProgram("cpu", given, (op.output,), tuple(stages), temporaries)


def _multiplication(row: Mapping[str, str], op: TensorOp) -> Stage:
    m, n, k = (int(row[c]) for c in "MNK")
    mr, nv, lanes, mp, np_, unroll = (int(row[c]) for c in ("MR", "NV", "VW", "MP", "NP", "KU"))
    kc, nr = min(int(row["KC"]), k), nv * lanes
    panels = [Loop("j", np_, nr, "serial"), Loop("i", mp, mr, "serial")]
    loops = (
        Loop("j", -(-n // (np_ * nr)), np_ * nr, "grid"),
        Loop("i", -(-m // (mp * mr)), mp * mr, "grid"),
        Loop("k", -(-k // kc), kc, "serial"),
        *(panels if row["order"] == "ji" else reversed(panels)),
        Loop("k", -(-kc // unroll), unroll, "serial"),
        *([Loop("k", unroll, 1, "unroll")] if unroll > 1 else []),
        Loop("i", mr, 1, "unroll"),
        Loop("j", nv, lanes, "unroll"),
        Loop("j", lanes, 1, "lane"),
    )
    guards = tuple((a, "peel") for a, extent, tile in (("i", m, mr), ("j", n, nr)) if extent % tile)
    accumulator = Accumulator(5, "float32", carry=kc < k)
    return Stage("matmul", op, loops, Compute("vfma", lanes), accumulator, guards=guards)


def _pack_columns(copy: TensorOp, nv: int, lanes: int) -> Stage:
    panel, k, column = copy.axes
    loops = (
        Loop(panel.name, panel.extent, 1, "grid"),
        Loop(k.name, k.extent, 1, "serial"),
        Loop(column.name, nv, lanes, "unroll"),
        Loop(column.name, lanes, 1, "lane"),
    )
    return Stage("pack_B", copy, loops, Compute("vfma", lanes), Accumulator(2, "float32"))


def _pack_rows(copy: TensorOp, mr: int) -> Stage:
    panel, k, row = copy.axes
    loops = (
        Loop(panel.name, panel.extent, 1, "grid"),
        Loop(k.name, k.extent, 1, "serial"),
        Loop(row.name, mr, 1, "unroll"),
    )
    return Stage("pack_A", copy, loops, Compute("vfma", 1), Accumulator(2, "float32"))
