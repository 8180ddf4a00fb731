"""The space engine: digits are crossed one after another, and each rule is applied as soon as its digits are there.

A tile is a number for each digit of its axes; a `TileSpace` declares which digits there are.  Columns of all points lie
side by side in one array, so that a rule is a mask over columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, TypeVar

import numpy as np

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL
from rollergen.tile.rules import AlignmentRules, padding_waste

Column = Any
"""An int array with one entry for each point."""


@dataclass(frozen=True, slots=True)
class Digit:
    """Extents of one loop of an axis, of a `kind` of loop (see `rprogram`).

    ``choices``: the extents; where there is an ``of``, a function of the plain extents of the digits that it names,
    which were crossed before.
    """

    name: str
    axis: str
    kind: str
    choices: Sequence[int] | Callable[..., Iterable[int]]
    of: tuple[str, ...] = ()


def joint(
    first: tuple[str, str, str], second: tuple[str, str, str], pairs: Iterable[tuple[int, int]]
) -> tuple[Digit, Digit]:
    """Two digits that have only these pairs of extents; each is given by name, axis and kind."""
    found: dict[int, list[int]] = {}
    for one, other in sorted(set(pairs)):
        found.setdefault(one, []).append(other)
    return Digit(*first, tuple(found)), Digit(*second, found.__getitem__, of=(first[0],))


@dataclass(frozen=True, slots=True)
class Rule:
    """A test that points of a space must pass.

    ``needs``: whether a digit must be there before the rule can be applied; a rule that needs none of a space's digits
    does not concern it. ``switch``: the field of `AlignmentRules` that turns it off; a limit has none. ``admits``: a
    mask over the points.
    """

    name: str
    needs: Callable[[TileSpace, Digit], bool]
    admits: Callable[[Points, Facts], Any]
    switch: str = ""

    def holds(self, rules: AlignmentRules) -> bool:
        return not self.switch or bool(getattr(rules, self.switch))


def limit(name: str, digits: str | tuple[str, ...], allowed: Callable[..., Any]) -> Rule:
    """A rule without a switch. ``allowed`` is a mask, given the columns of the named digits."""
    names = tuple(digits.split()) if isinstance(digits, str) else digits
    return Rule(name, lambda _, digit: digit.name in names, lambda points, _: allowed(*[points[one] for one in names]))


@dataclass(frozen=True, slots=True)
class TileSpace:
    """All tiles of one loop structure of a tensor op.

    ``digits`` are crossed in this order.  ``limits``: what no user can switch off.  ``row_axis``: along which a block
    reads and writes rows of neighbours (None: none that the rules judge).  ``reach``: how much more padded work than
    the least padded tile the shape rule admits, in parts of the work itself (None: it never asks for less padding than
    the user does).
    """

    op: TensorOp
    device: Device
    rules: AlignmentRules
    digits: tuple[Digit, ...]
    limits: tuple[Rule, ...] = ()
    row_axis: str | None = None
    reach: float | None = None


class Points:
    """Columns of digits, equally long."""

    def __init__(self, digits: tuple[Digit, ...], columns: np.ndarray) -> None:
        self.digits, self.columns = digits, columns
        self._row = {digit.name: row for row, digit in enumerate(digits)}

    def __len__(self) -> int:
        return self.columns.shape[1]

    def __getitem__(self, name: str) -> Column:
        return self.columns[self._row[name]]

    def product(self, wanted: Callable[[Digit], bool]) -> Column:
        """The product of the wanted digits; 1 where there is none."""
        found: Column = 1
        for digit, column in zip(self.digits, self.columns, strict=True):
            if wanted(digit):
                found = found * column
        return found

    def crossed(self, digit: Digit) -> Points:
        """Every point with every choice of one more digit: the first digit varies slowest."""
        if digit.of:
            own = list(zip(*[self[name].tolist() for name in digit.of], strict=True))
            choices = {key: list(digit.choices(*key)) for key in set(own)}  # type: ignore[operator]
            owners = np.repeat(np.arange(len(self)), [len(choices[key]) for key in own])
            values = np.array([extent for key in own for extent in choices[key]], dtype=np.int64)
        else:
            extents = np.array(digit.choices, dtype=np.int64)
            owners = np.repeat(np.arange(len(self)), len(extents))
            values = np.tile(extents, len(self))
        return Points((*self.digits, digit), np.concatenate([self.columns[:, owners], values[None]]))

    def united(self, others: Points) -> Points:
        """These points, then those of the others, few and distinct, that are not among them; both have the same
        digits."""
        among = [(self.columns == other[:, None]).all(axis=0).any() for other in others.columns.T]
        new = others.columns[:, np.logical_not(np.array(among, dtype=bool))]
        return Points(self.digits, np.concatenate([self.columns, new], axis=1))

    def where(self, mask: np.ndarray | slice) -> Points:
        return Points(self.digits, self.columns[:, mask])

    def with_column(self, name: str, size: int) -> Points:
        """The points with this size instead of their own."""
        columns = self.columns.copy()
        columns[self._row[name]] = size
        return Points(self.digits, columns)

    def beside(self, **columns: np.ndarray) -> Points:
        """The points with columns of more sizes, which are no loops of an axis."""
        digits = tuple(Digit(name, "", "", ()) for name in columns)
        return Points((*self.digits, *digits), np.concatenate([self.columns, np.stack([*columns.values()])]))

    def sizes(self) -> dict[str, Any]:
        """Columns by name, plain numbers where all points agree: a digit of 1 then has no loop.

        At least one column of the loops is left, so that a batch remains one.
        """
        alike = {name for name, column in zip(self._row, self.columns, strict=True) if (column == column[0]).all()}
        loops = [digit.name for digit in self.digits if digit.kind not in ("", LANE)]
        if alike.issuperset(loops):
            alike.remove(max(loops, key=lambda name: int(self[name][0])))
        return {name: int(self[name][0]) if name in alike else self[name] for name in self._row}

    def at(self, number: int) -> dict[str, int]:
        """One point's sizes by name."""
        return dict(zip(self._row, self.columns[:, number].tolist(), strict=True))

    def alike(self, *columns: np.ndarray) -> list[Points]:
        """Groups of points that agree in all of these columns and have no negative entry there."""
        code = np.zeros(len(self), dtype=np.int64)
        for column in columns:
            code = code * (int(column.max(initial=0)) + 1) + column
        found = [code == number for number in np.unique(code).tolist()]
        return [self] if len(found) == 1 else [self.where(own) for own in found]


