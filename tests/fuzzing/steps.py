"""What an expression is made of: each step is the text of one line that goes on from a value; "" where it does not fit.

What the language refuses (``_degenerate`` asks for that, too) is no fault: another step is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.fuzzing import torch_steps

if TYPE_CHECKING:
    from tests.fuzzing.recipes import Line, Writer

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int32", "int8", "int64", "uint8", "int16", "uint16", "uint32", "uint64")

WHOLE = ("fmod", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
"""Operators of two integers alone."""

Step = Callable[["Writer", "Line"], str]


def unary(w: Writer, x: Line) -> str:
    names = ["relu", "neg", "abs"]
    if "float" in x.dtype:
        names += ["tanh", "sigmoid", "silu", "gelu", "floor", "leaky_relu", "erf", "exp", "round", "rooted", "rooted"]
    name = w.random.choice(names)
    if name != "rooted":
        return f"ops.{name}({x.target})"
    inside = w.random.choice(["ops.abs({0})", "ops.add(ops.abs({0}), 1)", "ops.mul({0}, {0})"]).format(x.target)
    return f"ops.{w.random.choice(['sqrt', 'log', 'rsqrt'])}({inside})"


def _binary(w: Writer, x: Line) -> str:
    name = w.random.choice(["add", "sub", "mul", "maximum", "minimum"])
    if "float" in x.dtype and w.random.random() < 0.2:
        divided = w.given(x.shape, x.dtype)
        return w.random.choice([
            f"ops.div({x.target}, ops.add(ops.abs({divided}), 1))", f"ops.div({x.target}, {w.random.choice([3, 7, -2])})",
            f"ops.pow(ops.abs({x.target}), {w.random.choice([2, 0.5, 3])})", f"ops.clip({x.target}, -0.5, 0.25)",
            f"ops.{w.random.choice(['fmod', 'remainder'])}({divided}, {w.random.choice([3, 0.75, -2])})",
        ])  # fmt: skip
    if "float" not in x.dtype:
        name = w.random.choice([name, name, *WHOLE])
    fitting = [y.target for y in w.lines if y.shape == x.shape and y.dtype == x.dtype]
    other = w.random.choice(["scalar", "input", "known", "known"])
    if other == "scalar":
        return f"ops.{name}({x.target}, {w.random.choice([2, 3, -1])})"
    if other == "known":
        return f"ops.{name}({x.target}, {w.random.choice(fitting)})"
    shape = tuple(n if w.random.random() < 0.6 else 1 for n in x.shape[w.random.randint(0, len(x.shape)) :])
    return f"ops.{name}({x.target}, {w.given(shape, x.dtype)})" if shape else f"ops.{name}({x.target}, 1)"


def _choice(w: Writer, x: Line) -> str:
    y = w.given(x.shape, x.dtype)
    compare = w.random.choice(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
    chosen = w.given(x.shape, "bool") if w.random.random() < 0.3 else f"ops.{compare}({x.target}, {y})"
    return f"ops.where({chosen}, {x.target}, {w.random.choice([y, '1', '-2'])})"


def _reduction(w: Writer, x: Line) -> str:
    axes = w.random.sample(range(len(x.shape)), w.random.randint(1, len(x.shape)))
    names = ["sum", "amax", "amin", "argmax", "argmin"] + ["mean", "logsumexp", "var", "std", "prod"] * ("float" in x.dtype)
    return f"ops.{w.random.choice(names)}({x.target}, {tuple(axes)}, keepdims={w.random.random() < 0.3})"


def _rows(w: Writer, x: Line) -> str:
    axis = w.random.randrange(len(x.shape))
    name = w.random.choice(["softmax", "log_softmax", "layer_norm", "rms_norm"])
    return f"ops.{name}({x.target}, {x.shape[-1:] if name.endswith('norm') else axis})"


def _own_reduction(w: Writer, x: Line) -> str:
    """A reduction by an operation of the user's over one axis: two values at once, or one."""
    rank, axis = len(x.shape), w.random.randrange(len(x.shape))
    if "float" not in x.dtype:
        return ""
    names = [f"i{n}" for n in range(rank)]
    at = ", ".join("k" if n == axis else name for n, name in enumerate(names))
    kept = [name for n, name in enumerate(names) if n != axis]
    shape = tuple(n for a, n in enumerate(x.shape) if a != axis)
    k = f'rg.reduce_axis("k", {x.shape[axis]})'
    reduced = w.random.choice([
        f"rg.reduce(lambda a, b: rg.maximum(rg.abs(a), rg.abs(b)), 0, rg.abs({x.target}[{at}]), axis=k)",
        f"rg.reduce(lambda a, b: (a[0] + b[0], rg.maximum(a[1], b[1])), (0, float('-inf')), "
        f"({x.target}[{at}], {x.target}[{at}]), axis=k)[{w.random.randrange(2)}]",
        f"rg.max({x.target}[{at}] * 2 - 1, axis=k)", f"rg.sum(rg.abs({x.target}[{at}]), axis=k)",
    ])  # fmt: skip
    return f"(lambda k: rg.compute({shape}, lambda {', '.join(kept)}: {reduced}))({k})"


