"""Sums of products of narrow numbers as sums of dot products: neighbours along a reduce axis make one 32-bit word.

What is left is an ordinary contraction of words: of four bytes each, in a quarter of the steps, or of two numbers of
16 bits, integers or floats, in half of them.  A tensor whose rows are whole words along the axis is read as it
lies, else its rows are made so; one in which neighbours along the axis lie apart is copied into words first.  Both
copies are ordinary elementwise tensor ops.

Where instructions take numbers of 16 bits only, the copies widen bytes, and take zero points off them.  Those for bytes
differ in whether a dot product is of two factors of signed bytes, of unsigned ones, or of one of each.
Where there is none for a pair, one factor is shifted by 128 (its bytes' sign bits are flipped).  The shift and zero
points are put right at the end, ``a`` and ``b`` being bytes as they are multiplied, ``y`` and ``z`` what each is too
large by:

    sum of (a - y) (b - z)  =  sum of a b  -  z sum of a  -  y sum of b  +  n y z

These are whole numbers that go around the ends of int32, so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import replace
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
    walk,
)
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DOTS, WORD_OF, in_a_word, sum_of

Pairs = frozenset[tuple[str, str]]
_BYTES = ("int8", "uint8")
_HALF = "int16"
_FLOATS = tuple(WORD_OF)
_SUM = "int32"
_HOLDING = ("int16", "int32")
_SIGN_BITS = 0x80808080
_ONES = 0x01010101
_LOW = 0xFFFF


@dataclass(frozen=True, slots=True)
class _Factor:
    """Narrow integers less their zero point, or floats; beyond a guard they are the load's fill."""

    load: Load
    zero: int = 0

    @property
    def signed(self) -> bool:
        return self.load.dtype == "int8"


@dataclass(frozen=True, slots=True)
class _Words:
    """A factor's words.  ``copy``: what is made before, None where the tensor is read as it lies; ``value``: the word
    at the factor's place, with the sign bits of bytes flipped if ``shift``; ``halves``: the dtype of the numbers of 16
    bits that it holds, the zero point taken off, "" where it holds bytes; ``excess``: what each number is too large by.
    """

    factor: _Factor
    copy: TensorOp | None
    value: Value
    shift: int = 0
    halves: str = ""

    @property
    def dtype(self) -> str:
        if self.halves:
            return self.halves
        return "int8" if self.factor.signed != bool(self.shift) else "uint8"

    @property
    def excess(self) -> int:
        return 0 if self.halves else self.factor.zero + self.shift


