"""Random expressions as short programs: lines of Python in rollergen's own language, each of which can be left out.

A recipe is its own reproducer: `Recipe.script` is what a person would run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import rollergen as rg
from rollergen.errors import RollergenError

MOST_ELEMENTS = 40_000
"""Of any value of an expression: what evaluates in a moment."""

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int8")


@dataclass(frozen=True)
class Line:
    """``target = text``; ``shape`` and ``dtype`` of what it makes."""

    target: str
    text: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def given(self) -> bool:
        """Whether it is an input."""
        return self.text.startswith("T(")


@dataclass(frozen=True)
class Recipe:
    """Lines in order; the last one is the expression."""

    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        return "\n".join(f"{line.target} = {line.text}" for line in self.lines)

    def expression(self) -> Any:
        """The tensor; whatever the language raises for lines that do not go together."""
        names: dict[str, Any] = {"rg": rg, "T": rg.tensor, "ops": rg.ops}
        exec(self.text, names)
        return names[self.lines[-1].target]

    def script(self, check: str) -> str:
        """A program that shows what becomes of the expression; ``check``: lines that use ``expression``."""
        head = "import rollergen as rg\n\nT, ops = rg.tensor, rg.ops\n"
        return f"{head}{self.text}\nexpression = {self.lines[-1].target}\n{check}\n"


class Writer:
    """Draws lines; what the language refuses is drawn again."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[Line] = []
        self._names: dict[str, Any] = {"rg": rg, "T": rg.tensor, "ops": rg.ops}
        self._count = 0

    def given(self, shape: tuple[int, ...], dtype: str) -> str:
        """A new input."""
        name = f"x{self._count}"
        constant = ", constant=True" if self.random.random() < 0.1 else ""
        self._add(name, f'T("{name}", {shape}, "{dtype}"{constant})')
        return name

    def value(self, text: str) -> bool:
        """Whether the language takes the line, and what it makes is neither empty nor large."""
        try:
            made = eval(text, self._names)
        except RollergenError:
            return False
        if prod(made.shape) > MOST_ELEMENTS:
            return False
        self._add(f"v{self._count}", text, made)
        return True

    def _add(self, name: str, text: str, made: Any = None) -> None:
        made = eval(text, self._names) if made is None else made
        self._names[name] = made
        self._count += 1
        self.lines.append(Line(name, text, made.shape, made.dtype))

    def shape(self, least: int = 1, most: int = 4) -> tuple[int, ...]:
        rank = self.random.randint(least, most)
        sizes = {1: 300, 2: 70, 3: 25, 4: 14}
        return tuple(self.random.choice((1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 64, 127, 257, 300, self.random.randint(1, 300)))
                     % sizes[rank] + 1 for _ in range(rank))  # fmt: skip

    def pick(self) -> Line:
        """A value to go on with: mostly the latest."""
        return self.lines[-1] if self.random.random() < 0.75 else self.random.choice(self.lines)


Step = Callable[[Writer, Line], str]


def _unary(w: Writer, x: Line) -> str:
    names = ["relu", "neg", "abs"]
    if "float" in x.dtype:
        names += ["tanh", "sigmoid", "silu", "gelu", "floor", "leaky_relu", "erf", "exp", "round"]
    return f"ops.{w.random.choice(names)}({x.target})"


def _binary(w: Writer, x: Line) -> str:
    name = w.random.choice(["add", "sub", "mul", "maximum", "minimum"])
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
    compare = w.random.choice(["less", "greater_equal", "equal", "not_equal"])
    return f"ops.where(ops.{compare}({x.target}, {y}), {x.target}, {w.random.choice([y, '1', '-2'])})"


def _reduction(w: Writer, x: Line) -> str:
    axes = w.random.sample(range(len(x.shape)), w.random.randint(1, len(x.shape)))
    names = ["sum", "max", "min", "argmax", "argmin"] + ["mean", "logsumexp", "var"] * ("float" in x.dtype)
    return f"ops.{w.random.choice(names)}({x.target}, {tuple(axes)}, keepdims={w.random.random() < 0.3})"


