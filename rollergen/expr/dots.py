"""Sums of products of bytes as sums of dot products: four neighbours along a reduce axis make one 32-bit word.

What is left is an ordinary contraction of words, of a quarter of the steps.  A tensor whose rows are whole words along
the axis is read as it lies; another is copied into words first, by an ordinary elementwise tensor op.

A dot product takes unsigned bytes and signed ones.  Where both factors are of one kind, one of them is shifted by 128
(its bytes' sign bits are flipped), and 128 times the sums of the other are put right at the end: whole numbers that go
around the ends of int32, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rollergen.expr.index import Index
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Const,
    Load,
    Partial,
    Value,
    Within,
    named_combiner,
    substitute_axes,
    transform,
)

WORD = 4
"""Bytes of a word."""
_SUM = "int32"
_SIGNED = {"int8": True, "uint8": False}
_HOLDING_BYTES = ("int16", "int32")
_SIGN_BITS = -0x7F7F7F80
"""0x80808080, the sign bits of four bytes."""
_ONES = 0x01010101


@dataclass(frozen=True, slots=True)
class DotProducts:
    """``op``: the contraction of words; ``copies``: what makes its operands, in order."""

    copies: tuple[TensorOp, ...]
    op: TensorOp


def is_dot_product(value: Value) -> bool:
    return isinstance(value, Binary) and value.op == "dot"


def has_dot_products(op: TensorOp) -> bool:
    """Whether the tensor op's reductions add up dot products."""
    return any(is_dot_product(body) for reduction in op.reductions for body in reduction.bodies)