def dot_products(op: TensorOp, lanes: str | None, pairs: Pairs) -> Prepared | None:
    """The tensor op as a sum of dot products; None where it is no sum, along one reduce axis, of products of numbers of
    which there are dot products.

    ``lanes``: the axis along which vectors of outputs lie; the factor that varies along it is the one that is shifted.
    ``pairs``: the dtypes of which there are dot products.
    """
    factors = _factors(op)
    held = _held(factors, pairs) if factors else None
    steps = _steps(op, factors, in_a_word(held)) if factors and held else None
    if not factors or not held or not steps:
        return None
    axes = tuple(replace(a, extent=-(-a.extent // in_a_word(held))) if a.name == steps else a for a in op.axes)
    first, second = sorted(factors, key=lambda factor: lanes in factor.load.axes())
    if in_a_word(held) == in_a_word(_HALF):
        a, b = _halves(op, first, steps, held), _halves(op, second, steps, held)
    else:
        a = _words(op, first, steps, flipped=False)
        b = _words(op, second, steps, flipped=_pair(first.load.dtype, second.load.dtype) not in pairs)
    copies = dict.fromkeys(words.copy for words in (a, b) if words.copy is not None)
    (reduction,) = op.reductions
    partial = Partial(reduction.name, sum_of(held))
    total: Value = partial
    for words, excess in ((a, b.excess), (b, a.excess)):
        if excess:
            sums = _sums(op, words, axes, pairs)
            copies[sums] = None
            total = Binary("sub", total, _times(Load(sums.output, sums.target), excess), _SUM)
    if known := _known(op, steps, a, b):
        total = Binary("add", total, Const(known, _SUM), _SUM)
    change = lambda value: total if value == partial else None
    body = _dot((a.dtype, a.value), (b.dtype, b.value))
    made = replace(op, axes=axes, reductions=(replace(reduction, bodies=(body,)),))
    return Prepared(tuple(copies), replace(made, result=transform(op.result, change)))


def _held(factors: tuple[_Factor, _Factor], pairs: Pairs) -> str | None:
    """What words hold: floats where both factors are such, bytes where both are bytes and there are dot products of
    some, else numbers of 16 bits, into which the factors less their zero points have to fit; None where there are no
    dot products of these."""
    floats = {one.load.dtype for one in factors} & {*_FLOATS}
    if floats:
        (held, *others) = {one.load.dtype for one in factors}
        return held if not others and (held, held) in pairs else None
    if all(one.load.dtype in _BYTES for one in factors) and any(pair[0] in _BYTES for pair in pairs):
        return _BYTES[0]
    fit = all(_is_held(one.zero, one.load) and (one.zero == 0 or one.load.dtype in _BYTES) for one in factors)
    return _HALF if fit and (_HALF, _HALF) in pairs else None


def number_beyond(made: TensorOp, load: Load) -> int:
    """What the numbers are of which `made` writes words, where `load` of these finds its fill; floats are 0 there."""
    if isinstance(made.result, Binary) and made.result.op in WORD_OF.values():
        return 0
    if len(dict.fromkeys(made.loads())) == in_a_word(_HALF):
        taken = (one.b for one in walk(made.result) if isinstance(one, Binary) and one.op == "sub")
        zero = next((int(one.value) for one in taken if isinstance(one, Const)), 0)
        return _signed(int(load.fill) & _LOW, 16) + zero
    flips = isinstance(made.result, Binary) and made.result.op == "xor"
    byte = int(load.fill) & 0xFF ^ (0x80 if flips else 0)
    signed = any(one.dtype == "int8" for one in made.loads())
    return _signed(byte, 8) if signed else byte


def _factors(op: TensorOp) -> tuple[_Factor, _Factor] | None:
    """The numbers that are multiplied."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    (reduction,) = op.reductions
    product = reduction.bodies[0]
    if reduction.combiner != named_combiner("sum", product.dtype) or len(op.body_loads()) != 2:
        return None
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    first, second = _factor(product.a, product.dtype), _factor(product.b, product.dtype)
    return (first, second) if first is not None and second is not None else None


def _factor(value: Value, dtype: str) -> _Factor | None:
    """The value as a narrow number whose products are added up in the dtype, an integer less a number; it is 0 beyond
    its guard if it is chosen by one."""
    match value:
        case Select(cond, chosen, Const(0)):
            factor = _factor(chosen, dtype)
            if factor is None or not _is_held(factor.zero, factor.load):
                return None
            tested = set(relative_to(bounds_of(cond) or (), factor.load.indices))
            filled = replace(factor, load=replace(factor.load, fill=factor.zero))
            return filled if tested == set(factor.load.guard) else None
        case Binary("sub", number, Const(int(zero))) if dtype == _SUM:
            load = _narrow(number, dtype)
            return None if load is None else _Factor(load, zero)
    load = _narrow(value, dtype)
    return None if load is None else _Factor(load)


def _narrow(value: Value, dtype: str) -> Load | None:
    """The load of narrow numbers, whose value no cast changes, and whose products are added up in the dtype."""
    load, integers = value, dtype == _SUM
    while isinstance(load, Cast) and load.dtype in (_HOLDING if integers else (dtype,)):
        load = load.x
    narrow = (*_BYTES, _HALF) if integers else tuple(one for one in _FLOATS if sum_of(one) == dtype)
    fits = isinstance(load, Load) and load.dtype in narrow and not load.buffer.packs
    return load if isinstance(load, Load) and fits and _is_held(load.fill, load) else None


def _is_held(number: float | int, load: Load) -> bool:
    """Whether the dtype of the load holds the number; of floats only 0 is known to need no bits."""
    if load.dtype in _FLOATS:
        return number == 0
    low, high = bounds(load.dtype)
    return low <= number <= high


def _steps(op: TensorOp, factors: tuple[_Factor, _Factor], word: int) -> str | None:
    """The longest reduce axis along which both factors have a dimension of their own; those that fill no more than half
    a ``word`` are left to others."""
    own = lambda axis: all(_dimension(factor.load, axis.name) is not None for factor in factors)
    found = [axis for axis in op.of_role("reduce") if axis.extent > word // 2 and own(axis)]
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
        rows = None if _is_whole(load, extent) else _copy_of_rows(op, load, extent)
        value: Value = _read(load, rows, fill)
        return _Words(factor, rows, _flipped(value) if flipped else value, shift)
    copy = _copy_of_words(op, load, dim, extent, "uint8")
    copy = replace(copy, result=_flipped(copy.result)) if flipped else copy
    value = replace(load, buffer=copy.output, fill=_wrapped(fill ^ _SIGN_BITS if flipped else fill))
    return _Words(factor, copy, value, shift)


def _halves(op: TensorOp, factor: _Factor, axis: str, held: str) -> _Words:
    """The factor, its zero point taken off, as words of two numbers of 16 bits, of dtype ``held``, along the axis."""
    load, zero, extent = factor.load, factor.zero, op.axis(axis).extent
    dim = _dimension(load, axis)
    assert dim is not None
    beyond = int(load.fill) - zero & _LOW
    fill = beyond | beyond << 16
    if dim < len(load.buffer.shape) - 1:
        copy = _copy_of_words(op, load, dim, extent, held, zero)
        return _Words(factor, copy, replace(load, buffer=copy.output, fill=_wrapped(fill)), halves=held)
    as_it_lies = load.dtype == held and _is_whole(load, extent)
    rows = None if as_it_lies else _copy_of_rows(op, load, extent, held, zero)
    return _Words(factor, rows, _read(load, rows, fill), halves=held)


def _is_whole(load: Load, extent: int) -> bool:
    """Whether the tensor's rows, and what is read of them, are whole words."""
    word = in_a_word(load.dtype)
    return load.buffer.shape[-1] % word == 0 and extent % word == 0


def _read(load: Load, rows: TensorOp | None, fill: int) -> Load:
    """The words of a tensor's rows, or of those that were made of them."""
    held = load.buffer if rows is None else rows.output
    words = replace(held, shape=(*held.shape[:-1], held.shape[-1] // in_a_word(held.dtype)), dtype=_SUM)
    return replace(load, buffer=words, fill=_wrapped(fill))


def _copy_of_rows(op: TensorOp, load: Load, extent: int, dtype: str = "", zero: int = 0) -> TensorOp:
    """The tensor less a number, in a dtype, with rows of whole words; zeros beyond the axis' extent."""
    dtype = dtype or load.dtype
    word = in_a_word(dtype)
    shape = (*load.buffer.shape[:-1], -(-extent // word) * word)
    axes = tuple(Axis(f"dim{d}", size) for d, size in enumerate(shape))
    places = tuple(Index.axis(axis.name) for axis in axes)
    guard = (Within(places[-1], 0, extent),) if extent % word else ()
    value = _less(Load(load.buffer, places, guard, fill=zero if guard else 0), zero)
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_rows"), shape, dtype, "temporary")
    return TensorOp(output, axes, places, value if value.dtype == dtype else Cast(value, dtype))


def _copy_of_words(op: TensorOp, load: Load, dim: int, extent: int, dtype: str, zero: int = 0) -> TensorOp:
    """The tensor less a number with neighbours along `dim`, in a dtype, in each word, the first lowest; zeros beyond
    the axis' extent."""
    word = in_a_word(dtype)
    bits = 32 // word
    shape = tuple(-(-extent // word) if d == dim else size for d, size in enumerate(load.buffer.shape))
    axes = tuple(Axis(f"dim{d}", size) for d, size in enumerate(shape))
    places = tuple(Index.axis(axis.name) for axis in axes)
    reads = []
    for number in range(word):
        at = places[dim] * word + number
        guard = (Within(at, 0, extent),) if extent % word else ()
        reads.append(Load(load.buffer, (*places[:dim], at, *places[dim + 1 :]), guard, fill=zero if guard else 0))
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_words"), shape, _SUM, "temporary")
    if dtype in _FLOATS:
        return TensorOp(output, axes, places, Binary(WORD_OF[dtype], reads[0], reads[1], _SUM))
    value: Value | None = None
    for number, read in enumerate(reads):
        one = _lowest(_less(read, zero), dtype, last=number == word - 1)
        part = Binary("shl", one, Const(bits * number, _SUM), _SUM) if number else one
        value = part if value is None else Binary("bitor", value, part, _SUM)
    assert value is not None
    return TensorOp(output, axes, places, value)


def _less(value: Value, zero: int) -> Value:
    return Binary("sub", Cast(value, _SUM), Const(zero, _SUM), _SUM) if zero else value


def _lowest(value: Value, dtype: str, last: bool) -> Value:
    """The lowest bits of the number as an int32; what lies above them is shifted out of the ``last`` one."""
    if dtype == "uint8":
        return Cast(Cast(value, dtype), _SUM)
    whole = value if value.dtype == _SUM else Cast(value, _SUM)
    return whole if last else Binary("bitand", whole, Const(_LOW, _SUM), _SUM)


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
    return _wrapped(others * a.excess * (extent * b.excess + -extent % in_a_word(a.dtype) * b.shift))


def _pair(*dtypes: str) -> tuple[str, str]:
    """The unsigned one first."""
    one, other = sorted(dtypes, reverse=True)
    return one, other


def _dot(*factors: tuple[str, Value]) -> Binary:
    """Of two factors, each a dtype and the words."""
    (one, a), (other, b) = sorted(factors, key=lambda factor: factor[0], reverse=True)
    return Binary(DOTS[one, other], a, b, sum_of(one))


def _flipped(words: Value) -> Value:
    return Binary("xor", words, Const(_wrapped(_SIGN_BITS), _SUM), _SUM)


def _times(value: Value, number: int) -> Value:
    return Binary("mul", value, Const(_wrapped(number), _SUM), _SUM)


def _wrapped(number: int) -> int:
    """The int32 that a whole number goes around to."""
    return _signed(number % (1 << 32), 32)


def _signed(number: int, bits: int) -> int:
    """What the lowest bits stand for in two's complement."""
    return number - (1 << bits) if number >> bits - 1 else number
