"""Winograd's minimal filtering: convolutions of 3 x 3 taps as batches of matrix products between three transforms.

A tile of m x m outputs takes (m + 2)^2 products instead of 9 m^2: 2.25 times fewer for m = 2, 4 times fewer for m = 4
(Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016; the matrices are theirs).  Along one
axis, with m + 2 pixels d, taps g and outputs y: ``y = A ((G g) * (B d))``; in two dimensions along one after the other.

Outputs are sums in which larger products cancel: `growth` says how much larger their errors are for that.  Pixels that
an output does not depend on take part too: where one is infinite or NaN, so are the outputs of its tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import isfinite

from rollergen.expr.canonical import canonical_op
from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_axis, fresh_buffer
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Value,
    Within,
    axes_of,
    loads,
    named_combiner,
    substitute_axes,
    transform,
)
from rollergen.hal.dataclass import dataclass

TAPS = 3
_DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Term:
    """A term of each line of a matrix: the line's factor times element ``first + step * ((line + shift) // divisor)``
    of what is transformed."""

    factors: tuple[float, ...]
    first: int
    step: int = 0
    shift: int = 0
    divisor: int = 1

    def place(self, line: int) -> int:
        return self.first + self.step * ((line + self.shift) // self.divisor)

    def index(self, line: Index) -> Index:
        place = line + self.shift
        return (place // self.divisor if self.divisor > 1 else place) * self.step + self.first


Matrix = tuple[Term, ...]


def _columns(*columns: Sequence[float]) -> Matrix:
    return tuple(Term(tuple(column), number) for number, column in enumerate(columns))


IMAGE: dict[int, Matrix] = {
    2: (Term((1, 1, 1, 1), 0, 1, 3, 4), Term((-1, 1, -1, -1), 2, 1, 0, 3)),
    4: (
        Term((4, -4, 4, -2, 2, 4), 0, 1, 4, 5), Term((-5, -4, -4, -1, -1, -5), 2, 1, 0, 5),
        Term((0, 1, -1, 2, -2, 0), 3), Term((1, 1, 1, 1, 1, 1), 4, 1, 0, 5),
    ),
}  # fmt: skip
"""B by m: m + 2 lines of m + 2 pixels.  (For m = 2 its third line has the other sign, which makes A's lines alike.)"""

WEIGHT: dict[int, Matrix] = {
    2: _columns((1, 1 / 2, 1 / 2, 0), (0, 1 / 2, -1 / 2, 0), (0, 1 / 2, 1 / 2, 1)),
    4: _columns(
        (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24, 0), (0, -1 / 6, 1 / 6, 1 / 12, -1 / 12, 0),
        (0, -1 / 6, -1 / 6, 1 / 6, 1 / 6, 1),
    ),
}  # fmt: skip
"""G by m: m + 2 lines of 3 taps."""

OUTPUT: dict[int, Matrix] = {
    2: (Term((1, 1), 0, 1), Term((1, 1), 1, 1), Term((-1, -1), 2, 1)),
    4: (
        Term((1, 0, 0, 1), 0, 5, 0, 3), Term((1, 1, 1, 1), 1), Term((1, -1, 1, -1), 2), Term((1, 2, 4, 8), 3),
        Term((1, -2, 4, -8), 4),
    ),
}  # fmt: skip
"""A by m: m lines of m + 2 products."""


@lru_cache(maxsize=4)
def growth(m: int) -> float:
    """How much larger the mean square of a tile's errors is, beside its outputs', than of a product beside itself.

    For pixels and taps that are independent and alike: a product's mean square is that of its lines of B and of G, an
    output's is that of the products that A adds up to it, where a direct sum's is 3, along either axis.  The largest of
    a tile's outputs; 2.8 for m = 2, 987 for m = 4.
    """
    squares = lambda matrix, line: sum(term.factors[line] ** 2 for term in matrix)
    product = [squares(IMAGE[m], line) * squares(WEIGHT[m], line) for line in range(m + TAPS - 1)]
    along = lambda line: sum(term.factors[line] ** 2 * product[term.place(line)] for term in OUTPUT[m])
    return max((along(line) / TAPS) ** 2 for line in range(m))


@dataclass(frozen=True, slots=True)
class Filtered:
    """A convolution as four tensor ops, in order; the first is of constants alone."""

    weight: TensorOp
    image: TensorOp
    products: TensorOp
    output: TensorOp


@dataclass(frozen=True, slots=True)
class _Convolution:
    """``image``, ``weight``: the factors; ``slides``: (axis, tap) of both directions."""

    image: Load
    weight: Value
    slides: tuple[tuple[str, str], ...]

    @property
    def taps(self) -> set[str]:
        return {tap for _, tap in self.slides}


def filtered(op: TensorOp, m: int) -> Filtered | None:
    """`op`, a convolution with constant weights of 3 x 3 taps and stride 1 in float32, by tiles of m x m outputs; None
    where it is none.

    What is stored between the stages has its channels side by side where the image has, else its tiles.
    """
    found = _convolution(op)
    if found is None:
        return None
    neighbours = {name for index in found.image.indices[-1:] for name in index.axes()}
    return _Stages(op, m, found, bool(neighbours & {axis.name for axis in op.of_role("reduce")} - found.taps)).made()


def can_be_filtered(op: TensorOp) -> bool:
    """Whether `op` is a convolution that `filtered` takes."""
    return _convolution(op) is not None


def _convolution(op: TensorOp) -> _Convolution | None:
    if len(op.reductions) != 1 or op.of_role("row", "inner") or op.takes() or op.scans or op.where:
        return None
    (reduction,) = op.reductions
    body = reduction.bodies[0]
    bare = reduction.combiner.name == "sum" and len(reduction.bodies) == 1 and body.dtype == _DTYPE
    if not bare or not isinstance(body, Binary) or body.op != "mul":
        return None
    for image, weight in ((body.a, body.b), (body.b, body.a)):
        constant = all(load.buffer.constant for load in loads(weight)) and bool(loads(weight))
        if isinstance(image, Load) and not image.buffer.constant and isfinite(image.fill) and constant:
            slides = tuple(_slides(op, image, weight))
            rest = {axis.name for axis in op.of_role("reduce")} - {tap for _, tap in slides}
            both = image.axes() & axes_of(weight)
            if len(slides) == 2 and len({axis for axis, _ in slides}) == 2 and rest and rest <= both:
                return _Convolution(image, weight, slides)
    return None


def _slides(op: TensorOp, image: Load, weight: Value) -> list[tuple[str, str]]:
    """(axis, tap) where the image is read at the axis plus one of three taps, and the weight at the tap alone."""
    of_weight = axes_of(weight)
    axes = [axis.name for axis in op.of_role("spatial") if axis.name in image.axes() - of_weight]
    taps = [axis.name for axis in op.of_role("reduce") if axis.extent == TAPS and axis.name in of_weight]
    indices = [*image.indices, *(bound.index for bound in image.guard)]

    def slides(axis: str, tap: str) -> bool:
        apart = {axis: Index.axis(axis) - Index.axis(tap)}
        moving = [index for index in indices if axis in index.axes() or tap in index.axes()]
        return bool(moving) and all(tap not in index.substitute(apart).axes() for index in moving)

    pairs = [(axis, tap) for axis in axes for tap in taps if slides(axis, tap)]
    return [] if any({*one} & {*other} for one, other in combinations(pairs, 2)) else pairs


class _Stages:
    """The tensor ops of one convolution; lines of transforms and tiles have axes of their own."""

    def __init__(self, op: TensorOp, m: int, found: _Convolution, channels_last: bool) -> None:
        self._op, self._m, self._found = op, m, found
        self._lines = [fresh_axis(op, f"{axis}_line") for axis, _ in found.slides]
        self._tiles = [fresh_axis(op, f"{axis}_tile") for axis, _ in found.slides]
        tile = dict(zip((axis for axis, _ in found.slides), self._tiles, strict=True))
        of_image, of_weight = found.image.axes(), axes_of(found.weight)
        spatial = op.of_role("spatial")
        tiles = [
            Axis(tile[axis.name], -(-axis.extent // m)) if axis.name in tile else axis
            for axis in spatial if axis.name in of_image - of_weight
        ]  # fmt: skip
        filters = [axis for axis in spatial if axis.name not in of_image]
        channels = [axis for axis in op.of_role("reduce") if axis.name not in found.taps]
        lead = [Axis(line, m + TAPS - 1) for line in self._lines]
        lead += [axis for axis in spatial if axis.name in of_image & of_weight]
        self._channels = channels
        self._image_axes = [*lead, *tiles, *channels] if channels_last else [*lead, *channels, *tiles]
        self._weight_axes = [*lead, *channels, *filters] if channels_last else [*lead, *filters, *channels]
        self._product_axes = [*lead, *tiles, *filters] if channels_last else [*lead, *filters, *tiles]

    def made(self) -> Filtered:
        op = self._op
        source = loads(self._found.weight)[0].buffer.name
        weight = self._element(f"{source}_transformed", self._weight_axes, constant=True)
        image = self._element(f"{self._found.image.buffer.name}_transformed", self._image_axes)
        product = self._element("products", self._product_axes)
        names = tuple(axis.name for axis in self._channels)
        sums = Reduction("r", named_combiner("sum", _DTYPE), names, (Binary("mul", image, weight, _DTYPE),))
        axes = (*self._product_axes, *self._channels)
        added = self._output(product)
        ops = (
            _stored(weight, self._weight_axes, self._weight()),
            _stored(image, self._image_axes, self._image()),
            TensorOp(product.buffer, axes, product.indices, Partial("r", _DTYPE), (sums,)),
            replace(
                op, axes=op.of_role("spatial"), reductions=(),
                result=transform(op.result, lambda node: added if isinstance(node, Partial) else None),
            ),
        )  # fmt: skip
        return Filtered(*map(canonical_op, ops))

    def _element(self, name: str, axes: Sequence[Axis], constant: bool = False) -> Load:
        shape = tuple(axis.extent for axis in axes)
        buffer = Buffer(fresh_buffer(self._op, name), shape, _DTYPE, "temporary", constant)
        return Load(buffer, tuple(Index.axis(axis.name) for axis in axes))

    def _weight(self) -> Value:
        taps = [tap for _, tap in self._found.slides]
        read = lambda places: substitute_axes(self._found.weight, dict(zip(taps, places, strict=True)))
        return _transformed(WEIGHT[self._m], [Index.axis(line) for line in self._lines], read)

    def _image(self) -> Value:
        """Pixels of a last tile beyond those that the convolution reads are not read."""
        slides, m = self._found.slides, self._m

        def read(places: Sequence[Index]) -> Value:
            mapping: dict[str, Index] = {}
            guard: list[Within] = []
            for (axis, tap), tile, place in zip(slides, self._tiles, places, strict=True):
                extent = self._op.axis(axis).extent
                mapping |= {axis: Index.axis(tile) * m, tap: place}
                if extent % m:
                    guard.append(Within(Index.axis(tile) * m + place, 0, extent + TAPS - 1))
            load = substitute_axes(self._found.image, mapping)
            assert isinstance(load, Load)
            return replace(load, guard=(*load.guard, *guard))

        return _transformed(IMAGE[m], [Index.axis(line) for line in self._lines], read)

    def _output(self, product: Load) -> Value:
        m, axes = self._m, [axis for axis, _ in self._found.slides]

        def read(places: Sequence[Index]) -> Value:
            at = {axis.name: Index.axis(axis.name) for axis in self._product_axes}
            for axis, line, tile, place in zip(axes, self._lines, self._tiles, places, strict=True):
                at |= {line: place, tile: Index.axis(axis) // m}
            return replace(product, indices=tuple(at[axis.name] for axis in self._product_axes))

        return _transformed(OUTPUT[m], [Index.axis(axis) % m for axis in axes], read)


def _stored(place: Load, axes: Sequence[Axis], value: Value) -> TensorOp:
    return TensorOp(place.buffer, tuple(replace(axis, role="spatial") for axis in axes), place.indices, value)


def _transformed(
    matrix: Matrix, lines: Sequence[Index], read: Callable[[Sequence[Index]], Value], places: tuple[Index, ...] = ()
) -> Value:
    """The element at `lines` of what is transformed by `matrix` along each direction; ``places``: of the first ones."""
    if len(places) == len(lines):
        return read(places)
    line = lines[len(places)]
    inner = lambda term: _transformed(matrix, lines, read, (*places, term.index(line)))
    terms = [_times(term.factors, line, inner(term)) for term in matrix]
    total = terms[0]
    for term in terms[1:]:
        total = Binary("add", total, term, _DTYPE)
    return total


def _times(factors: tuple[float, ...], line: Index, value: Value) -> Value:
    """`value` times the factor of a line."""
    usual = max(set(factors), key=lambda factor: (factors.count(factor), factor))
    factor: Value = Const(float(usual), _DTYPE)
    for number, own in enumerate(factors):
        if own != usual:
            chosen = Binary("eq", IndexValue(line), Const(number, "int32"), "bool")
            factor = Select(chosen, Const(float(own), _DTYPE), factor, _DTYPE)
    return value if factors == (1,) * len(factors) else Binary("mul", factor, value, _DTYPE)
