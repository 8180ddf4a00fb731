"""The tile of a chain of two contractions (`InnerNest`), read off its loops, and which blocks of keys a block runs."""

from __future__ import annotations

from collections.abc import Iterable

from rollergen.errors import ProgramError
from rollergen.expr.chains import split_factors
from rollergen.expr.index import Index
from rollergen.expr.reductions import free_axes
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, Value, loads, multiplied
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import GRID, LANE, SERIAL, UNROLL, Loop, Stage


@dataclass(frozen=True, slots=True)
class ChainRoles:
    """What axes do in a chain: ``rows`` (queries) lie in the lanes, ``key`` is summed away by the outer contraction,
    ``inner`` ones by the inner one, ``column`` indexes what is weighed; blocks of the grid have a point of each of
    ``batch``."""

    rows: str
    key: str
    column: str
    inner: tuple[str, ...]
    batch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Factors:
    """The operands of a chain: of the inner contraction ``queries`` and ``keys``, of the outer one the ``weights``,
    which know the inner one, and what they weigh (``weighed``)."""

    queries: Value
    keys: Value
    weights: tuple[Value, ...]
    weighed: tuple[Value, ...]


def chain_factors(op: TensorOp) -> Factors:
    """The operands of a tensor op with inner axes."""
    inner, outer = op.reductions[0], op.reductions[-1]
    (key,) = outer.axes
    a, b = multiplied(inner.bodies[0])
    queries, keys = (b, a) if key in free_axes(a) else (a, b)
    weights, weighed = split_factors(outer.bodies[0])
    return Factors(queries, keys, tuple(weights), tuple(weighed))


def chain_roles(op: TensorOp, loops: Iterable[Loop] = ()) -> ChainRoles | None:
    """The roles of the axes: rows are the longest axis that neither keys nor what they weigh have, or with ``loops``
    the one of the last loop over blocks; None where there are several columns or keys."""
    if op.inner is None or len(op.of_role("reduce")) != 1:
        return None
    found = chain_factors(op)
    weighed, keys = _axes(found.weighed), free_axes(found.keys)
    scored = keys | free_axes(found.queries) | _axes(body for one in op.reductions[:-1] for body in one.bodies)
    scored |= _axes(found.weights)
    spatial = op.of_role("spatial")
    columns = [axis for axis in spatial if axis.name in weighed and axis.name not in scored]
    rows = [axis for axis in spatial if axis.name in free_axes(found.queries) and axis.name not in keys | weighed]
    if len(columns) != 1 or not rows:
        return None
    last = [loop.axis for loop in loops if loop.kind == GRID][-1:]
    row = next((axis for axis in rows if axis.name in last), max(rows, key=lambda axis: axis.extent))
    batch = tuple(axis.name for axis in spatial if axis not in (row, columns[0]))
    inner = tuple(axis.name for axis in op.of_role("inner"))
    return ChainRoles(row.name, op.of_role("reduce")[0].name, columns[0].name, inner, batch)


def read_columns(op: TensorOp, column: str) -> int:
    """The columns of what a chain weighs that its loads' bounds let through; sums of the others are 0."""
    weighed = loads(*chain_factors(op).weighed)
    bounds = [bound.high for load in weighed for bound in load.guard if bound.index == Index.axis(column)]
    return min([op.axis(column).extent, *bounds])


def turned_loads(op: TensorOp, roles: ChainRoles) -> tuple[Load, ...]:
    """What scores read of each row and key where a row's keys lie side by side (masks): it is turned before a block of
    keys, so that rows do."""
    values = [body for one in op.reductions[1:-1] for body in one.bodies] or list(chain_factors(op).weights)
    return tuple(load for load in dict.fromkeys(loads(*values)) if _is_turned(load, roles))


def _is_turned(load: Load, roles: ChainRoles) -> bool:
    offset = load.offset()
    beside = offset.coefficient(roles.key) == 1 and roles.key not in offset.without(roles.key).axes()
    return beside and roles.rows in offset.axes() and load.dtype in ("bool", "float32") and not load.guard


def _axes(values: Iterable[Value]) -> frozenset[str]:
    return frozenset().union(*map(free_axes, values))


