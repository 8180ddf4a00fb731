"""Random expressions as short programs: lines of Python in rollergen's own language, each of which can be left out.

A recipe is its own reproducer: `Recipe.script` is what a person would run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import rollergen as rg
from rollergen.errors import RollergenError
from tests.fuzzing.steps import FLOATS, INTEGERS, STEPS, unary

MOST_ELEMENTS = 40_000
"""Of any value of an expression: what evaluates in a moment."""

SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 23, 29, 31, 32, 33, 48, 61, 64, 67, 96, 113, 127, 128, 129, 251, 256, 257,
         512, 1021, 1024, 4099, 20_011)  # fmt: skip
"""Primes, powers of two and their neighbours among others."""


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
    """Lines in order; the last one is the expression.  ``also``: the target of another line that is an output, or ""."""

    lines: tuple[Line, ...]
    also: str = ""

    @property
    def text(self) -> str:
        return "\n".join(f"{line.target} = {line.text}" for line in self.lines)

    @property
    def targets(self) -> tuple[str, ...]:
        """Of the outputs, in order."""
        return tuple(filter(None, (self.also, self.lines[-1].target)))

    def outputs(self) -> tuple[Any, ...]:
        """The tensors; whatever the language raises for lines that do not go together."""
        names: dict[str, Any] = {"rg": rg, "T": rg.tensor, "ops": rg.ops}
        exec(self.text, names)
        return tuple(names[target] for target in self.targets)

    def script(self, check: str) -> str:
        """A program that shows what becomes of the expression; ``check``: lines that use ``outputs``."""
        head = "import rollergen as rg\n\nT, ops = rg.tensor, rg.ops\n"
        return f"{head}{self.text}\noutputs = [{', '.join(self.targets)}]\n{check}\n"


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
        packed = dtype in ("int8", "uint8") and self.random.random() < 0.3
        stored = dtype.replace("8", "4") if packed else dtype
        self._add(name, f'T("{name}", {shape}, "{stored}"{constant})')
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

    def shape(self, least: int = 1, most: int = 5) -> tuple[int, ...]:
        ranks, weights = range(least, most + 1), (2, 3, 2, 4, 1)
        rank = self.random.choices(ranks, weights[least - 1 : most])[0]
        largest = {1: 20_011, 2: 257, 3: 67, 4: 31, 5: 11}[rank]
        sizes = [size for size in SIZES if size <= largest]
        while True:
            shape = tuple(self._size(sizes, largest) for _ in range(rank))
            if prod(shape) <= MOST_ELEMENTS // 2:
                return shape

    def _size(self, sizes: list[int], largest: int) -> int:
        return self.random.choice(sizes) if self.random.random() < 0.75 else self.random.randint(1, largest)

    def pick(self) -> Line:
        """A value to go on with: mostly the latest."""
        return self.lines[-1] if self.random.random() < 0.75 else self.random.choice(self.lines)


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
        text = (step if x.shape else unary)(w, x)
        taken = bool(text) and w.value(text)
        if not taken:
            del w.lines[known:]
        made += taken
    others = [line.target for line in w.lines[:-1] if not line.given]
    also = w.random.choice(others) if others and w.random.random() < 0.15 else ""
    if not also and w.lines[-1].shape and w.random.random() < 0.1:
        _put(w, w.lines[-1])
    return used(Recipe(tuple(w.lines), also))


def _put(w: Writer, x: Line) -> None:
    """The last line put into an argument: at a position of the call, in a ring, or by ids that are all different."""
    axis, mode = w.random.randrange(len(x.shape)), w.random.choice(["raise", "raise", "clip", "wrap"])
    own, known = x.shape[axis], len(w.lines)
    longer = own + w.random.choice([0, 1, 5, 16])
    target = w.given(tuple(longer if n == axis else extent for n, extent in enumerate(x.shape)), x.dtype)
    if mode != "clip" and w.random.random() < 0.4:
        at = w.given((own,), w.random.choice(["int64", "int32"]))
    else:
        beyond = 0 if mode == "raise" else longer
        at = f'rg.scalar("pos", "{w.random.choice(["int64", "int32"])}", {-beyond}, {longer - own + beyond})'
    if not w.value(f'rg.put({target}, {x.target}, {at}, {axis}, "{mode}")'):
        del w.lines[known:]  # a target that is packed, or constant


def used(recipe: Recipe) -> Recipe:
    """Without the lines that the outputs do not need."""
    kept, needed = [], set(recipe.targets)
    for line in reversed(recipe.lines):
        if line.target in needed:
            kept.append(line)
            needed |= {other.target for other in recipe.lines if _mentions(line.text, other.target)}
    return Recipe(tuple(reversed(kept)), recipe.also)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
