"""The public language: tensors, axes, `compute`, and the scalar functions used inside it.

>>> import rollergen as rg
>>> A, B = rg.tensor("A", (2, 3)), rg.tensor("B", (3, 4))
>>> k = rg.reduce_axis("k", 3)
>>> C = rg.compute((2, 4), lambda i, j: rg.sum(A[i, k] * B[k, j], axis=k), name="C")
>>> C.shape, C.dtype
((2, 4), 'float32')
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from rollergen.errors import DtypeError, ExpressionError, ShapeError, array_advice, shown
from rollergen.expr.checks import check_extent, check_name, check_shape, shallow_enough
from rollergen.expr.dtypes import PACKED, described, dtype_name, is_integer
from rollergen.expr.functions import absolute, atan2, cast, divide, function, maximum, minimum, remainder, select
from rollergen.expr.index import Index
from rollergen.expr.methods import Methods
from rollergen.expr.nibbles import element, packed_shape
from rollergen.expr.primitives import FUNCTIONS
from rollergen.expr.reads import check_reads
from rollergen.expr.reductions import Reduce, free_axes, max, min, prod, reduce, sum
from rollergen.expr.scalars import Expr, as_expr, merge_axes, power
from rollergen.expr.slots import ReduceAxis, axis, index_of, is_id
from rollergen.expr.takes import take_of
from rollergen.expr.values import TAKE_MODES, Buffer, Load, Value, walk
from rollergen.hal.dataclass import dataclass

abs = absolute
pow = power
globals().update({name: function(name) for name in FUNCTIONS})
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The functions, as rollergen/__init__.pyi declares them."""


__all__ = [
    *FUNCTIONS,
    "Expr",
    "Producer",
    "Reduce",
    "ReduceAxis",
    "Tensor",
    "abs",
    "atan2",
    "cast",
    "compute",
    "divide",
    "max",
    "maximum",
    "min",
    "minimum",
    "pow",
    "prod",
    "reduce",
    "reduce_axis",
    "remainder",
    "select",
    "sum",
    "take",
    "tensor",
]

_serial = itertools.count()

CALL_WORDS = ("out", "stream", "rounds")
"""Keywords of `Kernel.__call__` and `Kernel.benchmark`: an input of that name could not be passed by name."""


