"""Lines that a chain with rows in lanes asks for before they are needed (`Stage.prefetch`).

Queries and results are read and written in one go, when no products hide how long their lines take: while the scores of
its own rows are computed, a block asks for the queries of the next rows and for where its results will be written.
Keys are asked for a group of them ahead, what they weigh while their scores are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, loads
from rollergen.hal.dataclass import dataclass
from rollergen.program.chains import ChainRoles, ChainTile, chain_factors, steps_of
from rollergen.program.loops import LINE_BYTES


@dataclass(frozen=True, slots=True)
class AskedLines:
    """What is asked for of ``load``, a few lines at each step of a score's sum.

    ``row``: the axis of its rows, ``ahead`` of those at hand; ``column``: the axis along which a row's ``columns``
    elements lie side by side.  Each step asks for the next ``step`` elements, row after row; all are asked for after
    ``groups`` groups of keys, the last of which go on asking for the same.  ``writing``: they will be written."""

    load: Load
    row: str
    ahead: int
    column: str
    columns: int
    step: int
    groups: int
    writing: bool = False

    @property
    def lines(self) -> range:
        """Where a step's lines begin, in elements behind the step's first one."""
        return range(0, self.step, LINE_BYTES // ITEMSIZE[self.load.dtype])


def asked_lines(op: TensorOp, roles: ChainRoles, tile: ChainTile) -> tuple[AskedLines, ...]:
    """Those of each operand whose rows lie in lines."""
    if len(roles.inner) != 1:
        return ()
    found, (inner,) = chain_factors(op), roles.inner
    return (
        *_of_block(op, roles, tile, loads(found.queries), inner, tile.rows),
        *_of_block(op, roles, tile, (op.stored(),), roles.column, 0),
        *_of_group(op, roles, tile, loads(found.keys), inner, tile.inner_keys),
        *_of_group(op, roles, tile, loads(*found.weighed), roles.column, 0),
    )


def _of_block(
    op: TensorOp, roles: ChainRoles, tile: ChainTile, some: Iterable[Load], column: str, ahead: int
) -> Iterator[AskedLines]:
    """A line a step, until a block's rows have been asked for."""
    columns, steps = op.axis(column).extent, op.axis(roles.inner[0]).extent
    for load in _in_lines(some, roles.rows, column):
        line = LINE_BYTES // ITEMSIZE[load.dtype]
        groups = steps_of(tile.rows * columns, line * steps)
        yield AskedLines(load, roles.rows, ahead, column, columns, line, groups, load == op.stored())


def _of_group(
    op: TensorOp, roles: ChainRoles, tile: ChainTile, some: Iterable[Load], column: str, ahead: int
) -> Iterator[AskedLines]:
    """The rows of a group of keys, shared out among its steps."""
    columns, steps = op.axis(column).extent, op.axis(roles.inner[0]).extent
    for load in _in_lines(some, roles.key, column):
        yield AskedLines(load, roles.key, ahead, column, columns, steps_of(tile.inner_keys * columns, steps), 1)


def _in_lines(some: Iterable[Load], row: str, column: str) -> Iterator[Load]:
    """Those that have such rows, whose elements lie side by side."""
    for load in some:
        offset = load.offset()
        if row in offset.axes() and offset.coefficient(column) == 1 and column not in offset.without(column).axes():
            yield load