def dot_products(op: TensorOp, lanes: str | None) -> DotProducts | None:
    """The tensor op as a sum of dot products; None where it is no sum of products of bytes along one reduce axis.

    ``lanes``: the axis along which vectors of outputs lie; the factor that varies along it is the one that is shifted.
    """
    factors = _factors(op)
    steps = factors and _steps(op, *factors)
    if not factors or not steps:
        return None
    other, shifted = sorted(factors, key=lambda load: lanes in load.axes())
    alike = _SIGNED[other.dtype] == _SIGNED[shifted.dtype]
    few = {steps: -(-op.axis(steps).extent // WORD)}
    words = [_words(op, load, steps, flipped=alike and load is shifted) for load in (other, shifted)]
    copies = dict.fromkeys(copy for copy, _ in words if copy is not None)
    (_, plain), (_, moved) = words
    unsigned = not _SIGNED[other.dtype]
    axes = _shortened(op.axes, few)
    (reduction,) = op.reductions
    body = _dot(plain, moved) if unsigned else _dot(moved, plain)
    result = op.result
    if alike:
        sums = _sums(op, plain, other, axes, unsigned)
        copies[sums] = None
        result = _put_right(result, reduction, sums, "add" if unsigned else "sub")
    made = replace(op, axes=axes, result=result, reductions=(replace(reduction, bodies=(body,)),))
    return DotProducts(tuple(copies), made)


def joined(copies: tuple[TensorOp, ...], op: TensorOp) -> tuple[TensorOp, ...]:
    """The copies before `op`, each that computes words, and is only copied on by another one, computed there."""
    found = list(copies)
    for made in copies:
        readers = [one for one in (*found, op) if any(load.buffer == made.output for load in one.loads())]
        if isinstance(made.result, Load) or made.reductions or len(readers) != 1:
            continue
        (reader,) = readers
        if reader is not op and isinstance(reader.result, Load):
            found[found.index(reader)] = replace(reader, result=_read_through(reader.result, made))
            found.remove(made)
    return tuple(found)


def _read_through(load: Load, made: TensorOp) -> Value:
    """What `load` finds in the tensor that `made` writes."""
    places = {axis.name: index for axis, index in zip(made.axes, load.indices, strict=True)}

    def guarded(value: Value) -> Value | None:
        return replace(value, guard=(*load.guard, *value.guard)) if isinstance(value, Load) else None

    return transform(substitute_axes(made.result, places), guarded)


def _factors(op: TensorOp) -> tuple[Load, Load] | None:
    """The loads whose elements are multiplied, of bytes each."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    (reduction,) = op.reductions
    product = reduction.bodies[0]
    if reduction.combiner.name != "sum" or product.dtype != _SUM or len(op.body_loads()) != 2:
        return None
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    first, second = _byte(product.a), _byte(product.b)
    return (first, second) if first is not None and second is not None else None


def _byte(value: Value) -> Load | None:
    """The load of bytes, whose value no cast changes."""
    load = value
    while isinstance(load, Cast) and load.dtype in _HOLDING_BYTES:
        load = load.x
    return load if isinstance(load, Load) and load.dtype in _SIGNED and load.fill == 0 else None


def _steps(op: TensorOp, first: Load, second: Load) -> str | None:
    """The longest reduce axis along which both factors have a dimension of their own; two steps are left to others."""
    found = [
        axis
        for axis in op.of_role("reduce")
        if axis.extent >= WORD - 1 and all(_dimension(load, axis.name) is not None for load in (first, second))
    ]
    return max(found, key=lambda axis: axis.extent).name if found else None


def _dimension(load: Load, axis: str) -> int | None:
    """The dimension whose index is just the axis, which no other index and no guard depends on."""
    places = [dim for dim, index in enumerate(load.indices) if axis in index.axes()]
    guarded = any(axis in bound.index.axes() for bound in load.guard)
    return places[0] if len(places) == 1 and load.indices[places[0]] == Index.axis(axis) and not guarded else None


def _shortened(axes: tuple[Axis, ...], few: Mapping[str, int]) -> tuple[Axis, ...]:
    return tuple([replace(axis, extent=few.get(axis.name, axis.extent)) for axis in axes])


def _words(op: TensorOp, load: Load, axis: str, flipped: bool) -> tuple[TensorOp | None, Value]:
    """(what copies the factor's tensor into words, None where it is read as it lies; the word at the factor's place),
    with the sign bits ``flipped``."""
    dim, extent, shape = _dimension(load, axis), op.axis(axis).extent, load.buffer.shape
    assert dim is not None
    fill = (int(load.fill) & 0xFF) * _ONES
    whole = dim == len(shape) - 1 and shape[dim] % WORD == 0 and extent % WORD == 0
    if whole and load.buffer.kind == "input":
        words = replace(load.buffer, shape=(*shape[:-1], shape[-1] // WORD), dtype=_SUM)
        value: Value = replace(load, buffer=words, fill=_signed(fill))
        return None, Binary("xor", value, Const(_SIGN_BITS, _SUM), _SUM) if flipped else value
    copy = _copy_of_words(op, load, dim, extent, flipped)
    fill = fill ^ (_SIGN_BITS & 0xFFFFFFFF) if flipped else fill
    return copy, replace(load, buffer=copy.output, fill=_signed(fill))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _copy_of_words(op: TensorOp, load: Load, dim: int, extent: int, flipped: bool) -> TensorOp:
    """The tensor with four neighbours along `dim` in each word, the first lowest; zeros beyond the axis' extent."""
    shape = tuple(-(-extent // WORD) if d == dim else size for d, size in enumerate(load.buffer.shape))
    axes = tuple(Axis(f"dim{d}", size) for d, size in enumerate(shape))
    value: Value | None = None
    for byte in range(WORD):
        indices = [Index.axis(axis.name) for axis in axes]
        indices[dim] = indices[dim] * WORD + byte
        guard = (Within(indices[dim], 0, extent),) if extent % WORD else ()
        one = Cast(Cast(Load(load.buffer, tuple(indices), guard), "uint8"), _SUM)
        part = Binary("shl", one, Const(8 * byte, _SUM), _SUM) if byte else one
        value = part if value is None else Binary("bitor", value, part, _SUM)
    assert value is not None
    if flipped:
        value = Binary("xor", value, Const(_SIGN_BITS, _SUM), _SUM)
    output = Buffer(fresh_buffer(op, f"{load.buffer.name}_words"), shape, _SUM, "temporary")
    return TensorOp(output, axes, tuple(Index.axis(axis.name) for axis in axes), value)


def _dot(unsigned: Value, signed: Value) -> Binary:
    return Binary("dot", unsigned, signed, _SUM)


def _sums(op: TensorOp, words: Value, factor: Load, axes: tuple[Axis, ...], unsigned: bool) -> TensorOp:
    """The sums of a factor over all that is reduced, one for each of its places."""
    own = tuple(axis for axis in axes if axis.role == "reduce" or axis.name in factor.axes())
    kept = tuple(axis for axis in own if axis.role == "spatial")
    ones = Const(_ONES, _SUM)
    body = _dot(words, ones) if unsigned else _dot(ones, words)
    reduced = tuple(axis.name for axis in own if axis.role == "reduce")
    output = Buffer(fresh_buffer(op, f"{factor.buffer.name}_sums"), tuple(a.extent for a in kept), _SUM, "temporary")
    target = tuple(Index.axis(axis.name) for axis in kept)
    reduction = Reduction("sum", named_combiner("sum", _SUM), reduced, (body,))
    return TensorOp(output, own, target, Partial("sum", _SUM), (reduction,))


def _put_right(result: Value, reduction: Reduction, sums: TensorOp, op: str) -> Value:
    """The result of the sum with the shift of one factor, 128 times the sum of the other, taken back."""
    shift = Binary("mul", Load(sums.output, sums.target), Const(128, _SUM), _SUM)

    def change(value: Value) -> Value | None:
        return Binary(op, value, shift, _SUM) if value == Partial(reduction.name, _SUM) else None

    return transform(result, change)