@dataclass(frozen=True, slots=True)
class Producer:
    """How a computed tensor comes about: `body` over its named axes (one for each dimension).

    ``target``: the element that each point of the axes is, where that is not its own (`puts`).  ``appear``: tensors
    that it reads, perhaps through others, in the order in which they count as appearing; before those of `body`.
    """

    axes: tuple[tuple[str, int], ...]
    body: Value
    target: tuple[Index, ...] = ()
    appear: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Tensor(Methods):
    """A tensor, given (``producer`` None) or computed; ``A[i, k]`` is one element.

    ``constant`` marks weights: what depends on these only is prepared once, at the first call.  Operators and methods
    are those of `rg.ops` (`Methods`); ``==`` compares identities.  ``buffer`` is what `Load` nodes name.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: str
    constant: bool
    producer: Producer | None
    buffer: Buffer

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.name or "the unnamed tensor"

    def __repr__(self) -> str:
        return f"<tensor {self.name or 'without a name'}: {self.dtype}{list(self.shape)}>"

    def __getitem__(self, indices: Any) -> Expr:
        slots = indices if isinstance(indices, tuple) else (indices,)
        if len(slots) != len(self.shape):
            got = f"{len(slots)}: {', '.join(map(str, slots))}"
            part = "; rg.ops.getitem(x, index) is a part of a tensor" if len(slots) < len(self.shape) else ""
            raise ShapeError(f"{self.label} has {len(self.shape)} dimensions {self.shape}; got {got}{part}")
        return self._element(slots, "raise")

    def _element(self, slots: tuple[Any, ...], mode: str) -> Expr:
        """The element at indices; ``mode``: of those that are values (`take`)."""
        ids = {p: slot for p, slot in enumerate(slots) if is_id(slot)}
        pairs = [index_of(0 if p in ids else slot, self.label, p) for p, slot in enumerate(slots)]
        axes = merge_axes({}, *(axes for _, axes in pairs), *(one.axes for one in ids.values()))
        read = Load(self.buffer, tuple(index for index, _ in pairs), source=self)
        at = [(p, one.value) for p, one in ids.items()]
        return Expr(take_of(read, at, mode) if at else read, axes)

    def __iter__(self) -> NoReturn:
        raise ExpressionError(f"{self.label} is not iterable; index it with axes inside rg.compute")

    def __bool__(self) -> NoReturn:
        raise ExpressionError(f"the truth of {self.label} is not known while an expression is built")

    def evaluate(self, *arrays: Any, **named: Any) -> Any:
        """The tensor's values for `arrays` by the definition, in float64 (integers in int64).

        Arrays go in the order in which input tensors first appear in the expression, or by name.
        Returns an array of ``shape``: float64, int64 or bool.  Raises ArgumentError for a wrong
        number, name or kind of array, ShapeError for a wrong shape.

        >>> import rollergen as rg
        >>> A = rg.tensor("A", (3,))
        >>> rg.compute((3,), lambda i: rg.maximum(A[i], 0.0)).evaluate([-1.0, 2.0, 3.0])
        array([0., 2., 3.])
        """
        from rollergen.expr.reference import evaluate  # which no build needs

        return evaluate(self, *arrays, **named)


Tensor.__module__ = "rollergen"  # whoever unpickles a tensor finds it there, operators included


def tensor(name: str, shape: Iterable[int], dtype: Any = "float32", constant: bool = False) -> Tensor:
    """A given tensor: an input of the kernel.

    ``constant`` marks weights, which are packed once, at the first call with them, and again when a call brings
    another array, the same one with other memory, or a torch tensor that torch has seen changed in place.  After
    changing a NumPy array in place (``w += 1``, ``w[...] = v``) call ``kernel.repack()``: rollergen cannot see such
    a change.

    int4 and uint4 are stored two to a byte: the kernel takes an array of ml_dtypes, which it packs at each call, or the
    bytes themselves, as `rg.pack` makes them.  Expressions have their elements as int8 and uint8.

    >>> tensor("A", (4, 8), dtype="float16").dtype
    'float16'

    Raises ExpressionError for a name that is not an identifier or for swapped arguments,
    ShapeError for an extent below 0, DtypeError for an unknown dtype.
    """
    if not isinstance(name, str):
        hint = f": the arguments look swapped: rg.tensor({shown(shape)}, {name!r})" if isinstance(shape, str) else ""
        raise ExpressionError(f"rg.tensor(name, shape): name is {name!r}; expected a string{hint}")
    if isinstance(shape, str):
        hint = f": shape and dtype look swapped: rg.tensor({name!r}, {dtype!r}, {shown(shape)})"
        raise ExpressionError(
            f"rg.tensor(name, shape, dtype): shape is {shown(shape)}; expected a tuple of integers{hint}"
        )
    if not isinstance(constant, bool):
        raise ExpressionError(f"rg.tensor({name!r}): constant is {shown(constant)}; expected True or False")
    check_name(name, "rg.tensor's name")
    if name in CALL_WORDS:
        raise ExpressionError(f"rg.tensor's name is {name!r}, an argument of every kernel's own; expected another name")
    extents, dtype = check_shape(shape, f"rg.tensor({name!r})"), dtype_name(dtype, f"{name}'s dtype", PACKED)
    if dtype in PACKED:
        return _packed(name, extents, dtype, constant)
    return Tensor(name, extents, dtype, constant, None, Buffer(name, extents, dtype, "input", constant))


def _packed(name: str, shape: tuple[int, ...], dtype: str, constant: bool) -> Tensor:
    """The elements of a given tensor that is stored as bytes."""
    extents = packed_shape(shape)
    buffer = Buffer(name, extents, "uint8", "input", constant, described(dtype, shape))
    stored = Tensor(name, extents, "uint8", constant, None, buffer)
    return compute_named(tuple((f"i{n}", m) for n, m in enumerate(shape)), lambda *i: element(stored, dtype, i), name)


def take(table: Tensor, ids: Tensor, axis: int = 0, mode: str = "raise") -> Tensor:
    """Elements of `table` along `axis` at the places that the integers `ids` give, as `numpy.take`.

    The result has the shape of `table` with that of `ids` in place of the axis.  Within `rg.compute` the same is
    ``table[ids[i], j]``.  Negative numbers count from the end.  ``mode`` says what numbers outside the axis mean:
    ``raise``: a call with such ids in host memory is refused with ArgumentError; in a GPU's memory, and of a saved
    kernel without rollergen, they mean the nearest element, as nothing outside the table is ever read.  ``clip``: the
    nearest element, of negative numbers the first; ``wrap``: the remainder.

    >>> import rollergen as rg
    >>> table, ids = rg.tensor("table", (3, 2)), rg.tensor("ids", (4,), "int64")
    >>> rg.take(table, ids).evaluate([[0, 1], [2, 3], [4, 5]], [2, 0, -1, 1])
    array([[4., 5.],
           [0., 1.],
           [4., 5.],
           [2., 3.]])

    Raises ExpressionError for what is no tensor, an unknown mode or axis, and DtypeError for ids that are no integers.
    `rg.build` raises ExpressionError where ``mode`` is ``raise`` and ids are computed that may be outside: the host
    could not check them.
    """
    for one, what in ((table, "table"), (ids, "ids")):
        if not isinstance(one, Tensor):
            raise ExpressionError(f"rg.take: {what} is {shown(one)}; expected a tensor{array_advice(one)}")
    if mode not in TAKE_MODES:
        raise ExpressionError(f"rg.take: mode is {shown(mode)}; expected one of {', '.join(TAKE_MODES)}")
    if isinstance(axis, bool) or not isinstance(axis, int) or not -table.ndim <= axis < table.ndim:
        raise ExpressionError(f"rg.take: axis is {shown(axis)}; {table.label} has {table.ndim} dimensions")
    if not is_integer(ids.dtype):
        raise DtypeError(f"rg.take: ids has dtype {ids.dtype}; expected an integer dtype")
    first = axis % table.ndim
    last = first + ids.ndim

    def element(*at: Any) -> Expr:
        return table._element((*at[:first], ids[at[first:last]], *at[last:]), mode)

    return compute((*table.shape[:first], *ids.shape, *table.shape[first + 1 :]), element)


def reduce_axis(name: str, extent: int) -> ReduceAxis:
    """An axis of `extent` for ``axis=`` of a reduction and for index slots.

    >>> reduce_axis("k", 64)
    reduce_axis('k', 64)

    Raises ExpressionError for a name that is no identifier, ShapeError for an extent that is no integer of at least 0.
    """
    if not isinstance(name, str):
        hint = (
            f": the arguments look swapped: rg.reduce_axis({shown(extent)}, {name!r})"
            if isinstance(extent, str)
            else ""
        )
        raise ExpressionError(f"rg.reduce_axis(name, extent): name is {name!r}; expected a string{hint}")
    check_name(name, "rg.reduce_axis's name")
    return ReduceAxis(name, check_extent(extent, f"rg.reduce_axis({name!r})"))


def compute(shape: Iterable[int], fn: Callable[..., Any], name: str | None = None) -> Tensor:
    """A tensor of `shape` whose element at ``(i, j, ...)`` is ``fn(i, j, ...)``.

    The names of `fn`'s parameters become the names of the axes (``*indices`` is accepted too).
    The dtype is that of the returned expression.

    >>> import rollergen as rg
    >>> A = rg.tensor("A", (2, 3))
    >>> rg.compute((3, 2), lambda j, i: A[i, j] * 2.0).shape
    (3, 2)

    Raises ShapeError where `fn` takes another number of indices than `shape` has, or reads out of
    range; NonAffineIndexError and ExpressionError for expressions that no kernel can compute.
    """
    if callable(shape) or not callable(fn):
        swapped = callable(shape) and not callable(fn)
        hint = ": the arguments look swapped: rg.compute(shape, fn)" if swapped else ""
        raise ExpressionError(f"rg.compute(shape, fn): shape is {shown(shape)} and fn is {shown(fn)}{hint}")
    if name is not None:
        check_name(name, "rg.compute's name")
    where = f"rg.compute of {name}" if name else "rg.compute"
    extents = check_shape(shape, where)
    names = _parameter_names(fn, len(extents), where)
    with shallow_enough(where):
        return compute_named(tuple(zip(names, extents, strict=True)), fn, name)


def compute_named(axes: tuple[tuple[str, int], ...], fn: Callable[..., Any], name: str | None = None) -> Tensor:
    """As `compute`, the axes given as (name, extent)."""
    where = f"rg.compute of {name}" if name else "rg.compute"
    try:
        result = fn(*(axis(*one) for one in axes))
    except IndexError as error:
        if not str(error).startswith("only integers, slices"):
            raise
        raise ExpressionError(
            f"{where}: an array is read at an axis; expected a rollergen tensor: for an array a, "
            'rg.tensor("x", a.shape, a.dtype) stands for it in an expression, and the built kernel takes the array'
        ) from None
    except TypeError as error:
        if "truth value of Relational" not in str(error):
            raise
        raise ExpressionError(
            f"{where}: {error}; write rg.select(condition, a, b) instead of if, "
            "(a <= i) & (i < b) instead of a <= i < b"
        ) from None
    if isinstance(result, tuple):
        raise ExpressionError(f"{where}: fn returned {len(result)} values; expected one, e.g. rg.reduce(...)[0]")
    expr = as_expr(result, f"{where}: the result")
    _check_axes(expr, dict(axes), where)
    check_reads(expr.value, {n: (0, extent - 1) for n, extent in axes}, where)
    return computed(name, axes, expr.value)


def computed(name: str | None, axes: tuple[tuple[str, int], ...], body: Value) -> Tensor:
    """The tensor of `body` over `axes`, unchecked; its buffer has an identity of its own, since names may repeat."""
    shape = tuple(extent for _, extent in axes)
    buffer = Buffer(f"{name or 't'}#{next(_serial)}", shape, body.dtype, "temporary")
    return Tensor(name, shape, body.dtype, False, Producer(axes, body), buffer)


def _check_axes(expr: Expr, axes: dict[str, int], where: str) -> None:
    merge_axes(axes, expr.axes)
    for node in walk(expr.value):
        for name in node.bound if isinstance(node, Reduce) else ():
            if name in axes:
                raise ExpressionError(f"{where}: {name!r} is an axis of the result and one of a reduction; rename one")
    for name in sorted(free_axes(expr.value) - axes.keys()):
        raise ExpressionError(
            f"{where}: the axis {name!r} is neither an axis of the result ({', '.join(axes) or 'none'}) "
            f"nor reduced over; expected a reduction with axis={name}"
        )


def _parameter_names(fn: Callable[..., Any], count: int, where: str) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        raise ExpressionError(
            f"{where}: the parameters of {shown(fn)} are not known to Python; "
            "expected a function, such as lambda i, j: ..."
        ) from None
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if keywords:
        raise ExpressionError(f"{where}: fn needs {keywords[0]!r} by keyword; expected indices by position alone")
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    starred = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    required = [p.name for p in parameters if p.default is p.empty and p.name in positional]
    if not len(required) <= count or (starred is None and count > len(positional)):
        raise ShapeError(
            f"{where}: fn takes ({', '.join(positional)}), {len(positional)} for the {count} dimensions of shape"
        )
    names = positional[:count]
    for n in range(count - len(names)):
        name = f"{starred}{n}"
        while name in names:
            name += "_"
        names.append(name)
    return tuple(names)
