"""Steps that call `rg.ops` as its torch namesakes are called: functions of an element, of pairs, windows and layers.

Each is the text of one line that goes on from a value, as in `steps`; "" where it does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.primitives import FUNCTIONS

if TYPE_CHECKING:
    from tests.fuzzing.recipes import Line, Writer

DOMAINS = {
    "asin": "ops.tanh({0})", "acos": "ops.tanh({0})", "atanh": "ops.mul(ops.tanh({0}), 0.5)",
    "acosh": "ops.add(ops.abs({0}), 1)", "log": "ops.add(ops.abs({0}), 0.5)", "log2": "ops.add(ops.abs({0}), 0.5)",
    "log10": "ops.add(ops.abs({0}), 0.5)", "log1p": "ops.abs({0})", "sqrt": "ops.abs({0})",
    "rsqrt": "ops.add(ops.abs({0}), 0.5)", "reciprocal": "ops.add(ops.abs({0}), 0.5)",
}  # fmt: skip
"""Of functions that are not defined for every value: where they are, and not at the very edge."""
SETTINGS = {
    "softplus": ("2", "0.5, 3.0"), "hardtanh": ("-0.5, 2.0",), "elu": ("0.5",), "celu": ("2.0",), "threshold": ("0.25, -1",),
    "hardshrink": ("1.0",), "softshrink": ("0.25",),
}  # fmt: skip
"""Arguments behind the tensor that are drawn, of the functions that have some; `threshold` has no defaults."""


def function(w: Writer, x: Line) -> str:
    """Of one element, or of two: every row of the tables that fits the dtype."""
    names = [name for name in (*FUNCTIONS, *FORMULAS) if _fits(name, x.dtype)]
    name = w.random.choice(names)
    inside = DOMAINS.get(name, "{0}").format(x.target)
    if name in FORMULAS and FORMULAS[name].operands == 2:
        other = w.given(tuple(n if w.random.random() < 0.8 else 1 for n in x.shape), x.dtype)
        return f"ops.{name}({inside}, {other})"
    given = SETTINGS.get(name, ())
    drawn = w.random.choice(given if name == "threshold" else ("", *given))
    return f"ops.{name}({inside}{', ' * bool(drawn)}{drawn})"


def _fits(name: str, dtype: str) -> bool:
    takes = FORMULAS[name].takes if name in FORMULAS else "real"
    if dtype == "bool":
        return takes in ("any", "integer", "truth")
    return takes != ("integer" if "float" in dtype else "float")


def pair(w: Writer, x: Line) -> str:
    """The losses and the joints of two values of one shape."""
    if "float" not in x.dtype:
        return ""
    y, how = w.given(x.shape, x.dtype), w.random.choice(["", ', reduction="none"', ', reduction="sum"'])
    within = "ops.add(ops.mul(ops.tanh({0}), 0.375), 0.5)".format
    weight = f", weight={w.given(x.shape[-1:], x.dtype)}" if w.random.random() < 0.3 else ""
    name = w.random.choice(["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy",
                            "binary_cross_entropy_with_logits", "soft_margin_loss", "fmax", "atan2", "lerp"])  # fmt: skip
    match name:
        case "smooth_l1_loss":
            return f"ops.{name}({x.target}, {y}{how}, beta={w.random.choice([0, 0.5, 2])})"
        case "huber_loss":
            return f"ops.{name}({x.target}, {y}{how}, delta={w.random.choice([0.5, 2])})"
        case "kl_div":
            logs = w.random.random() < 0.5
            return f"ops.{name}({x.target}, {f'ops.tanh({y})' if logs else f'ops.abs({y})'}{how}, log_target={logs})"
        case "binary_cross_entropy":
            return f"ops.{name}({within(x.target)}, {within(y)}{weight}{how})"
        case "binary_cross_entropy_with_logits":
            return f"ops.{name}({x.target}, {within(y)}{weight}{how})"
        case "lerp":
            return f"ops.add({x.target}, ops.sub({y}, {x.target}), alpha=0.25)"
        case "fmax" | "atan2":
            return f"ops.{name}({x.target}, {y})"
    return f"ops.{name}({x.target}, {y}{how})"


def classes(w: Writer, x: Line) -> str:
    """Losses of classes, and what is 1 at a class alone."""
    random = w.random
    if "float" not in x.dtype:
        return f"ops.one_hot({x.target}, {random.choice([1, 5, 9])})"
    if len(x.shape) < 2:
        return ""
    target = w.given((x.shape[0], *x.shape[2:]), random.choice(["int64", "int32"]))
    weight = f", {w.given(x.shape[1:2], x.dtype)}" if random.random() < 0.3 else ""
    how = random.choice(["", ', reduction="sum"', ', reduction="none"', f", ignore_index={random.randint(0, 3)}"])
    if random.random() < 0.5:
        return f"ops.nll_loss({x.target}, {target}{weight}{how})"
    return f"ops.cross_entropy({x.target}, {target}{weight}{how}, label_smoothing={random.choice([0.0, 0.1])})"


def layer(w: Writer, x: Line) -> str:
    """Norms over channels, and activations with a weight for each."""
    if "float" not in x.dtype or len(x.shape) < 2:
        return ""
    channels, random = x.shape[1], w.random
    groups = random.choice([g for g in (1, 2, 3, 4, max(channels, 1)) if channels % g == 0])
    both = f", {w.given((channels,), x.dtype)}, {w.given((channels,), x.dtype)}" if random.random() < 0.5 else ""
    return random.choice([
        f"ops.group_norm({x.target}, {groups}{both})", f"ops.instance_norm({x.target}{', None, None' * bool(both)}{both})",
        f"ops.local_response_norm({x.target}, {random.choice([1, 2, 3, 5])}, 0.01, 0.5, 2.0)",
        f"ops.batch_norm({x.target}, None, None{both}, training=True)",
        f"ops.prelu({x.target}, {w.given((channels,), x.dtype)})", f"ops.bias_add({x.target}, {w.given((channels,), x.dtype)})",
    ])  # fmt: skip


def window(w: Writer, x: Line) -> str:
    """Pools of all ranks and ways, transposed convolutions, patches."""
    random, rank = w.random, len(x.shape) - 2
    if rank not in (1, 2, 3):
        return ""
    if random.random() < 0.25:
        filters = random.choice([1, 3, 6])
        weight = w.given((x.shape[1], filters, *(random.randint(1, 3) for _ in range(rank))), x.dtype)
        return f"ops.conv_transpose{rank}d({x.target}, {weight}, stride={random.randint(1, 3)}, padding={random.randint(0, 1)})"
    if random.random() < 0.15 and rank == 2:
        return f"ops.unfold({x.target}, ({random.randint(1, 3)}, {random.randint(1, 3)}), 1, {random.randint(0, 2)}, {random.randint(1, 2)})"
    indices, size = random.random() < 0.3, random.choice([1, 2, 3, 5])
    if random.random() < 0.4:
        sizes = size if random.random() < 0.5 else tuple(random.choice([size, None]) for _ in range(rank))
        sizes = sizes if rank > 1 else size
        return random.choice([
            f"ops.adaptive_avg_pool{rank}d({x.target}, {sizes})", f"ops.adaptive_max_pool{rank}d({x.target}, {sizes})",
            f"ops.adaptive_max_pool{rank}d({x.target}, {sizes}, True)[{int(indices)}]",
        ])  # fmt: skip
    kernel, stride = random.randint(1, 3), random.randint(1, 3)
    how = f"{kernel}, {stride}, {random.choice([0, kernel // 2])}"
    if "float" in x.dtype and random.random() < 0.5:
        return f"ops.avg_pool{rank}d({x.target}, {how}, {random.random() < 0.3}, {random.random() < 0.5})"
    how += f", {random.choice([1, 1, 2])}, {random.random() < 0.3}"
    return f"ops.max_pool{rank}d({x.target}, {how}" + (", True)[1]" if indices else ")")


def resized(w: Writer, x: Line) -> str:
    """To another size, by torch's modes and ONNX's coordinates."""
    random, rank = w.random, len(x.shape) - 2
    if rank not in (1, 2, 3) or "float" not in x.dtype:
        return ""
    size = tuple(random.choice([1, 2, 5, 8, 13]) for _ in range(rank))
    linear = {1: "linear", 2: random.choice(["bilinear", "bicubic"]), 3: "trilinear"}[rank]
    if random.random() < 0.6:
        mode = random.choice(["nearest", "nearest-exact", "area", linear, linear])
        aligned = f", align_corners={random.random() < 0.5}" if mode == linear else ""
        return f'ops.interpolate({x.target}, {size}, mode="{mode}"{aligned})'
    mode = random.choice(["nearest", "linear", "cubic"])
    coordinates = random.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
    nearest = random.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    return f'ops.resize({x.target}, {(*x.shape[:2], *size)}, None, "{mode}", "{coordinates}", "{nearest}")'


def rearranged(w: Writer, x: Line) -> str:
    """Other places for the same elements."""
    random, rank = w.random, len(x.shape)
    axis, back = random.randrange(rank), -random.randint(1, rank)
    size, two = x.shape[axis], random.sample(range(rank), min(2, rank))
    other, end = random.randrange(rank), random.randint(min(size, 1), size)
    texts = [
        f"ops.split({x.target}, {max(1, size // 2)}, {axis})[-1]", f"ops.chunk({x.target}, {min(3, size)}, {axis})[0]",
        f"ops.stack([{x.target}, ops.neg({x.target})], {back})", f"ops.tile({x.target}, {(2,) * random.randint(1, rank)})",
        f"ops.repeat({x.target}, {tuple(random.randint(1, 2) for _ in range(rank))})", f"ops.flip({x.target}, {tuple(two)})",
        f"ops.roll({x.target}, {tuple(random.randint(-5, 5) for _ in two)}, {tuple(two)})", f"ops.roll({x.target}, 3)",
        f"ops.transpose({x.target}, {axis}, {back})", f"ops.unsqueeze({x.target}, {back})", f"ops.squeeze({x.target})",
        f"ops.flatten({x.target}, {min(axis, other)}, {max(axis, other)})",
        f"ops.slice({x.target}, {axis}, {random.randint(-3, 2)}, {end}, {random.randint(1, 3)})",
        f"ops.slice_scatter({x.target}, {w.given((*x.shape[:axis], end, *x.shape[axis + 1:]), x.dtype)}, {axis}, 0, {end})",
        f"ops.unfold_copy({x.target}, {axis}, {min(size, 3)}, {random.randint(1, 2)})",
    ]  # fmt: skip
    if rank > 1 and size:
        texts.append(f"ops.{random.choice(['tril', 'triu'])}({x.target}, {random.randint(-3, 3)})")
        part = w.given((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
        texts.append(f"ops.select_scatter({x.target}, {part}, {axis}, {random.randrange(-size, size)})")
    if rank == 2:
        texts += [f"ops.t({x.target})"] * 2
    if rank > 2:
        texts += [f"ops.pixel_shuffle({x.target}, {random.choice([2, 3])})", f"ops.pixel_unshuffle({x.target}, {random.choice([2, 3])})"]
    return random.choice(texts)


def gathered(w: Writer, x: Line) -> str:
    """Elements at places that an input holds."""
    random, axis, rank = w.random, w.random.randrange(len(x.shape)), len(x.shape)
    ids = random.choice(["int64", "int32"])
    if rank == 2 and random.random() < 0.3:
        return f"ops.embedding({w.given(random.choice([(7,), (5, 3)]), ids)}, {x.target})"
    if random.random() < 0.4:
        return f"ops.index_select({x.target}, {axis}, {w.given((random.choice([1, 9]),), ids)})"
    shape = tuple(random.choice([1, 4]) if n == axis else size for n, size in enumerate(x.shape))
    if random.random() < 0.5:
        return f"ops.take_along_dim({x.target}, {w.given(shape, 'int64')}, {axis})"
    shape = tuple(random.randint(min(size, 1), min(size, 9)) for size in x.shape)
    return f"ops.gather({x.target}, {axis}, {w.given(shape, 'int64')})"


def constant(w: Writer, x: Line) -> str:
    """Joined by what reads nothing: steps, a number, a diagonal, a grid of vectors."""
    random, last, grid = w.random, x.shape[-1], ""
    if "float" not in x.dtype:
        return f"ops.add({x.target}, ops.arange({last}))"
    if len(x.shape) > 1:
        a, b = (w.given((n,), x.dtype) for n in x.shape[-2:])
        grid = f'ops.meshgrid({a}, {b}, indexing="ij")[{random.randrange(2)}]'
    made = [f"ops.arange({last}, 0, -1)", f"ops.linspace(-1, 2, {last})", f"ops.full(({last},), 0.5)", grid or "1"]
    made.append(f"ops.eye({', '.join(map(str, x.shape[-2:]))})" if grid else "2")
    return f"ops.{random.choice(['add', 'mul', 'maximum'])}({x.target}, {random.choice(made)})"


def reduced(w: Writer, x: Line) -> str:
    """Reductions with torch's arguments, and running ones."""
    random, axis = w.random, w.random.randrange(len(x.shape))
    keep = random.random() < 0.5
    texts = [
        f"ops.any({x.target}, {axis}, {keep})", f"ops.all({x.target}, {axis}, {keep})", f"ops.{random.choice(['max', 'min'])}({x.target})",
        f"ops.{random.choice(['max', 'min'])}({x.target}, {axis}, {keep}).{random.choice(['values', 'indices'])}",
        f'ops.sum({x.target}, {axis}, {keep}, dtype="float32")',
    ]  # fmt: skip
    if "float" in x.dtype:
        texts += [f"ops.logcumsumexp({x.target}, {axis})", f"ops.std({x.target}, {axis}, {random.random() < 0.5}, {keep})"]
    return random.choice(texts)


