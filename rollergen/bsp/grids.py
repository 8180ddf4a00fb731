"""Grids of tiles for one tensor op on a bulk-synchronous machine, priced all at once.

The space: how many tiles along each spatial axis and how many parts of the reduction, at most one block a tile.
The price is the model's own (`bsp.model.clocks`) on the block of an interior tile, with each tile's own
share taken as one r-th of what r tiles want: good enough to order grids, not to promise a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.assemble import BulkPlan
from rollergen.bsp.model.clocks import (
    MatrixWork,
    matrix_clocks,
    partials_clocks,
    phase_operations,
    plain_clocks,
    result_clocks,
)
from rollergen.bsp.program import partial_is_result, spacing
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Load, Value, named_combiner
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.model.costs import costs_of
from rollergen.program.model.indices import range_of
from rollergen.program.model.numeric import ceil_div

Array = Any

MOST_GRIDS = 200_000
"""Grids that are priced at once; longer lists of blocks are thinned."""

MOST_STEPS = 1024

_FEW = 4
"""Where no more than one tile in so many would have an equal part of a reduction, the last part may be short."""


@dataclass(frozen=True, slots=True)
class Roles:
    """How a tensor op is computed: by a matrix instruction (``weights`` a load, its axes), or plainly (-1).
    ``inputs``: the reduce axis that parts and steps cut; "": none."""

    weights: int = -1
    outputs: str = ""
    inputs: str = ""
    instruction: Instruction | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """One point of the space: blocks of the spatial axes, parts of the reduction, supersteps; predicted clocks."""

    roles: Roles
    blocks: tuple[tuple[str, int], ...]
    parts: int
    steps: int
    clocks: float

    def plan(self, op: TensorOp, copied: tuple[int, ...]) -> BulkPlan:
        """The plan of the first (or only) stage; of ``op`` after it was split into parts."""
        blocks = self.blocks
        chunk = 0
        if self.parts > 1:
            blocks = (*blocks, (f"{self.roles.inputs}_part", 1))
        if self.steps > 1:
            chunk = _chunk(op.axis(self.roles.inputs).extent, self.steps, self.roles.instruction)
        return BulkPlan(
            blocks, copied, self.roles.instruction, self.roles.weights, self.roles.outputs, self.roles.inputs, chunk
        )


def matrix_roles(op: TensorOp, device: Device) -> Iterator[Roles]:
    """Either factor as the weights of a matrix instruction, where that has axes of its own and plain indices."""
    loads = _factors(op)
    if loads is None:
        return
    dtype = loads[0].dtype
    fitting = (i for i in device.instructions if i.k > 1 and i.m == 1 and i.dtype == dtype)
    instruction = next((i for i in fitting if i.accumulator_dtype == "float32"), None)
    if instruction is None or loads[1].dtype != dtype:
        return
    for weights in (1, 0):
        own, other = loads[weights], loads[1 - weights]
        plain = {str(index.terms[0][0]) for index in own.indices if len(index.terms) == 1 and index.is_affine}
        free = [a for a in op.of_role("spatial") if a.name in plain and a.name not in other.axes()]
        summed = [a for a in op.of_role("reduce") if a.name in plain and a.name in other.axes()]
        summed = [a for a in summed if not _slides(other, a.name, op)]
        if free and summed and not own.guard:
            outputs, inputs = max(free, key=lambda a: a.extent), max(summed, key=lambda a: a.extent)
            yield Roles(weights, outputs.name, inputs.name, instruction)


def plain_roles(op: TensorOp) -> Roles:
    """No matrix instruction; the longest reduce axis is cut."""
    reduced = op.of_role("reduce")
    return Roles(inputs=max(reduced, key=lambda a: a.extent).name if reduced else "")


def _slides(load: Load, axis: str, op: TensorOp) -> bool:
    """Whether the axis is a tap: it shares an index with a spatial axis."""
    spatial = {a.name for a in op.of_role("spatial")}
    return any(axis in index.axes() and index.axes() & spatial for index in load.indices)


def _factors(op: TensorOp) -> tuple[Load, Load] | None:
    """The factors of a plain sum of products of two tensors' elements."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    reduction = op.reductions[0]
    body = reduction.bodies[0]
    if reduction.combiner != named_combiner("sum", body.dtype) or not isinstance(body, Binary) or body.op != "mul":
        return None
    a, b = _uncast(body.a), _uncast(body.b)
    if isinstance(a, Load) and isinstance(b, Load) and a != b and op.body_loads() == (a, b):
        return a, b
    return None