@dataclass(frozen=True, slots=True)
class ChainTile:
    """Sizes: ``vectors`` of ``lanes`` rows; ``keys`` of a block, ``inner_keys`` of them side by side in registers while
    scores are found; ``columns`` side by side while what they weigh is added up."""

    lanes: int
    vectors: int
    keys: int
    inner_keys: int
    columns: int

    @property
    def rows(self) -> int:
        return self.lanes * self.vectors

    @property
    def key_step(self) -> int:
        """Blocks of keys whose rest no row sees end after a multiple of it."""
        return self.keys if self.keys % self.inner_keys else self.inner_keys


def chain_loops(op: TensorOp, roles: ChainRoles, tile: ChainTile) -> tuple[tuple[Loop, ...], tuple[Loop, ...], int]:
    """(the stage's loops, those of its inner contraction, the depth of these) of a tile."""
    extent = op.extents()
    steps = lambda axis, size: -(-extent[axis] // size)
    own = (Loop(roles.rows, tile.vectors, tile.lanes, UNROLL), Loop(roles.rows, tile.lanes, 1, LANE))
    grid = [Loop(axis, extent[axis], 1, GRID) for axis in roles.batch]
    grid.append(Loop(roles.rows, steps(roles.rows, tile.rows), tile.rows, GRID))
    outer = (
        *grid,
        Loop(roles.key, steps(roles.key, tile.keys), tile.keys, SERIAL),
        Loop(roles.column, steps(roles.column, tile.columns), tile.columns, SERIAL),
        Loop(roles.key, tile.keys, 1, SERIAL),
        Loop(roles.column, tile.columns, 1, UNROLL),
        *own,
    )
    inner = (
        Loop(roles.key, steps_of(tile.keys, tile.inner_keys), tile.inner_keys, SERIAL),
        *[Loop(axis, extent[axis], 1, SERIAL) for axis in roles.inner],
        Loop(roles.key, tile.inner_keys, 1, UNROLL),
        *own,
    )
    return outer, inner, len(grid) + 1


def steps_of(size: int, step: int) -> int:
    return -(-size // step)


def tile_of_chain(stage: Stage) -> tuple[ChainRoles, ChainTile]:
    """The roles and sizes of a stage whose loops are a chain's.

    Raises ProgramError for loops that are not those of `chain_loops`.
    """
    roles = chain_roles(stage.op, stage.loops)
    if roles is None or stage.inner is None:
        raise ProgramError(f"stage {stage.name}: has an inner contraction; expected roles of its axes, and its loops")
    sized = {(loop.axis, loop.kind): loop.extent for loop in stage.loops}
    of_inner = {(loop.axis, loop.kind): loop.extent for loop in stage.inner.loops}
    tile = ChainTile(
        lanes=sized.get((roles.rows, LANE), 0),
        vectors=sized.get((roles.rows, UNROLL), 0),
        keys=sized.get((roles.key, SERIAL), 0),
        inner_keys=of_inner.get((roles.key, UNROLL), 0),
        columns=sized.get((roles.column, UNROLL), 0),
    )
    sizes = (tile.lanes, tile.vectors, tile.keys, tile.inner_keys, tile.columns)
    if min(sizes) < 1 or chain_loops(stage.op, roles, tile) != (stage.loops, stage.inner.loops, stage.inner.at_loop):
        raise ProgramError(
            f"stage {stage.name}: the loops are not those of a chain of {roles.rows} and {roles.key}; "
            "expected those of `chains.chain_loops`, for some sizes"
        )
    return roles, tile


def tail_vectors(op: TensorOp, roles: ChainRoles, tile: ChainTile) -> int:
    """How many vectors of the last tile have rows: it computes with no others."""
    return steps_of((op.extents()[roles.rows] - 1) % tile.rows + 1, tile.lanes)


def mean_vectors(op: TensorOp, roles: ChainRoles, tile: ChainTile) -> float:
    """The vectors of rows that a block computes with on average."""
    blocks = steps_of(op.extents()[roles.rows], tile.rows)
    return tile.vectors - (tile.vectors - tail_vectors(op, roles, tile)) / blocks


def key_bounds(bounds: Iterable[Index], rows: str, low: Index, high: Index, *, least: bool) -> list[Index]:
    """Each bound on keys at that row from ``low`` to ``high`` where it is least, or largest; other axes stay."""
    ends = ((index, low if (index.coefficient(rows) >= 0) == least else high) for index in bounds)
    return [index.substitute({rows: end}) for index, end in ends]
