"""Sums of products of bytes as sums of dot products: four neighbours along a reduce axis make one 32-bit word.

What is left is an ordinary contraction of words, of a quarter of the steps.  A tensor whose rows are whole words along
the axis is read as it lies, else its rows are made so; one in which neighbours along the axis lie apart is copied into
words first.  Both copies are ordinary elementwise tensor ops.

Instructions differ in whether a dot product is of two factors of signed bytes, of unsigned ones, or of one of each.
Where there is none for a pair, one factor is shifted by 128 (its bytes' sign bits are flipped).  The shift and zero
points are put right at the end, ``a`` and ``b`` being bytes as they are multiplied, ``y`` and ``z`` what each is too
large by:

    sum of (a - y) (b - z)  =  sum of a b  -  z sum of a  -  y sum of b  +  n y z

These are whole numbers that go around the ends of int32, so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from rollergen.expr.dtypes import bounds
from rollergen.expr.guards import bounds_of, relative_to
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Const,
    Load,
    Partial,
    Select,
    Value,
    Within,
    named_combiner,
    transform,
)
from rollergen.hal.dtypes import DOTS

Pairs = frozenset[tuple[str, str]]
WORD = 4
"""Bytes of a word."""
_SUM = "int32"
_HOLDING_BYTES = ("int16", "int32")
_SIGN_BITS = 0x80808080
_ONES = 0x01010101


@dataclass(frozen=True, slots=True)
class _Factor:
    """Bytes less their zero point; beyond a guard they are the load's fill."""

    load: Load
    zero: int = 0

    @property
    def signed(self) -> bool:
        return self.load.dtype == "int8"


@dataclass(frozen=True, slots=True)
class _Words:
    """A factor's words.  ``copy``: what is made before, None where the tensor is read as it lies; ``value``: the word
    at the factor's place, with the sign bits flipped if ``shift``; ``excess``: what each byte is too large by."""

    factor: _Factor
    copy: TensorOp | None
    value: Value
    shift: int

    @property
    def dtype(self) -> str:
        return "int8" if self.factor.signed != bool(self.shift) else "uint8"

    @property
    def excess(self) -> int:
        return self.factor.zero + self.shift


