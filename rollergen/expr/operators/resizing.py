"""Images of another size: the nearest elements, or linear and cubic interpolations between neighbours.

Output o lies at ``(o * step + start) / unit`` of the input, a fraction of integers: indices and weights are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.adaptive_pooling import averages
from rollergen.expr.operators.arguments import flag, integer, number, require_float, require_tensor
from rollergen.hal.dataclass import dataclass

Factor = int | float | Sequence[int] | Sequence[float]
_FINEST = 1 << 12
"""Denominators of scale factors, at most: a float stands for the nearest such fraction (0.6 for 3/5)."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Output o of `out` lies at ``(o * step + start) / unit`` of an axis of `size` elements."""

    size: int
    out: int
    step: int
    start: int
    unit: int

    @staticmethod
    def of(size: int, out: int, scale: Fraction, coordinates: str) -> _Place:
        """`scale`: elements of the input for each output; `coordinates`: one of `_COORDINATES`."""
        factor, shift = _COORDINATES[coordinates](size, out, scale)
        unit = math.lcm(factor.denominator, shift.denominator)
        return _Place(size, out, int(factor * unit), int(shift * unit), unit)

    def times(self, output: Any) -> Any:
        """`unit` times the place."""
        return output * self.step + self.start

    def read(self, x: Tensor, i: Sequence[Any], axis: int, index: Callable[[Any], Any]) -> Any:
        """The element of `x` at ``index(o)`` along `axis`, that of the border beyond it."""
        at = index(i[axis])
        element = lambda place: x[(*i[:axis], place, *i[axis + 1 :])]
        value = element(at)
        if index(self.out - 1) >= self.size:
            value = rg.select(at < self.size, value, element(self.size - 1))
        return rg.select(at >= 0, value, element(0)) if index(0) < 0 else value


_HALF = Fraction(1, 2)
_COORDINATES = {
    "half_pixel": lambda size, out, scale: (scale, scale / 2 - _HALF),
    "pytorch_half_pixel": lambda size, out, scale: (scale, scale / 2 - _HALF) if out > 1 else (scale, Fraction(0)),
    "asymmetric": lambda size, out, scale: (scale, Fraction(0)),
    "align_corners": lambda size, out, scale: (Fraction(size - 1, out - 1) if out > 1 else Fraction(0), Fraction(0)),
    "half_pixel_symmetric": lambda size, out, scale: (
        scale, scale / 2 - _HALF + Fraction(size, 2) * (1 - out * scale / size)
    ),
}  # fmt: skip
"""ONNX's names of coordinate transformations (operator Resize): factor and shift from outputs to places."""

_NEAREST = {
    "floor": lambda times, unit: times // unit,
    "ceil": lambda times, unit: (times + (unit - 1)) // unit,
    "round_prefer_floor": lambda times, unit: (times * 2 + (unit - 1)) // (2 * unit),
    "round_prefer_ceil": lambda times, unit: (times * 2 + unit) // (2 * unit),
}
"""ONNX's names of roundings to the nearest element."""


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: Factor | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`input` (N, C, L), (N, C, H, W) or (N, C, D, H, W) with its last axes of another `size`, or times `scale_factor`.

    `mode` is "nearest", "nearest-exact", "area" (`adaptive_avg_pool2d` and its kin), or, for one, two and three axes,
    "linear", "bilinear" (or "bicubic") and "trilinear", where `align_corners` says that the corners' elements stay;
    else pixels are areas, and beyond the border is the border.

    >>> import rollergen as rg
    >>> rg.ops.interpolate(rg.tensor("x", (1, 1, 2)), 4, mode="linear").evaluate([[[0.0, 1.0]]])
    array([[[0.  , 0.25, 0.75, 1.  ]]])

    Raises ExpressionError for other modes and for `antialias`, ShapeError for other ranks.
    """
    if flag(antialias, "interpolate", "antialias"):
        raise ExpressionError("interpolate: antialias is True; expected False")
    rank = _rank("interpolate", input)
    smooth = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[rank]
    modes = ("nearest", "nearest-exact", "area", *smooth)
    if mode not in modes:
        raise ExpressionError(f"interpolate: mode is {shown(mode)}; expected one of {', '.join(modes)}")
    if mode not in smooth and align_corners is not None:
        raise ExpressionError(
            f"interpolate: align_corners is {shown(align_corners)} for mode {shown(mode)}; expected None"
        )
    outs, scales = _sizes("interpolate", input.shape[2:], size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return averages("interpolate", rank, input, outs, name)
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    kind = {"nearest": "floor", "nearest-exact": "round_prefer_ceil", "bicubic": "cubic"}.get(mode, "linear")
    if kind == "linear":  # torch copies along an axis whose extent stays, whatever the factor
        kept = zip(input.shape[2:], outs, scales, strict=True)
        scales = tuple(Fraction(1) if extent == out else scale for extent, out, scale in kept)
    return _resized(input, outs, scales, coordinates, kind, name)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: Factor | None = None, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`interpolate` to the nearest elements: with a whole `scale_factor` each is repeated that many times.

    >>> import rollergen as rg
    >>> rg.ops.upsample_nearest(rg.tensor("x", (1, 1, 2)), scale_factor=2).evaluate([[[1.0, 2.0]]])
    array([[[1., 1., 2., 2.]]])
    """
    _rank("upsample_nearest", input)
    outs, scales = _sizes("upsample_nearest", input.shape[2:], size, scale_factor, False)
    return _resized(input, outs, scales, "asymmetric", "floor", name)