_GATED = (8, 33)
"""Widths of products that are gated by others: what is drawn for all others stays the same."""


def _gated(w: Writer, x: Line, n: int) -> str:
    """Products of one factor, of which one says how much of the other is let through: of two matrices, or of one."""
    if n == _GATED[0]:
        gate, up = (w.given((n, x.shape[-1]), x.dtype) for _ in range(2))
        return f"ops.mul(ops.relu(ops.linear({x.target}, {gate})), ops.linear({x.target}, {up}))"
    both = w.given((2 * n, x.shape[-1]), x.dtype)
    return f"(lambda a, b: ops.sub(ops.abs(a), b))(*ops.chunk(ops.linear({x.target}, {both}), 2, -1))"


def _product(w: Writer, x: Line) -> str:
    if len(x.shape) < 2:
        return ""
    n = w.random.choice([1, 3, 8, 17, 33, 64, 67, 131])
    if w.random.random() < 0.3:
        if n in _GATED:
            return _gated(w, x, n)
        bias = f", {w.given((n,), x.dtype)}" if w.random.random() < 0.5 and "float" in x.dtype else ""
        return f"ops.linear({x.target}, {w.given((n, x.shape[-1]), x.dtype)}{bias})"
    if w.random.random() < 0.2:
        return f"ops.matmul({x.target}, {w.given((x.shape[-2], n), x.dtype)}, transpose_a=True)"
    if len(x.shape) > 2 and w.random.random() < 0.3:
        return f"ops.batch_matmul({x.target}, {w.given((*x.shape[:-2], n, x.shape[-1]), x.dtype)}, transpose_b=True)"
    lead = x.shape[:-2] if w.random.random() < 0.5 else ()
    return f"ops.matmul({x.target}, {w.given((*lead, x.shape[-1], n), x.dtype)})"


def _einsum(w: Writer, x: Line) -> str:
    letters = "abcdefgh"[: len(x.shape)]
    shared = "".join(w.random.sample(letters, w.random.randint(1, len(letters))))
    own = "yz"[: w.random.randint(0, 2)]
    sizes = dict(zip(letters, x.shape, strict=True)) | {"y": w.random.randint(1, 20), "z": w.random.randint(1, 9)}
    other = "".join(w.random.sample(shared + own, len(shared + own)))
    kept = [one for one in letters + own if w.random.random() < 0.5] or [letters[0]]
    y = w.given(tuple(sizes[one] for one in other), x.dtype)
    return f'rg.einsum("{letters},{other}->{"".join(w.random.sample(kept, len(kept)))}", {x.target}, {y})'


