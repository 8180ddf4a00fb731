"""Random reductions with prologues and epilogues: named and user's own, of tuples, of reductions, contractions."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random

from tests.fuzzing.formulas.bounds import DIGITS
from tests.fuzzing.formulas.nodes import Const, Node, Op, Position, Reduce
from tests.fuzzing.formulas.programs import DEFAULT, Tensor
from tests.fuzzing.formulas.scalars import FLOATS, INTEGERS, Scalars, Scope

EXTENTS = (1, 2, 3, 3, 4, 5, 5, 7, 8, 11, 13, 16, 17, 31, 32, 37, 64, 67)
MOST_POINTS = 40_000
TUPLES = ("argmax", "argmin", "sum_and_max", "ends", "moments")


class Reductions(Scalars):
    """Reductions among the values of a tensor; ``names`` gives their axes names that are unique in a program."""

    def __init__(self, random: Random, tensors: list[Tensor], names: Iterator[str]) -> None:
        super().__init__(random, tensors)
        self.names = names

    def body(self, dtype: str, scope: Scope) -> Node:
        """What a tensor is at a point of its axes."""
        kinds = {"map": 5, "reduction": 5, "contraction": 4, "nested": 2, "two": 3}
        match self.random.choices(list(kinds), list(kinds.values()))[0]:
            case "map":
                return self.distinct(self.value(dtype, scope, self.random.randint(1, 4)), scope)
            case "reduction":
                made = self.reduction(dtype, scope, self.random.randint(0, 2))
            case "contraction":
                made = self.contraction(dtype, scope)
            case "nested":
                made = self.nested(dtype, scope)
            case _:
                made = self.two(dtype, scope)
        return self.finished(dtype, scope, self.distinct(made, scope))

    def distinct(self, x: Node, scope: Scope) -> Node:
        """Joined, more often than not, with a number of its own for every point."""
        if self.random.random() < 0.3:
            return x
        name = self.random.choice(["eq", "ne"] if x.dtype == "bool" else ["add", "sub", "add", "sub", "mul"])
        return Op(x.dtype, name, (x, self.load_all(x.dtype, scope)))

    def nested(self, dtype: str, scope: Scope) -> Node:
        """A reduction of values of which one is a reduction."""
        axes = self._axes(scope, 1)
        around = {**scope, **dict(axes)}
        inner = self.reduction(dtype, around, 1)
        joined = Op(inner.dtype, self.random.choice(["add", "mul", "max"]), (inner, self.value(inner.dtype, around, 1)))
        return Reduce(DEFAULT.get(inner.dtype, inner.dtype), self.random.choice(["sum", "max", "min"]), (joined,), axes)

    def two(self, dtype: str, scope: Scope) -> Node:
        """Two reductions beside each other, over axes of their own."""
        parts = [self.random.choice([self.contraction, self._plain])(dtype, scope) for _ in range(2)]
        if parts[0].dtype != parts[1].dtype:  # of a bool, any number's
            return parts[0]
        return Op(parts[0].dtype, self.random.choice(["add", "sub", "mul", "max"]), tuple(parts))

    def _plain(self, dtype: str, scope: Scope) -> Node:
        return self.reduction(dtype, scope, 1)

    def _axes(self, scope: Scope, most: int = 3) -> tuple[tuple[str, int], ...]:
        """New axes to reduce over, as many points as are evaluated in a moment."""
        left, made = MOST_POINTS // max(1, prod(scope.values())), []
        for _ in range(min(most, self.random.choices([1, 2, 3], [6, 3, 1])[0])):
            extent = self.random.choice([one for one in EXTENTS if one <= left] or [1])
            made.append((next(self.names), extent))
            left //= extent
        return tuple(made)

    def finished(self, dtype: str, scope: Scope, x: Node) -> Node:
        """An epilogue, and the dtype that is wanted."""
        if self.random.random() < 0.5:
            other = self.value(x.dtype, scope, 1) if self.random.random() < 0.6 else None
            x = self._with_literal(x.dtype, x) if other is None else Op(x.dtype, self.random.choice(["add", "sub", "mul", "max"]), (x, other))
        if x.dtype == dtype:
            return x
        if x.dtype in DIGITS and dtype in INTEGERS:
            x = Op(x.dtype, "min", (Op(x.dtype, "max", (x, Const(x.dtype, 0.0 if dtype.startswith("u") else -100.0, True))), Const(x.dtype, 120.0, True)))
        return Op(dtype, "cast", (x,))

    def reduction(self, dtype: str, scope: Scope, depth: int) -> Node:
        """Of a value of `dtype` (of any number's, where that is bool); its own dtype may be another."""
        dtype = self.random.choice((*FLOATS, *INTEGERS)) if dtype == "bool" else dtype
        if self.random.random() < 0.3:
            return self._tuple(dtype, scope, depth)
        axes = self._axes(scope)
        body = self.value(dtype, {**scope, **dict(axes)}, depth)
        folds = ["sum", "sum", "sum", "max", "min", "prod", "farthest", *(["circle"] if dtype in INTEGERS else [])]
        fold = self.random.choice(folds)
        if fold == "prod" and dtype in DIGITS:
            body = Op(dtype, "add", (Op(dtype, "tanh", (body,)), Const(dtype, 1.5, True)))
        wanted = self.random.choice(FLOATS) if dtype in DIGITS and fold == "sum" and self.random.random() < 0.1 else ""
        return Reduce(wanted or DEFAULT.get(dtype, dtype), fold, (body,), axes, 0, self._accumulator(dtype, fold))

    def _accumulator(self, dtype: str, fold: str) -> str:
        if fold not in ("sum", "prod") or self.random.random() < 0.85:
            return ""
        return {"float16": "float64", "bfloat16": "float64", "float32": "float64", "int8": "int64", "int32": "int64"}.get(dtype, "")

    def _tuple(self, dtype: str, scope: Scope, depth: int) -> Node:
        """One component of a reduction of several values, or both in one formula."""
        fold = self.random.choice((*TUPLES, "welford", "softmax") if dtype in DIGITS else TUPLES)
        axes = self._axes(scope, 2)
        x = self.value(dtype, {**scope, **dict(axes)}, depth)
        one, none = Const(dtype, 1, False), Const(dtype, 0, False)
        if fold.startswith("arg"):
            places = " + ".join(f"{name}*{prod(n for _, n in axes[at + 1 :])}" for at, (name, _) in enumerate(axes))
            bodies: tuple[Node, ...] = (x, Position("int32", places))
        else:
            square = Op(dtype, "mul", (x, x))
            bodies = {"moments": (x, square), "welford": (one, x, none), "softmax": (x, one)}.get(fold, (x, x))
        parts = [Reduce(DEFAULT.get(b.dtype, b.dtype), fold, bodies, axes, n) for n, b in enumerate(bodies)]
        if fold in ("sum_and_max", "ends", "moments") and self.random.random() < 0.3:
            return Op(parts[0].dtype, "add", (parts[0], parts[1]))
        return parts[self.random.randrange(len(parts))]

    def contraction(self, dtype: str, scope: Scope) -> Node:
        """A sum of products of two reads, or three, mostly of plain axes."""
        dtype = self.random.choice((*FLOATS, *INTEGERS)) if dtype == "bool" else dtype
        axes = self._axes(scope, 2)
        inner = {**scope, **dict(axes)}
        factors = [self.load(dtype, self._some(inner, scope), plain=0.8) for _ in range(self.random.choice([2, 2, 2, 3]))]
        if self.random.random() < 0.3:
            factors[0] = self._unary(dtype, factors[0])
        body = factors[0]
        for factor in factors[1:]:
            body = Op(dtype, "mul", (body, factor))
        return Reduce(DEFAULT.get(dtype, dtype), "sum", (body,), axes, 0, self._accumulator(dtype, "sum"))

    def _some(self, inner: Scope, outer: Scope) -> Scope:
        """The reduced axes, and some of the others."""
        return {name: extent for name, extent in inner.items() if name not in outer or self.random.random() < 0.6}
