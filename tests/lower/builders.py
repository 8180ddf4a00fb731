"""Small programs for one question each: a value computed element by element, a reduction by anything."""

from __future__ import annotations

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Buffer, Load, Partial
from rollergen.program.rprogram import Accumulator, Compute, Loop, RProgram, Stage, Store

ix = Index.axis


def program_of(device, op, loops, accumulator=None, **decisions):
    """A program of one stage."""
    inputs = tuple({load.buffer.name: load.buffer for load in op.loads()}.values())
    accumulator = accumulator or Accumulator(len(loops), "float32")
    lanes = next((loop.extent for loop in loops if loop.kind == "lane"), 1)
    stage = Stage("stage", op, tuple(loops), Compute("fma", lanes), accumulator, **decisions)
    return RProgram(device, inputs, (op.output,), (stage,))


def elementwise(value, elements, device="cpu", lanes=16, dtype=None, **decisions):
    """``Y[i] = value`` for a value over axis i: vectors on a CPU, 32 threads a block on a GPU."""
    dtype = dtype or value.dtype
    op = TensorOp(Buffer("Y", (elements,), dtype, "output"), (Axis("i", elements),), (ix("i"),), value)
    if device == "cpu":
        loops = [Loop("i", -(-elements // (4 * lanes)), 4 * lanes, "grid"), Loop("i", 4, lanes, "serial")]
        loops += [Loop("i", lanes, 1, "lane")] if lanes > 1 else []
        span = lanes
    else:
        loops = [Loop("i", -(-elements // 64), 64, "grid"), Loop("i", 32, 2, "thread"), Loop("i", 2, 1, "unroll")]
        span = 64
        decisions.setdefault("store", Store(vector=2 if elements % 2 == 0 else 1))
    guards = (("i", "mask"),) if elements % span else ()
    return program_of(device, op, loops, guards=guards, **decisions)


def row_reduction(combiner, bodies, rows, columns, result=None, shape="cpu", output_dtype=None, combine="tree"):
    """``Y[i]`` = result (default: the last component) of a reduction over j: lanes and chains on a CPU, a
    tree of 8 threads for each of 4 rows on a GPU."""
    result = result or Partial("r", bodies[-1].dtype, len(bodies) - 1)
    op = TensorOp(
        Buffer("Y", (rows,), output_dtype or result.dtype, "output"),
        (Axis("i", rows), Axis("j", columns, "reduce")),
        (ix("i"),),
        result,
        (Reduction("r", combiner, ("j",), tuple(bodies)),),
    )
    dtype = bodies[0].dtype
    if shape == "cpu":
        lanes = 8 if dtype in ("float64", "int64") else 16
        loops = (
            Loop("i", rows, 1, "grid"),
            Loop("j", -(-columns // (2 * lanes)), 2 * lanes, "serial"),
            Loop("j", 2, lanes, "unroll"),
            Loop("j", lanes, 1, "lane"),
        )
        guards = (("j", "mask"),) if columns % (2 * lanes) else ()
        return program_of("cpu", op, loops, Accumulator(1, dtype, separate=(2,)), guards=guards)
    loops = (
        Loop("i", -(-rows // 4), 4, "grid"),
        Loop("i", 4, 1, "thread"),
        Loop("j", 8, 1, "thread"),
        Loop("j", -(-columns // 8), 8, "serial"),
    )
    guards = tuple((axis, "mask") for axis, extent, span in (("i", rows, 4), ("j", columns, 8)) if extent % span)
    return program_of("v100", op, loops, Accumulator(3, dtype, combine=combine), guards=guards)


def load(name, *indices, shape, dtype="float32", **rest):
    return Load(Buffer(name, shape, dtype), tuple(indices), **rest)