class Facts:
    """Quantities of some points that the rules of a space read."""

    def __init__(self, space: TileSpace, points: Points) -> None:
        self.space, self._points = space, points

    @property
    def threads(self) -> Column:
        """Threads of a block."""
        return self._points.product(lambda digit: digit.kind in PARALLEL)

    def tile(self, axis: str) -> Column:
        """Elements along the axis that a block covers."""
        return self._points.product(lambda digit: digit.axis == axis and digit.kind != GRID)

    @property
    def waste(self) -> Column:
        """The largest padded share of an axis.  Serial loops stop at its end and pad nothing."""
        shares = self._shares()
        return np.maximum.reduce(shares) if shares else np.zeros(len(self._points))

    @property
    def padded_work(self) -> Column:
        """Points that are computed with the padding, over those that are wanted."""
        return np.multiply.reduce([np.ones(len(self._points)), *[1 + share for share in self._shares()]])

    def _shares(self) -> list[Column]:
        """The padded share of each axis that has one."""
        padded = {digit.axis for digit in self._points.digits if pads(digit)}
        axes = [axis for axis in self.space.op.axes if axis.name in padded]
        tile = lambda axis: self._points.product(lambda digit: digit.axis == axis.name and pads(digit))
        return [padding_waste(axis.extent, tile(axis)) for axis in axes]


def pads(digit: Digit) -> bool:
    """Whether the digit's loop runs on beyond the end of its axis."""
    return bool(digit.axis) and digit.kind not in (GRID, SERIAL)


Plan = TypeVar("Plan")


def plans(make: Callable[..., Plan], points: Points, **others: Any) -> list[Plan]:
    """A plan of each point, whose sizes are named as the digits; ``others``: what all of them have."""
    names = [digit.name for digit in points.digits]
    return [make(**dict(zip(names, sizes, strict=True)), **others) for sizes in points.columns.T.tolist()]


@dataclass
class Tally:
    """Counts of what the rules did.

    ``considered``: tiles. ``rejected``: tiles by the first rule that forbids them (a part of a tile counts once).
    ``judged``: how many each rule has seen.
    """

    considered: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    judged: dict[str, int] = field(default_factory=dict)

    def reject(self, constraint: str, count: int = 1) -> None:
        if count:
            self.rejected[constraint] = self.rejected.get(constraint, 0) + count


def tiles(space: TileSpace, alignment: Sequence[Rule], tally: Tally) -> Points:
    """The points that all limits and the alignment rules that are on admit, in the order of the digits."""
    due = _due(space, [rule for rule in (*space.limits, *alignment) if rule.holds(space.rules)])
    points = Points((), np.empty((0, 1), dtype=np.int64))
    for digit, rules in zip(space.digits, due, strict=True):
        points = points.crossed(digit)
        for rule in rules:
            points = _admitted(space, rule, points, tally)
    tally.considered += len(points)
    return points


def filtered(space: TileSpace, rules: Sequence[Rule], points: Points, tally: Tally) -> Points:
    """The points of the space that all of these rules admit."""
    for rule in rules:
        if rule.holds(space.rules) and any(rule.needs(space, digit) for digit in space.digits):
            points = _admitted(space, rule, points, tally)
    return points


def _due(space: TileSpace, rules: Sequence[Rule]) -> list[list[Rule]]:
    """For each digit the rules that need it and no later one."""
    due: list[list[Rule]] = [[] for _ in space.digits]
    for rule in rules:
        needed = [number for number, digit in enumerate(space.digits) if rule.needs(space, digit)]
        if needed:
            due[needed[-1]].append(rule)
    return due


def _admitted(space: TileSpace, rule: Rule, points: Points, tally: Tally) -> Points:
    tally.judged[rule.name] = tally.judged.get(rule.name, 0) + len(points)
    mask = np.broadcast_to(rule.admits(points, Facts(space, points)), (len(points),))
    left = points if mask.all() else points.where(mask)
    lost = len(points) - len(left)
    tally.considered += lost
    tally.reject(rule.name, lost)
    return left
