"""Small rPrograms written by hand: what every reader must understand, independent of construction."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Binary, Buffer, Const, Load, Partial, Unary, Within, named_combiner
from rollergen.program.assemble import levels
from rollergen.program.rprogram import (
    Accumulator,
    BlockOrder,
    Compute,
    Copy,
    KeptRow,
    Loop,
    RProgram,
    Stage,
    Store,
)

F32 = "float32"
ix = Index.axis


def matmul_op(m, n, k, bias=False):
    """C[i, j] = sum_k A[i, k] B[k, j], or relu of it plus D[j]."""
    a, b, c = Buffer("A", (m, k)), Buffer("B", (k, n)), Buffer("C", (m, n), kind="output")
    body = Binary("mul", Load(a, (ix("i"), ix("k"))), Load(b, (ix("k"), ix("j"))), F32)
    result = Partial("r", F32)
    if bias:
        added = Binary("add", result, Load(Buffer("D", (n,)), (ix("j"),)), F32)
        result = Binary("max", added, Const(0.0, F32), F32)
    return TensorOp(
        output=c,
        axes=(Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        target=(ix("i"), ix("j")),
        reductions=(Reduction("r", named_combiner("sum", F32), ("k",), (body,)),),
        result=result,
    )


def _program(device, *stages, temporaries=()):
    made = {b.name for b in temporaries}
    inputs = {}
    for stage in stages:
        for load in stage.op.loads():
            if load.buffer.name not in made:
                inputs.setdefault(load.buffer.name, load.buffer)
    return RProgram(device, tuple(inputs.values()), (stages[-1].op.output,), tuple(stages), tuple(temporaries))


def gpu_matmul(m=70, n=100, k=37, bias=False, depth=1, swizzle=0, padding=4, asynchronous=False):
    """64x64 block, step 8, 4x4 register tile as 2x2 quads of 2x2, both operands staged, all masked."""
    op = matmul_op(m, n, k, bias)
    loops = (
        Loop("i", -(-m // 64), 64, "grid"),
        Loop("j", -(-n // 64), 64, "grid"),
        Loop("i", 16, 2, "thread"),
        Loop("j", 16, 2, "thread"),
        Loop("k", -(-k // 8), 8, "serial"),
        Loop("k", 8, 1, "unroll"),
        Loop("i", 2, 32, "unroll"),
        Loop("i", 2, 1, "unroll"),
        Loop("j", 2, 32, "unroll"),
        Loop("j", 2, 1, "unroll"),
    )
    copies = (
        Copy(0, "dram", "shared", 5, ("k", "i"), "k", vector=1, padding=padding, depth=depth,
             asynchronous=asynchronous),
        Copy(1, "dram", "shared", 5, ("k", "j"), "j", vector=4 if n % 4 == 0 else 1, swizzle=swizzle, depth=depth,
             asynchronous=asynchronous),
        Copy(0, "shared", "registers", 6, ("i",), "i", vector=2),
        Copy(1, "shared", "registers", 6, ("j",), "j", vector=2 if not swizzle else 1),
    )
    guards = tuple((a, "mask") for a, e, t in (("i", m, 64), ("j", n, 64), ("k", k, 8)) if e % t)
    return _program(
        "a100" if asynchronous else "v100",
        Stage("matmul", op, loops, Compute("fma"), Accumulator(4, F32), copies, guards=guards,
              store=Store(vector=2 if n % 2 == 0 else 1), block_order=BlockOrder(2)),
    )  # fmt: skip


def cpu_matmul(m=70, n=100, k=37, bias=False, kc=16, lanes=16, pack=True, guard="peel", own=False):
    """Items of 4x2 tiles of 6 rows x 2 vectors; k blocks outside (partial sums wait in C); B packed, or (``own``) tile
    by tile in an array of the item's own."""
    nr = 2 * lanes
    panels = -(-n // nr)
    main = matmul_op(m, n, k, bias)
    stages, temporaries = [], ()
    if pack:
        packed = Buffer("B_packed", (panels, k, nr), kind="temporary")
        column = ix("p") * nr + ix("c")
        load = Load(Buffer("B", (k, n)), (ix("k"), column), (Within(column, 0, n),))
        pack_op = TensorOp(packed, (Axis("p", panels), Axis("k", k), Axis("c", nr)), (ix("p"), ix("k"), ix("c")), load)
        pack_loops = (Loop("p", panels, 1, "grid"), Loop("k", k, 1, "serial"), Loop("c", 2, lanes, "unroll"), Loop("c", lanes, 1, "lane"))
        stages.append(Stage("pack_B", pack_op, pack_loops, Compute("vfma", lanes), Accumulator(2, F32)))
        temporaries = (packed,)
        body = Binary("mul", Load(Buffer("A", (m, k)), (ix("i"), ix("k"))), Load(packed, (ix("j") // nr, ix("k"), ix("j") % nr)), F32)
        reduction = Reduction("r", named_combiner("sum", F32), ("k",), (body,))
        main = TensorOp(main.output, main.axes, main.target, main.result, (reduction,))
    loops = (
        Loop("i", -(-m // 24), 24, "grid"),
        Loop("j", -(-n // (2 * nr)), 2 * nr, "grid"),
        Loop("k", -(-k // kc), kc, "serial"),
        Loop("j", 2, nr, "serial"),
        Loop("i", 4, 6, "serial"),
        Loop("k", kc, 1, "serial"),
        Loop("i", 6, 1, "unroll"),
        Loop("j", 2, lanes, "unroll"),
        Loop("j", lanes, 1, "lane"),
    )
    guards = tuple((a, guard) for a, e, t in (("i", m, 6), ("j", n, nr)) if e % t)
    copies = (Copy(1, "dram", "l2", 3, ("k", "j"), "j", vector=lanes),) if own else ()
    stages.append(
        Stage("matmul", main, loops, Compute("vfma", lanes), Accumulator(5, F32, carry=kc < k), copies, guards=guards)
    )
    return _program("cpu", *stages, temporaries=temporaries)


def row_sum(rows=10, columns=100, shape="cpu"):
    """S[i] = sum_j X[i, j]: lanes and separate chains on a CPU, a block tree on a GPU."""
    load = Load(Buffer("X", (rows, columns)), (ix("i"), ix("k")))
    op = TensorOp(
        Buffer("S", (rows,), kind="output"), (Axis("i", rows), Axis("k", columns, "reduce")), (ix("i"),),
        Partial("r", F32), (Reduction("r", named_combiner("sum", F32), ("k",), (load,)),),
    )  # fmt: skip
    if shape == "cpu":
        loops = (Loop("i", rows, 1, "grid"), Loop("k", -(-columns // 32), 32, "serial"), Loop("k", 2, 16, "unroll"), Loop("k", 16, 1, "lane"))
        stage = Stage("sum", op, loops, Compute("vfma", 16), Accumulator(1, F32, separate=(2,)),
                      guards=(("k", "mask"),) if columns % 32 else ())  # fmt: skip
        return _program("cpu", stage)
    loops = (Loop("i", rows, 1, "grid"), Loop("k", 64, 1, "thread"), Loop("k", -(-columns // 64), 64, "serial"))
    stage = Stage("sum", op, loops, Compute("fma"), Accumulator(2, F32, combine="tree"),
                  guards=(("k", "mask"),) if columns % 64 else ())  # fmt: skip
    return _program("v100", stage)


def softmax(rows=10, columns=100, shape="cpu"):
    """Y = softmax of X over the last axis in one stage; exp(x - max) is kept."""
    x = Load(Buffer("X", (rows, columns)), (ix("i"), ix("j")))
    largest = Reduction("m", named_combiner("max", F32), ("j",), (x,))
    power = Unary("exp", Binary("sub", x, Partial("m", F32), F32), F32)
    total = Reduction("s", named_combiner("sum", F32), ("j",), (power,))
    result = Binary("div", power, Partial("s", F32), F32)
    op = TensorOp(
        Buffer("Y", (rows, columns), kind="output"), (Axis("i", rows), Axis("j", columns, "row")),
        (ix("i"), ix("j")), result, (largest, total),
    )  # fmt: skip
    if shape == "cpu":
        loops = (Loop("i", rows, 1, "grid"), Loop("j", -(-columns // 16), 16, "serial"), Loop("j", 16, 1, "lane"))
        stage = Stage("softmax", op, loops, Compute("vfma", 16), Accumulator(1, F32),
                      kept_rows=(KeptRow("e", power, "l1", 1),), guards=(("j", "mask"),) if columns % 16 else ())  # fmt: skip
        return _program("cpu", stage)
    loops = (Loop("i", rows, 1, "grid"), Loop("j", 32, 1, "thread"), Loop("j", -(-columns // 32), 32, "unroll"))
    stage = Stage("softmax", op, loops, Compute("fma"), Accumulator(2, F32, combine="tree"),
                  kept_rows=(KeptRow("x", x, "registers", 0), KeptRow("e", power, "registers", 1)),
                  guards=(("j", "mask"),) if columns % 32 else ())  # fmt: skip
    return _program("v100", stage)


def transpose(rows=70, columns=50):
    """Y[j, i] = X[i, j] through a padded shared tile of 32x32, 8 rows of threads."""
    x = Load(Buffer("X", (rows, columns)), (ix("i"), ix("j")))
    op = TensorOp(Buffer("Y", (columns, rows), kind="output"), (Axis("j", columns), Axis("i", rows)), (ix("j"), ix("i")), x)
    loops = (
        Loop("j", -(-columns // 32), 32, "grid"),
        Loop("i", -(-rows // 32), 32, "grid"),
        Loop("j", 8, 1, "thread"),
        Loop("i", 32, 1, "thread"),
        Loop("j", 4, 8, "unroll"),
    )
    guards = tuple((a, "mask") for a, e in (("i", rows), ("j", columns)) if e % 32)
    copies = (Copy(0, "dram", "shared", 4, ("i", "j"), "j", padding=1),)
    return _program("v100", Stage("transpose", op, loops, Compute("fma"), Accumulator(4, F32), copies, guards=guards))


def relu(elements=1000):
    """Y = max(X, 0), lanes of 16, streaming stores."""
    x = Load(Buffer("X", (elements,)), (ix("i"),))
    value = Binary("max", x, Const(0.0, F32), F32)
    op = TensorOp(Buffer("Y", (elements,), kind="output"), (Axis("i", elements),), (ix("i"),), value)
    loops = (Loop("i", -(-elements // 256), 256, "grid"), Loop("i", 16, 16, "serial"), Loop("i", 16, 1, "lane"))
    guards = (("i", "mask"),) if elements % 16 else ()
    return _program("cpu", Stage("relu", op, loops, Compute("vfma", 16), Accumulator(2, F32), store=Store(streaming=True), guards=guards))


def gpu_conv(ci=3, h=9, w=11, co=20, stride=1):
    """3x3 convolution, pad 1, as an implicit GEMM: f x (oy, ox) x (c, ky, kx), gathered on load."""
    oh, ow = (h + 2 - 3) // stride + 1, (w + 2 - 3) // stride + 1
    f, p, k = ix("f"), ix("p"), ix("k")
    y = (p // ow) * stride + (k % 9) // 3 - 1
    x = (p % ow) * stride + k % 3 - 1
    image = Load(Buffer("X", (1, ci, h, w)), (Index.of(0), k // 9, y, x), (Within(y, 0, h), Within(x, 0, w)))
    weight = Load(Buffer("W", (co, ci, 3, 3)), (f, k // 9, (k % 9) // 3, k % 3))
    op = TensorOp(
        Buffer("Y", (1, co, oh, ow), kind="output"), (Axis("f", co), Axis("p", oh * ow), Axis("k", ci * 9, "reduce")),
        (Index.of(0), f, p // ow, p % ow), Partial("r", F32),
        (Reduction("r", named_combiner("sum", F32), ("k",), (Binary("mul", weight, image, F32),)),),
    )  # fmt: skip
    loops = (
        Loop("f", -(-co // 16), 16, "grid"),
        Loop("p", -(-(oh * ow) // 32), 32, "grid"),
        Loop("f", 8, 2, "thread"),
        Loop("p", 8, 4, "thread"),
        Loop("k", -(-(ci * 9) // 4), 4, "serial"),
        Loop("k", 4, 1, "serial"),
        Loop("f", 2, 1, "unroll"),
        Loop("p", 4, 1, "unroll"),
    )
    guards = tuple((a, "mask") for a, e, t in (("f", co, 16), ("p", oh * ow, 32)) if e % t)
    copies = (
        Copy(0, "dram", "shared", 5, ("k", "f"), "k"),
        Copy(1, "dram", "shared", 5, ("k", "p"), "p"),
        Copy(0, "shared", "registers", 6, ("f",), "f", vector=2),
        Copy(1, "shared", "registers", 6, ("p",), "p", vector=4),
    )
    return _program("mi50", Stage("conv", op, loops, Compute("fma"), Accumulator(4, F32), copies, guards=guards))


def in_blocks(program, longest):
    """`program` with the sums of its last stage added up in blocks of so many terms, and these in blocks of 16."""
    *others, stage = program.stages
    return replace(program, stages=(*others, levels.in_blocks(stage, longest)))


ALL = {
    "gpu_matmul": gpu_matmul(),
    "gpu_matmul_exact": gpu_matmul(128, 64, 32),
    "gpu_matmul_bias_prefetch": gpu_matmul(70, 100, 37, bias=True, depth=2),
    "gpu_matmul_in_blocks": in_blocks(gpu_matmul(40, 50, 90, depth=2), 16),
    "gpu_matmul_swizzle": gpu_matmul(64, 64, 40, swizzle=4, padding=0),
    "cpu_matmul": cpu_matmul(),
    "cpu_matmul_masked": cpu_matmul(guard="mask", pack=False),
    "cpu_matmul_bias": cpu_matmul(bias=True),
    "cpu_matmul_one_block": cpu_matmul(48, 128, 16),
    "cpu_matmul_own_tiles": cpu_matmul(48, 128, 32, pack=False, own=True),
    "cpu_matmul_own_tiles_with_tails": cpu_matmul(pack=False, own=True),
    "cpu_row_sum": row_sum(),
    "gpu_row_sum": row_sum(shape="gpu"),
    "cpu_row_sum_in_blocks": in_blocks(row_sum(3, 1510), 2),
    "gpu_row_sum_in_blocks": in_blocks(row_sum(3, 1510, shape="gpu"), 2),
    "cpu_matmul_in_blocks": in_blocks(cpu_matmul(20, 40, 37), 4),
    "cpu_softmax": softmax(),
    "gpu_softmax": softmax(shape="gpu"),
    "transpose": transpose(),
    "relu": relu(),
    "gpu_conv": gpu_conv(),
    "gpu_conv_stride2": gpu_conv(5, 12, 14, 33, 2),
}