def dot_products(op: TensorOp, lanes: str | None, pairs: Pairs) -> Prepared | None:
    """The tensor op as a sum of dot products; None where it is no sum of products of bytes along one reduce axis.

    ``lanes``: the axis along which vectors of outputs lie; the factor that varies along it is the one that is shifted.
    ``pairs``: the dtypes of which there are dot products.
    """
    factors = _factors(op)
    steps = _steps(op, factors) if factors else None
    if not factors or not steps:
        return None
    axes = tuple(replace(a, extent=-(-a.extent // WORD)) if a.name == steps else a for a in op.axes)
    first, second = sorted(factors, key=lambda factor: lanes in factor.load.axes())
    a = _words(op, first, steps, flipped=False)
    b = _words(op, second, steps, flipped=_pair(first.load.dtype, second.load.dtype) not in pairs)
    copies = dict.fromkeys(words.copy for words in (a, b) if words.copy is not None)
    (reduction,) = op.reductions
    total: Value = Partial(reduction.name, _SUM)
    for words, excess in ((a, b.excess), (b, a.excess)):
        if excess:
            sums = _sums(op, words, axes, pairs)
            copies[sums] = None
            total = Binary("sub", total, _times(Load(sums.output, sums.target), excess), _SUM)
    if known := _known(op, steps, a, b):
        total = Binary("add", total, Const(known, _SUM), _SUM)
    change = lambda value: total if value == Partial(reduction.name, _SUM) else None
    body = _dot((a.dtype, a.value), (b.dtype, b.value))
    made = replace(op, axes=axes, reductions=(replace(reduction, bodies=(body,)),))
    return Prepared(tuple(copies), replace(made, result=transform(op.result, change)))


def byte_beyond(made: TensorOp, load: Load) -> int:
    """What bytes are where `load`, of the words that `made` writes, finds its fill."""
    flips = isinstance(made.result, Binary) and made.result.op == "xor"
    byte = int(load.fill) & 0xFF ^ (0x80 if flips else 0)
    signed = any(one.dtype == "int8" for one in made.loads())
    return byte - 256 if signed and byte > 127 else byte


def _factors(op: TensorOp) -> tuple[_Factor, _Factor] | None:
    """The bytes that are multiplied."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    (reduction,) = op.reductions
    product = reduction.bodies[0]
    if reduction.combiner != named_combiner("sum", _SUM) or len(op.body_loads()) != 2:
        return None
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    first, second = _factor(product.a), _factor(product.b)
    return (first, second) if first is not None and second is not None else None


def _factor(value: Value) -> _Factor | None:
    """The value as a byte less a number, which is 0 beyond its guard if it is chosen by one."""
    match value:
        case Select(cond, chosen, Const(0)):
            factor = _factor(chosen)
            if factor is None or not _is_byte(factor.zero, factor.load):
                return None
            tested = set(relative_to(bounds_of(cond) or (), factor.load.indices))
            filled = replace(factor, load=replace(factor.load, fill=factor.zero))
            return filled if tested == set(factor.load.guard) else None
        case Binary("sub", byte, Const(int(zero))):
            load = _byte(byte)
            return None if load is None else _Factor(load, zero)
    load = _byte(value)
    return None if load is None else _Factor(load)


def _byte(value: Value) -> Load | None:
    """The load of bytes, whose value no cast changes."""
    load = value
    while isinstance(load, Cast) and load.dtype in _HOLDING_BYTES:
        load = load.x
    fits = isinstance(load, Load) and load.dtype in ("int8", "uint8") and not load.buffer.packs
    return load if isinstance(load, Load) and fits and _is_byte(load.fill, load) else None


def _is_byte(number: float | int, load: Load) -> bool:
    low, high = bounds(load.dtype)
    return low <= number <= high


def _steps(op: TensorOp, factors: tuple[_Factor, _Factor]) -> str | None:
    """The longest reduce axis along which both factors have a dimension of their own; two steps are left to others."""
    own = lambda axis: all(_dimension(factor.load, axis.name) is not None for factor in factors)
    found = [axis for axis in op.of_role("reduce") if axis.extent >= WORD - 1 and own(axis)]
    return max(found, key=lambda axis: axis.extent).name if found else None


def _dimension(load: Load, axis: str) -> int | None:
    """The dimension whose index is just the axis, which no other index and no guard depends on."""
    places = [dim for dim, index in enumerate(load.indices) if axis in index.axes()]
    guarded = any(axis in bound.index.axes() for bound in load.guard)
    return places[0] if len(places) == 1 and load.indices[places[0]] == Index.axis(axis) and not guarded else None


def _words(op: TensorOp, factor: _Factor, axis: str, flipped: bool) -> _Words:
    """The factor as words along the axis, with the sign bits ``flipped``."""
    load, shift = factor.load, (128 if factor.signed else -128) if flipped else 0
    dim, extent, shape = _dimension(load, axis), op.axis(axis).extent, load.buffer.shape
    assert dim is not None
    fill = (int(load.fill) & 0xFF) * _ONES
    if dim == len(shape) - 1:
        whole = shape[dim] % WORD == 0 and extent % WORD == 0
        rows = None if whole else _copy_of_rows(op, load, extent)
        held = load.buffer if rows is None else rows.output
        words = replace(held, shape=(*shape[:-1], held.shape[-1] // WORD), dtype=_SUM)
        value: Value = replace(load, buffer=words, fill=_wrapped(fill))
        return _Words(factor, rows, _flipped(value) if flipped else value, shift)
    copy = _copy_of_words(op, load, dim, extent, flipped)
    value = replace(load, buffer=copy.output, fill=_wrapped(fill ^ _SIGN_BITS if flipped else fill))
    return _Words(factor, copy, value, shift)


def _copy_of_rows(op: TensorOp, load: Load, extent: int) -> TensorOp:
    """The tensor with rows of whole words, zeros beyond the axis' extent."""
    shape = (*load.buffer.shape[:-1], -(-extent // WORD) * WORD)
    axes = tuple(Axis(f"dim{d}", size) for d, size in enumerate(shape))
    places = tuple(Index.axis(axis.name) for axis in axes)
    guard = (Within(places[-1], 0, extent),) if extent % WORD else ()
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_rows"), shape, load.dtype, "temporary")
    return TensorOp(output, axes, places, Load(load.buffer, places, guard))


def _copy_of_words(op: TensorOp, load: Load, dim: int, extent: int, flipped: bool) -> TensorOp:
    """The tensor with four neighbours along `dim` in each word, the first lowest; zeros beyond the axis' extent."""
    shape = tuple(-(-extent // WORD) if d == dim else size for d, size in enumerate(load.buffer.shape))
    axes = tuple(Axis(f"dim{d}", size) for d, size in enumerate(shape))
    places = tuple(Index.axis(axis.name) for axis in axes)
    value: Value | None = None
    for byte in range(WORD):
        at = places[dim] * WORD + byte
        guard = (Within(at, 0, extent),) if extent % WORD else ()
        read = Load(load.buffer, (*places[:dim], at, *places[dim + 1 :]), guard)
        one = Cast(Cast(read, "uint8"), _SUM)
        part = Binary("shl", one, Const(8 * byte, _SUM), _SUM) if byte else one
        value = part if value is None else Binary("bitor", value, part, _SUM)
    assert value is not None
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_words"), shape, _SUM, "temporary")
    return TensorOp(output, axes, places, _flipped(value) if flipped else value)


def _sums(op: TensorOp, words: _Words, axes: tuple[Axis, ...], pairs: Pairs) -> TensorOp:
    """The sums of a factor's bytes over all that is reduced, one for each of its places."""
    load = words.factor.load
    own = tuple(axis for axis in axes if axis.role == "reduce" or axis.name in load.axes())
    kept = tuple(axis for axis in own if axis.role == "spatial")
    dtype = next(one for one in ("int8", "uint8") if _pair(words.dtype, one) in pairs)  # 1 is the same in both
    body = _dot((words.dtype, words.value), (dtype, Const(_ONES, _SUM)))
    reduced = tuple(axis.name for axis in own if axis.role == "reduce")
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_sums"), tuple(a.extent for a in kept), _SUM, "temporary")
    target = tuple(Index.axis(axis.name) for axis in kept)
    reduction = Reduction("sum", named_combiner("sum", _SUM), reduced, (body,))
    return TensorOp(output, own, target, Partial("sum", _SUM), (reduction,))


def _known(op: TensorOp, steps: str, a: _Words, b: _Words) -> int:
    """``n y z``, and what bytes beyond the steps, which are shifted as well, add to the sums of b."""
    extent = op.axis(steps).extent
    others = prod(axis.extent for axis in op.of_role("reduce") if axis.name != steps)
    return _wrapped(others * a.excess * (extent * b.excess + -extent % WORD * b.shift))


def _pair(*dtypes: str) -> tuple[str, str]:
    """The unsigned one first."""
    one, other = sorted(dtypes, reverse=True)
    return one, other


def _dot(*factors: tuple[str, Value]) -> Binary:
    """Of two factors, each a dtype and the words."""
    (one, a), (other, b) = sorted(factors, key=lambda factor: factor[0], reverse=True)
    return Binary(DOTS[one, other], a, b, _SUM)


def _flipped(words: Value) -> Value:
    return Binary("xor", words, Const(_wrapped(_SIGN_BITS), _SUM), _SUM)


def _times(value: Value, number: int) -> Value:
    return Binary("mul", value, Const(_wrapped(number), _SUM), _SUM)


def _wrapped(number: int) -> int:
    """The int32 that a whole number goes around to."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
