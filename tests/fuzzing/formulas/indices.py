"""Quasi-affine indices: strides, offsets, reversals, quotients, remainders, sums of these, and guards where they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

Extents = Mapping[str, int]


@dataclass(frozen=True)
class Drawn:
    """An index and the least and largest number that it is."""

    text: str
    low: int
    high: int

    def plus(self, offset: int) -> Drawn:
        if not offset:
            return self
        return Drawn(f"({self.text} {'+' if offset > 0 else '-'} {abs(offset)})", self.low + offset, self.high + offset)


def measured(text: str, scope: Extents) -> Drawn:
    """The index with its range, found by trying every point."""
    names = [name for name in scope if name in text]
    mesh = np.ogrid[tuple(slice(0, scope[name]) for name in names)] if names else []
    values = np.asarray(eval(text, {"__builtins__": {}}, dict(zip(names, mesh, strict=True))))
    return Drawn(text, int(values.min()), int(values.max()))


def one_axis(random: Random, axis: str, extent: int, plain: float) -> str:
    """An index of one axis, the axis itself with probability `plain`."""
    if random.random() < plain:
        return axis
    c, s, p = random.choice([2, 2, 3, 4, 5, 7, 8]), random.choice([2, 2, 3, 5]), random.randint(-3, 3)
    shifted = f"({axis} + {p})" if p > 0 else f"({axis} - {-p})" if p else axis
    return random.choice([
        f"{axis}*{s}", f"({extent - 1} - {axis})", f"{axis}//{c}", f"{axis}%{c}", f"{shifted}//{c}", f"{shifted}%{c}",
        f"({axis}*{s} + {abs(p)})%{c}", f"({axis}*{s} + {abs(p)})//{c}", f"({extent - 1} - {axis})//{c}", f"{axis}//{c}%{s}",
        f"{axis}%{c}*{s}", f"{axis}%{c * s}//{s}", f"{axis}//{c}//{s}", f"({shifted}//{c} + {abs(p)})//{s}", f"{axis}%{c * s}%{s}",
    ])  # fmt: skip


def draw(random: Random, scope: Extents, plain: float = 0.5) -> Drawn:
    """An index of up to three axes of the scope; a constant now and then, and where there is no axis."""
    names = list(scope)
    if not names or random.random() < 0.03:
        return Drawn(str(number := random.randint(0, 6)), number, number)
    chosen = random.sample(names, min(len(names), random.choices([1, 2, 3], [7, 4, 1])[0]))
    parts = [one_axis(random, name, scope[name], plain) for name in chosen]
    text = parts[0]
    for part in parts[1:]:
        text += random.choice([" + ", " + ", " - "]) + part
    if len(parts) > 1 and random.random() < 0.25:
        text = f"({text}){random.choice(['//', '%'])}{random.choice([2, 3, 4, 7, 16])}"
    return measured(f"({text})" if len(parts) > 1 else text, scope)


def window(random: Random, outer: str, inner: str, scope: Extents) -> Drawn:
    """outer * stride + inner * dilation - padding: what a convolution reads."""
    stride, dilation = random.choice([1, 1, 2, 3]), random.choice([1, 1, 1, 2, 3])
    padding = random.choice([0, 0, 1, 2])
    left = outer if stride == 1 else f"{outer}*{stride}"
    right = inner if dilation == 1 else f"{inner}*{dilation}"
    return measured(f"({left} + {right}{f' - {padding}' if padding else ''})", scope)


def fitted(random: Random, index: Drawn, extent: int) -> tuple[Drawn, str]:
    """The index for a dimension of `extent`, and the test under which it lies within ("": always)."""
    span = index.high - index.low
    if span < extent and random.random() < 0.75:
        index = index.plus(random.randint(0, extent - 1 - span) - index.low)
    elif random.random() < 0.3 and extent > 1:
        return Drawn(f"({index.text}%{extent})", 0, extent - 1), ""
    elif index.low >= extent or index.high < 0:
        index = index.plus(random.randint(-min(3, span), 0) - index.low)
    return index, guard(random, index, extent)


def guard(random: Random, index: Drawn, extent: int) -> str:
    """The test that a read lies within, written in one of several ways; sides that always hold now and then left out."""
    tests, negated = [], []
    both = random.random() < 0.3 and (index.low < 0 or index.high >= extent)
    if index.low < 0 or both:
        tests.append(random.choice([f"({index.text} >= 0)", f"({index.text} > -1)"]))
        negated.append(f"({index.text} < 0)")
    if index.high >= extent or both:
        tests.append(random.choice([f"({index.text} < {extent})", f"({index.text} <= {extent - 1})"]))
        negated.append(f"({index.text} >= {extent})")
    if tests and random.random() < 0.2:
        return f"~({' | '.join(negated)})"
    return " & ".join(tests)