def resize(
    input: Tensor, size: Sequence[int] | None = None, scale_factor: Factor | None = None, mode: str = "nearest",
    coordinates: str = "half_pixel", nearest_mode: str = "round_prefer_floor", *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The last axes of `input`, as many as `size` or `scale_factor` has, of another size: ONNX's Resize.

    `mode` is "nearest", rounded by `nearest_mode` ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "linear" or "cubic"; `coordinates` is "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners" or
    "asymmetric".

    >>> import rollergen as rg
    >>> rg.ops.resize(rg.tensor("x", (2,)), (4,), mode="linear", coordinates="align_corners").shape
    (4,)
    """
    require_tensor(input, "resize")
    if mode not in ("nearest", *_INTERPOLATED):
        raise ExpressionError(f'resize: mode is {shown(mode)}; expected "nearest", "linear" or "cubic"')
    for what, value, known in (("coordinates", coordinates, _COORDINATES), ("nearest_mode", nearest_mode, _NEAREST)):
        if value not in known:
            raise ExpressionError(f"resize: {what} is {shown(value)}; expected one of {', '.join(known)}")
    given = scale_factor if size is None else size
    if not isinstance(given, (tuple, list)) or not 1 <= len(given) <= input.ndim:
        raise ShapeError(
            f"resize: size is {shown(size)} and scale_factor {shown(scale_factor)}; expected one of them, of 1 to "
            f"{input.ndim} numbers"
        )
    outs, scales = _sizes("resize", input.shape[-len(given) :], size, scale_factor, False)
    return _resized(input, outs, scales, coordinates, nearest_mode if mode == "nearest" else mode, name)


def _rank(operation: str, x: Tensor) -> int:
    require_tensor(x, operation)
    if not 3 <= x.ndim <= 5:
        raise ShapeError(
            f"{operation}: {x.label} has shape {x.shape}; expected (N, C, L), (N, C, H, W) or (N, C, D, H, W)"
        )
    return x.ndim - 2


def _sizes(
    operation: str, extents: Sequence[int], size: Any, scale_factor: Any, recompute: bool
) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
    """Extents of the result, and elements of the input for each of its elements."""
    if (size is None) == (scale_factor is None):
        raise ExpressionError(
            f"{operation}: size is {shown(size)} and scale_factor {shown(scale_factor)}; expected one of them"
        )
    given = size if scale_factor is None else scale_factor
    parts = tuple(given) if isinstance(given, (tuple, list)) else (given,) * len(extents)
    if len(parts) != len(extents):
        raise ShapeError(f"{operation}: {shown(given)} for {len(extents)} axes; expected a number for each, or one")
    if scale_factor is None:
        outs = tuple(integer(part) or 0 for part in parts)
    else:
        factors = [Fraction(number(part, operation, "scale_factor")).limit_denominator(_FINEST) for part in parts]
        outs = tuple(int(extent * factor) for extent, factor in zip(extents, factors, strict=True))
    if any(out < 1 for out in outs):
        raise ShapeError(
            f"{operation}: {shown(given)} makes {outs} of {tuple(extents)}; expected extents of at least 1"
        )
    if scale_factor is None or recompute:
        return outs, tuple(Fraction(extent, out) for extent, out in zip(extents, outs, strict=True))
    return outs, tuple(1 / factor for factor in factors)


def _resized(
    x: Tensor, outs: Sequence[int], scales: Sequence[Fraction], coordinates: str, kind: str, name: str | None
) -> Tensor:
    """`x` with its last axes resized: `kind` is one of `_NEAREST` or `_INTERPOLATED`."""
    first = x.ndim - len(outs)
    places = {
        first + d: _Place.of(*one, coordinates) for d, one in enumerate(zip(x.shape[first:], outs, scales, strict=True))
    }
    moved = [d for d, place in places.items() if (place.size, place.step, place.start) != (place.out, place.unit, 0)]
    if not moved:
        return rg.compute(x.shape, lambda *i: x[i], name)
    if kind in _NEAREST:
        for d in moved:
            x = _nearest(x, d, places[d], kind, name if d == moved[-1] else None)
        return x
    require_float(x, "interpolate")
    dtype = x.dtype
    if math.prod(outs) > math.prod(x.shape[first:]):
        moved.reverse()  # rows grow before there are more of them: neighbours below each other are whole vectors
    for d in moved:
        last = d == moved[-1]
        x = _interpolated(x, d, places[d], kind, dtype if last else accumulator_dtype(dtype), name if last else None)
    return x


def _nearest(x: Tensor, axis: int, place: _Place, rounding: str, name: str | None) -> Tensor:
    index = lambda o: _NEAREST[rounding](place.times(o), place.unit)
    shape = (*x.shape[:axis], place.out, *x.shape[axis + 1 :])
    return rg.compute(shape, lambda *i: place.read(x, i, axis, index), name)


_CUBIC = -0.75
"""Keys' parameter (IEEE Transactions on Acoustics, Speech and Signal Processing 29, 1981), as in torch and ONNX."""


def _near(t: Any) -> Any:
    """Keys' weight of an element less than 1 away."""
    return ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1


def _far(t: Any) -> Any:
    """Keys' weight of an element 1 to 2 away."""
    return ((t - 5) * t + 8) * t * _CUBIC - 4 * _CUBIC


_INTERPOLATED: dict[str, tuple[tuple[int, Callable[[Any], Any]], ...]] = {
    "linear": ((0, lambda t: 1 - t), (1, lambda t: t)),
    "cubic": ((-1, lambda t: _far(t + 1)), (0, _near), (1, lambda t: _near(1 - t)), (2, lambda t: _far(2 - t))),
}
"""By mode the neighbours that are read, counted from the one below, and their weights at the fraction t above it."""


def _interpolated(x: Tensor, axis: int, place: _Place, mode: str, dtype: str, name: str | None) -> Tensor:
    wide = accumulator_dtype(x.dtype)
    below = lambda o: place.times(o) // place.unit
    near = below(0) >= -1 and below(place.out - 1) < place.size

    def element(*i: Any) -> Any:
        fraction = rg.cast(place.times(i[axis]) % place.unit, wide) * (1 / place.unit)
        if mode == "linear" and near:
            return rg.cast(between(below(i[axis]), fraction, i), dtype)
        total: Any = None
        for step, weight in _INTERPOLATED[mode]:
            index = lambda o, step=step: (place.times(o) + place.unit * step) // place.unit
            part = rg.cast(place.read(x, i, axis, index), wide) * weight(fraction)
            total = part if total is None else total + part
        return rg.cast(total, dtype)

    def between(at: Any, fraction: Any, i: Sequence[Any]) -> Any:
        """Two reads: where a neighbour lies beyond the border, by one at most, the other has the whole weight."""
        read = lambda place: rg.cast(x[(*i[:axis], place, *i[axis + 1 :])], wide)
        lower, upper = read(at), read(at + 1)
        if below(0) < 0:
            lower, fraction = rg.select(at >= 0, lower, 0.0), rg.select(at >= 0, fraction, 1.0)
        if below(place.out - 1) + 1 >= place.size:
            inside = at + 1 < place.size
            upper, fraction = rg.select(inside, upper, 0.0), rg.select(inside, fraction, 0.0)
        return lower * (1 - fraction) + upper * fraction

    return rg.compute((*x.shape[:axis], place.out, *x.shape[axis + 1 :]), element, name)