def _uncast(value: Value) -> Value:
    return value.x if isinstance(value, Cast) else value


def grids(op: TensorOp, roles: Roles, device: Device, room: int, count: int) -> list[Grid]:
    """The `count` cheapest grids that fit; ``room``: bytes of each tile for operands, results and copies."""
    axes, columns, parts = _space(op, roles, device)
    if not len(parts):
        return []
    blocks = dict(zip(axes, columns, strict=True))
    space = _Priced(op, roles, device, blocks, parts, room)
    clocks, steps = space.priced()
    order = np.argsort(np.round(clocks, 6), kind="stable")
    order = order[np.isfinite(clocks[order])][:count]
    return [
        Grid(roles, _gridded(op, {n: int(c[at]) for n, c in blocks.items()}), int(parts[at]), int(steps[at]),
             float(clocks[at]))
        for at in order
    ]  # fmt: skip


def grid_count(op: TensorOp, roles: Roles, device: Device) -> int:
    """How many grids `grids` prices."""
    return len(_space(op, roles, device)[2])


def _gridded(op: TensorOp, blocks: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The blocks of axes that are cut at all."""
    return tuple((name, size) for name, size in blocks.items() if size < op.axis(name).extent)


def _space(op: TensorOp, roles: Roles, device: Device) -> tuple[list[str], list[Array], Array]:
    """(spatial axes, a block along each for every grid, parts of the reduction for every grid)."""
    axes = [axis.name for axis in op.of_role("spatial")]
    choices = [_blocks(op, name, roles, device.units) for name in axes]
    choices.append(_parts(op, roles, device.units))
    while prod(map(len, choices)) > MOST_GRIDS and any(len(c) > 3 for c in choices):
        longest = max(range(len(choices)), key=lambda n: len(choices[n]))
        choices[longest] = _thinned(choices[longest])
    extents = [op.axis(name).extent for name in axes]
    counts = [np.array([-(-e // b) for b in c]) for e, c in zip(extents, choices, strict=False)]
    counts.append(np.array(choices[-1]))
    # Grown axis by axis, so that what has too many tiles is never formed.
    tiles = np.ones(1, dtype=np.int64)
    picked: list[Array] = []
    for own, number in zip(choices, counts, strict=True):
        grown = tiles[:, None] * number[None, :]
        before, now = np.nonzero(grown <= device.units)
        picked = [*(column[before] for column in picked), np.array(own)[now]]
        tiles = grown[before, now]
    return axes, picked[:-1], picked[-1]


def _blocks(op: TensorOp, name: str, roles: Roles, units: int) -> list[int]:
    """Distinct lengths of blocks that divide an axis among 1, 2, ... tiles, whole blocks of outputs."""
    extent = op.axis(name).extent
    unit = roles.instruction.n if roles.instruction is not None and name == roles.outputs else 1
    lengths = {ceil_div(ceil_div(extent, tiles), unit) * unit for tiles in range(1, min(extent, units) + 1)}
    return sorted({min(length, extent) for length in lengths}, reverse=True)


def _parts(op: TensorOp, roles: Roles, units: int) -> list[int]:
    """Numbers of parts of the reduction, where these can be combined in shares: divisors of its axis, and where that
    has few, and no matrix instruction wants whole operands, others too."""
    alone = len(op.reductions) == 1 and len(op.reductions[0].bodies) == 1
    if not roles.inputs or not alone or op.of_role("row") or op.where or op.result_loads():
        return [1]
    if op.of_role("reduce") and any(
        op.axis(roles.inputs).name not in load.axes() for load in op.body_loads()
    ):
        return [1]
    extent = op.axis(roles.inputs).extent
    equal = [parts for parts in range(1, min(extent, units) + 1) if extent % parts == 0]
    if roles.weights >= 0 or _FEW * equal[-1] > min(extent, units):
        return equal
    shares = {-(-extent // parts) for parts in (*(2**n for n in range(1, units.bit_length())), units)}
    return sorted({*equal, *(-(-extent // share) for share in shares)})


def _thinned(choices: Sequence[int]) -> list[int]:
    """Every other choice, both ends kept."""
    return [*choices[:-1:2], choices[-1]]


class _Priced:
    """The price of many grids at once; arrays have one entry for each."""

    def __init__(
        self, op: TensorOp, roles: Roles, device: Device, blocks: dict[str, Array], parts: Array, room: int
    ) -> None:
        self.op, self.roles, self.device, self.room = op, roles, device, room
        self.parts, self.costs = parts, costs_of(device)
        self.counts = {n: -(-op.axis(n).extent // b) for n, b in blocks.items()}
        self.blocks: dict[str, Any] = dict(blocks)
        for axis in op.of_role("reduce", "row"):
            self.blocks[axis.name] = axis.extent
        if roles.inputs:
            self.blocks[roles.inputs] = -(-op.axis(roles.inputs).extent // parts)
        self.outputs: Array = prod((self.blocks[a.name] for a in op.of_role("spatial", "row")), start=1)

    def priced(self) -> tuple[Array, Array]:
        """(clocks, supersteps): the fewest steps that fit, infinite where none do."""
        clocks = np.full(len(self.parts), np.inf)
        chosen = np.ones(len(self.parts), dtype=np.int64)
        steps = 1
        longest = int(np.max(self.blocks[self.roles.inputs])) if self.roles.inputs else 1
        while steps == 1 or steps <= min(longest, MOST_STEPS):
            fits, price = self._at(steps)
            new = fits & np.isinf(clocks)
            if self.roles.inputs and steps > 1:
                new &= self.blocks[self.roles.inputs] >= steps
            clocks = np.where(new, price, clocks)
            chosen = np.where(new, steps, chosen)
            if np.all(np.isfinite(clocks)):
                break
            steps *= 2
        return clocks, chosen

    def _at(self, steps: int) -> tuple[Array, Array]:
        """(which fit, clocks) in so many supersteps."""
        blocks = dict(self.blocks)
        if steps > 1:
            blocks[self.roles.inputs] = _chunk(blocks[self.roles.inputs], steps, self.roles.instruction)
        held: Array = np.zeros(len(self.parts))
        received, own_bytes = np.zeros(len(self.parts)), np.zeros(len(self.parts))
        for number, load in enumerate(self.op.loads()):
            copy, real, wanting = self._operand(load, number, blocks)
            times = steps if steps > 1 and self.roles.inputs in load.axes() else 1
            own = real / wanting
            copied = (wanting > 1) | (self.roles.weights >= 0)
            received += np.where(copied, (real - own) * times, 0)
            own_bytes += np.where(copied, own * times, 0)
            held = held + own * times + np.where(copied, copy, 0)
        item, accumulator = ITEMSIZE[self.op.output.dtype], self._accumulator_bytes()
        partial = self._padded_outputs(blocks) * accumulator
        needs_partial = (self.parts > 1) | (not self._in_place()) & (self.roles.weights >= 0)
        held = held + np.where(needs_partial, partial, 0) + self.outputs / np.maximum(self.parts, 1) * item
        compute = steps * self._compute(blocks) + self._finish()
        rate = self.device.read_bytes_per_clock(self.device.backing)
        exchange = received / rate + own_bytes * self.costs.home_copy_clocks
        price = compute + exchange + steps * self.costs.exchange_clocks + self._combining(accumulator)
        return held <= self.room, np.broadcast_to(price, held.shape)

    def _operand(self, load: Load, number: int, blocks: dict[str, Any]) -> tuple[Array, Array, Array]:
        """(bytes of a copy, of what is real in it, how many tiles want it)."""
        copy, real = np.full(len(self.parts), ITEMSIZE[load.dtype]), np.full(len(self.parts), ITEMSIZE[load.dtype])
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            step = spacing(index)
            span = (range_of(index, blocks) - 1) // step + 1
            real = real * np.minimum(span, -(-extent // step))
            unit = self._unit(number, index.axes())
            copy = copy * (-(-span // unit) * unit)
        wanting: Array = np.ones(len(self.parts), dtype=np.int64)
        for name, count in self.counts.items():
            if name not in load.axes():
                wanting = wanting * count
        if self.roles.inputs not in load.axes():
            wanting = wanting * self.parts
        return copy, real, wanting

    def _unit(self, number: int, axes: frozenset[str]) -> int:
        """To multiples of what a dimension of a matrix instruction's operand is padded."""
        instruction = self.roles.instruction
        if instruction is None or number >= len(self.op.body_loads()):
            return 1
        if self.roles.outputs in axes and number == self.roles.weights:
            return instruction.n
        return instruction.k if self.roles.inputs in axes else 1

    def _accumulator_bytes(self) -> int:
        reductions = self.op.reductions
        return ITEMSIZE[reductions[0].bodies[0].dtype if reductions else self.op.output.dtype]

    def _in_place(self) -> bool:
        return partial_is_result(self.op)

    def _padded_outputs(self, blocks: dict[str, Any]) -> Array:
        if self.roles.instruction is None:
            return self.outputs
        n, block = self.roles.instruction.n, blocks[self.roles.outputs]
        return self.outputs // block * (-(-block // n) * n)

    def _compute(self, blocks: dict[str, Any]) -> Array:
        if self.roles.instruction is None:
            return plain_clocks(self.op, blocks, self.device)
        return matrix_clocks(self._work(blocks), self.roles.instruction, self.device)

    def _work(self, blocks: dict[str, Any]) -> MatrixWork:
        loads = self.op.body_loads()
        weights, inputs = loads[self.roles.weights].axes(), loads[1 - self.roles.weights].axes()
        spatial = [axis.name for axis in self.op.of_role("spatial")]
        rows = [name for name in spatial if name in inputs and name not in weights]
        taps = [axis.extent for axis in self.op.of_role("reduce") if axis.name != self.roles.inputs]
        others = [name for name in spatial if name not in rows and name != self.roles.outputs]
        size = lambda names: prod((blocks[name] for name in names), start=1)
        width = blocks[rows[-1]] if rows else 1
        return MatrixWork(
            size(others), size(rows), width, blocks[self.roles.outputs], blocks[self.roles.inputs], prod(taps)
        )

    def _finish(self) -> Array:
        """What follows the products where they are not split."""
        if self.roles.instruction is None:
            return 0
        return np.where(self.parts > 1, 0, result_clocks(self.op, self.outputs, self.device))

    def _combining(self, item: int) -> Array:
        """The superstep in which parts are added."""
        shares = -(-self.outputs // self.parts)
        clocks = partials_clocks(self.parts, shares, self.device)
        if phase_operations(self.op, self.device)[-1]:
            clocks = clocks + result_clocks(self.op, shares, self.device)
        exchange = (self.parts - 1) * shares * item / self.device.read_bytes_per_clock(self.device.backing)
        return np.where(self.parts > 1, clocks + exchange + self.costs.exchange_clocks, 0)


def _chunk(extent: Any, steps: int, instruction: Instruction | None) -> Any:
    """Elements of a reduction of one superstep: whole blocks of inputs."""
    unit = instruction.k if instruction is not None else 1
    return ceil_div(ceil_div(extent, steps), unit) * unit