def _convolution(w: Writer, x: Line) -> str:
    random, rank = w.random, len(x.shape) - 2
    if rank not in (1, 2, 3):
        return ""
    stride, padding, dilation = random.randint(1, 3), random.randint(0, 2), random.choice([1, 1, 1, 2])
    how = f"stride={stride}, padding={padding}"
    channels, filters = x.shape[1], random.choice([1, 4, 6, 7, 16])
    if rank != 2:
        kernel = tuple(random.randint(1, 3) for _ in range(rank))
        return f"ops.conv{rank}d({x.target}, {w.given((filters, channels, *kernel), x.dtype)}, {how}, dilation={dilation})"
    kernel = random.choice([(1, 1), (3, 3), (2, 3), (3, 1), (5, 5)])
    kinds = ["conv2d", "conv2d", "conv2d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "global"]
    kind = random.choice(kinds)
    if kind == "global":
        return f"ops.global_{random.choice(['avg', 'max'])}_pool({x.target})"
    if kind.endswith("pool2d"):
        return f"ops.{kind}({x.target}, {kernel}, stride={random.randint(1, 3)}, padding={min(kernel) // 2})"
    groups = next((g for g in (3, 2, 5) if channels % g == 0 and random.random() < 0.3), 1) if kind == "conv2d" else 1
    weights = {"conv2d": (filters * groups, channels // groups), "depthwise_conv2d": (channels * random.randint(1, 2), 1),
               "conv_transpose2d": (channels, filters)}  # fmt: skip
    if kind == "conv2d":
        how += f", dilation={dilation}, groups={groups}"
    return f"ops.{kind}({x.target}, {w.given((*weights[kind], *kernel), x.dtype)}, {how})"


def _composite(w: Writer, x: Line) -> str:
    """Operators of several stages: attention, inference's norms, quantised products."""
    rank, random, float_ = len(x.shape), w.random, "float" in x.dtype
    kind = random.choice(["attention", "batch_norm", "quantize", "quantized", "dequantize"])
    if kind == "attention" and float_ and rank >= 2:
        *lead, _, depth = x.shape
        n, e = random.choice([1, 5, 17, 31]), random.choice([1, 8, 13])
        keys, values = w.given((*lead, n, depth), x.dtype), w.given((*lead, n, e), x.dtype)
        return f"ops.attention({x.target}, {keys}, {values}, is_causal={random.random() < 0.4})"
    if kind == "batch_norm" and float_ and rank >= 2:
        mean, spread = w.given((x.shape[1],), x.dtype), w.given((x.shape[1],), x.dtype)
        return f"ops.batch_norm({x.target}, {mean}, ops.mul({spread}, {spread}))"
    if kind == "quantize" and float_:
        return f"ops.quantize({x.target}, {random.choice([0.5, 0.03, 0.125])}, {random.randint(-3, 3)})"
    if kind == "quantized" and x.dtype == "int8" and rank == 2:
        other = w.given((x.shape[1], random.choice([1, 7, 16, 33])), "int8")
        return f"ops.quantized_matmul({x.target}, {other}, 0.05, 0.02)"
    if kind == "dequantize" and x.dtype in ("int8", "int32"):
        return f"ops.dequantize({x.target}, {random.choice([0.5, 0.03])}, {random.randint(-3, 3)})"
    return ""


def _degenerate(w: Writer, x: Line) -> str:
    """What has no elements, or cannot be: of that the language is to say so, in an error of its own."""
    end = x.shape[0]
    return w.random.choice([
        f"ops.getitem({x.target}, (slice({end}, {end}),))", f"ops.reshape({x.target}, (0, {end}))",
        'ops.abs(T("none", (3, 0)))', f"ops.expand({x.target}, (0, {', '.join(map(str, x.shape))}))", "rg.compute((0, 2), lambda i, j: 1.0)",
        f"ops.upsample_nearest({x.target}, scale_factor=0)", f"ops.concat([{x.target}], {len(x.shape)})",
    ])  # fmt: skip


def _view(w: Writer, x: Line) -> str:
    rank, random = len(x.shape), w.random
    axis = random.randrange(rank)
    match random.choice(["transpose", "slice", "pad", "reshape", "concat", "expand", "upsample"]):
        case "transpose":
            return f"ops.permute({x.target}, {tuple(random.sample(range(rank), rank))})"
        case "slice":
            start, step = random.randint(0, 2), random.choice([1, 2, 3, -1, -2])
            part = f"slice({start}, None, {step})" if step > 0 else f"slice(None, None, {step})"
            return f"ops.getitem({x.target}, ({'slice(None), ' * axis}{part},))"
        case "pad":
            widths = tuple(random.randint(0, 3) for _ in range(2 * rank))
            return f'ops.pad({x.target}, {widths}, "{random.choice(["constant", "replicate", "reflect", "circular"])}")'
        case "reshape":
            if rank > 1 and random.random() < 0.6:
                at = random.randrange(rank - 1)
                merged = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
                return f"ops.reshape({x.target}, {merged})"
            divisor = next((d for d in (3, 2, 5, 7) if x.shape[axis] % d == 0), 1)
            split = (*x.shape[:axis], x.shape[axis] // divisor, divisor, *x.shape[axis + 1 :])
            return f"ops.reshape({x.target}, {split})"
        case "concat":
            return f"ops.concat([{x.target}, ops.neg({x.target}), {x.target}], {axis})"
        case "expand":
            return f"ops.expand({x.target}, {(random.randint(1, 4), *x.shape)})"
        case _:
            return f"ops.upsample_nearest({x.target}, scale_factor={random.randint(2, 3)})"


def _indexed(w: Writer, x: Line) -> str:
    """`rg.compute` with an index of its own along one axis."""
    rank = len(x.shape)
    axis, names = w.random.randrange(rank), [f"i{n}" for n in range(rank)]
    size = x.shape[axis]
    own = w.random.choice([
        f"{names[axis]} // 2", f"({names[axis]} + 1) % {size}", f"{size - 1} - {names[axis]}", f"{names[axis]} % 3",
        f"({names[axis]} * 2) % {size}",
    ])  # fmt: skip
    at = ", ".join(own if n == axis else name for n, name in enumerate(names))
    if size < 3:
        return ""
    body = f"{x.target}[{at}]"
    if w.random.random() < 0.5:
        body = f"rg.select({names[axis]} < {size // 2}, {body}, {x.target}[{', '.join(names)}])"
    return f"rg.compute({x.shape}, lambda {', '.join(names)}: {body})"


def _cast(w: Writer, x: Line) -> str:
    to = w.random.choice(["float16", "bfloat16", "float32", "float64", "int32", "uint8", "uint32"])
    return f'ops.cast({x.target}, "{to}")'


def _taken(w: Writer, x: Line) -> str:
    """Elements at places that an input holds, or a value of integers."""
    axis = w.random.randrange(len(x.shape))
    known = [y.target for y in w.lines if y.dtype in INTEGERS and len(y.shape) < 3]
    if known and w.random.random() < 0.4:
        return f'rg.take({x.target}, {w.random.choice(known)}, {axis}, "{w.random.choice(["clip", "wrap"])}")'
    shape = w.random.choice([(), (1,), (7,), (16,), (5, 3), (33,)])
    ids = w.given(shape, w.random.choice(["int64", "int64", "int32", "int16", "uint32"]))
    return f'rg.take({x.target}, {ids}, {axis}, "{w.random.choice(["raise", "clip", "wrap"])}")'


def _scanned(w: Writer, x: Line) -> str:
    """Prefixes of an axis, by an operator or an operation of one's own."""
    random, axis = w.random, w.random.randrange(len(x.shape))
    if x.dtype == "bool":
        return ""
    ways = f"exclusive={random.random() < 0.3}, reverse={random.random() < 0.3}"
    match random.choice(["cumsum", "cumsum", "cumprod", "max", "extreme", "recurrence"]):
        case "cumsum" | "cumprod" as name:
            return f"ops.{name}({x.target}, {axis}, {ways})"
        case "max":
            return f'rg.scan("{random.choice(["max", "min"])}", {x.target}, {axis}, {ways})'
        case "extreme":
            part = random.choice(["values", "indices"])
            return "" if x.dtype == "uint64" else f"ops.{random.choice(['cummax', 'cummin'])}({x.target}, {axis}).{part}"
    combine = "lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])"
    return f"rg.scan({combine}, ({x.target}, {x.target}), {axis}, identity=(1, 0), {ways})[1]"


def _attention(w: Writer, x: Line) -> str:
    """Rows of a matrix, or of several, that attend to keys: masked, causal, or with other scores than products."""
    if "float" not in x.dtype or len(x.shape) < 2 or x.shape[-1] < 2 or x.shape[-2] < 2:
        return ""
    keys, columns = w.random.choice([2, 5, 16, 33, 70]), w.random.choice([2, 7, 16, 24])
    lead = x.shape[:-2] if w.random.random() < 0.7 else ()
    k, v = w.given((*lead, keys, x.shape[-1]), x.dtype), w.given((*lead, keys, columns), x.dtype)
    how = w.random.choice(["", ", is_causal=True", "mask", "sigmoid"])
    if how == "sigmoid":
        turned = f"ops.transpose({k}, {len(lead)}, {len(lead) + 1})"
        return f"ops.matmul(ops.sigmoid(ops.matmul({x.target}, {turned})), {v})"
    mask = f", {w.given((x.shape[-2], keys), w.random.choice([x.dtype, 'bool']))}" if how == "mask" else how
    return f"ops.scaled_dot_product_attention({x.target}, {k}, {v}{mask})"


STEPS: tuple[tuple[Step, int], ...] = (
    (unary, 3), (_binary, 4), (_choice, 1), (_reduction, 3), (_own_reduction, 1), (_rows, 1), (_product, 3),
    (_einsum, 2), (_convolution, 4), (_composite, 2), (_view, 4), (_indexed, 2), (_cast, 1), (_degenerate, 1), (_taken, 1),
    (_scanned, 1), (_attention, 1), *torch_steps.STEPS,
)  # fmt: skip
"""Each with its weight."""