def _rows(w: Writer, x: Line) -> str:
    axis = w.random.randrange(len(x.shape))
    name = w.random.choice(["softmax", "log_softmax", "layer_norm", "rms_norm"])
    return f"ops.{name}({x.target}, {x.shape[-1:] if name.endswith('norm') else axis})"


def _product(w: Writer, x: Line) -> str:
    if len(x.shape) < 2:
        return ""
    n = w.random.choice([1, 3, 8, 17, 33, 64])
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
    if len(x.shape) != 4 or x.dtype == "bool":
        return ""
    kernel = w.random.choice([(1, 1), (3, 3), (2, 3), (3, 1)])
    how = f"stride={w.random.randint(1, 3)}, padding={w.random.randint(0, 2)}"
    kind = w.random.choice(["conv2d", "conv2d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d"])
    if kind.endswith("pool2d"):
        return f"ops.{kind}({x.target}, {kernel}, stride={w.random.randint(1, 3)}, padding={min(kernel) // 2})"
    channels = x.shape[1]
    filters = w.random.choice([1, 4, 7, 16])
    weights = {"conv2d": (filters, channels), "depthwise_conv2d": (channels, 1), "conv_transpose2d": (channels, filters)}
    return f"ops.{kind}({x.target}, {w.given((*weights[kind], *kernel), x.dtype)}, {how})"


def _view(w: Writer, x: Line) -> str:
    rank, random = len(x.shape), w.random
    axis = random.randrange(rank)
    match random.choice(["transpose", "slice", "pad", "reshape", "concat", "expand", "upsample"]):
        case "transpose":
            return f"ops.transpose({x.target}, {tuple(random.sample(range(rank), rank))})"
        case "slice":
            start, step = random.randint(0, 2), random.choice([1, 2, 3, -1, -2])
            part = f"slice({start}, None, {step})" if step > 0 else f"slice(None, None, {step})"
            return f"ops.slice({x.target}, ({'slice(None), ' * axis}{part},))"
        case "pad":
            widths = tuple((random.randint(0, 3), random.randint(0, 3)) for _ in x.shape)
            return f'ops.pad({x.target}, {widths}, "{random.choice(["constant", "edge", "reflect", "wrap"])}")'
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
            return f"ops.upsample_nearest({x.target}, {random.randint(2, 3)})"


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
    to = w.random.choice([*set(FLOATS), "int32"])
    return f'ops.cast({x.target}, "{to}")'


STEPS: tuple[tuple[Step, int], ...] = (
    (_unary, 3), (_binary, 4), (_choice, 1), (_reduction, 3), (_rows, 1), (_product, 3), (_einsum, 2),
    (_convolution, 3), (_view, 4), (_indexed, 2), (_cast, 1),
)  # fmt: skip


def draw(seed: int) -> Recipe:
    """The recipe of a seed."""
    w = Writer(seed)
    dtype = w.random.choice(FLOATS if w.random.random() < 0.8 else INTEGERS)
    w.given(w.shape(), dtype)
    wanted = w.random.randint(1, 6)
    steps, weights = zip(*STEPS, strict=True)
    tries = made = 0
    while (made < wanted and tries < 50) or not made:
        tries += 1
        known = len(w.lines)
        step, x = w.random.choices(steps, weights)[0], w.pick()
        text = (step if x.shape else _unary)(w, x)
        taken = bool(text) and w.value(text)
        if not taken:
            del w.lines[known:]
        made += taken
    return used(Recipe(tuple(w.lines)))


def used(recipe: Recipe) -> Recipe:
    """Without the lines that the last one does not need."""
    kept, needed = [], {recipe.lines[-1].target}
    for line in reversed(recipe.lines):
        if line.target in needed:
            kept.append(line)
            needed |= {other.target for other in recipe.lines if _mentions(line.text, other.target)}
    return Recipe(tuple(reversed(kept)))


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