def multiplied(w: Writer, x: Line) -> str:
    """Products by torch's names for two or three axes, of whole numbers with scales among them."""
    random, rank = w.random, len(x.shape)
    n = random.choice([1, 5, 16, 33])
    narrow = x.dtype in ("int8", "uint8")
    if narrow and rank == 2:
        weight = w.given((x.shape[1], n), random.choice(["int8", "uint8"]))
        scales = random.choice(["0.05", w.given((n,), "float32")])
        points = f"a_zero_point={random.randint(0, 5)}, b_zero_point={random.randint(0, 3)}"
        return f"ops.quantized_matmul({x.target}, {weight}, 0.5, {scales}, {points})"
    if narrow and rank == 4:
        weight = w.given((n, x.shape[1], 3, 3), "int8")
        return f"ops.quantized_conv2d({x.target}, {weight}, 0.5, 0.25, padding=1, x_zero_point={random.randint(0, 5)})"
    if rank == 2:
        return f"ops.mm({x.target}, {w.given((x.shape[1], n), x.dtype)})"
    if rank == 3:
        return f"ops.bmm({x.target}, {w.given((x.shape[0], x.shape[2], n), x.dtype)})"
    return ""


def scaled(w: Writer, x: Line) -> str:
    """To integers and back: scales for a tensor, an axis, a block; cut at the ends or round them."""
    random, axis = w.random, w.random.randrange(len(x.shape))
    if "float" not in x.dtype:
        scale = w.given((x.shape[axis],), "float32")
        return f'ops.dequantize({x.target}, {scale}, 0, {axis}, dtype="{random.choice(["float32", "float16"])}")'
    to = random.choice(["int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2"])
    if random.random() < 0.3:
        cut = random.choice(["saturate", "wrap"])
        return f'ops.cast({x.target}, "{to}", overflow="{cut}")'
    if random.random() < 0.2 and x.dtype == "float32":
        return f"ops.dynamic_quantize({x.target})[{random.randrange(3)}]"
    size = random.choice([1, 4])
    blocks = tuple(-(-n // size) if at == axis else n for at, n in enumerate(x.shape))
    scale = f"ops.add(ops.abs({w.given(blocks, 'float32')}), 0.25)"
    return f'ops.quantize({x.target}, {scale}, 0, {axis}, dtype="{to}", block_size={size})'


STEPS = (
    (function, 6), (pair, 1), (classes, 1), (layer, 2), (window, 2), (resized, 1), (rearranged, 3), (gathered, 1), (reduced, 1),
    (constant, 1),
    (multiplied, 1), (scaled, 2),
)  # fmt: skip
"""Each with its weight."""
