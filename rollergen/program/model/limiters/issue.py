"""Issue: the instructions of one thread, and how many a unit issues in a clock."""

from __future__ import annotations

from rollergen.expr.values import loads
from rollergen.hal.spec import Device
from rollergen.program.loops import (
    asked_lanes,
    asking_depth,
    ids_by_lane,
    line_loops,
    panel_part,
    prefetched_lines,
    prefetched_loads,
    prefetched_takes,
    prefetches_lines,
)
from rollergen.program.model.access import Access
from rollergen.program.model.costs import Costs
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose, is_nothing
from rollergen.program.model.work import Work
from rollergen.program.rprogram import GRID, LANE, PARALLEL


def instructions_of(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Instructions of one thread in one block."""
    instruction = device.instruction(nest.stage.compute.instruction)
    each_slot = instruction.issued if instruction.is_dot_product else 1
    total = work.products * instruction.issued + work.slots * each_slot
    iterations = sum([phase.iterations for phase in work.phase_reads])
    total = total + sum(work.converting)
    total = total + costs.loop_instructions * (iterations + work.window_steps)
    total = total + costs.spill_accesses * work.spilled * work.steps
    if nest.stage.prefetch >= 0:
        total = total + _prefetches(nest)
    for access in work.accesses:
        each = instructions_of_access(nest, costs, work, access)
        if not is_nothing(each):
            total = total + access.count * each
    return total


def instructions_of_access(nest: Nest, costs: Costs, work: Work, access: Access) -> Number:
    """Of each such access of a thread."""
    each: Number = 0
    if access.role == "read":
        each = 1 - choose(access.uses == 1, costs.memory_operands, 0)
    elif access.role == "fill_read":
        each = costs.staging_instructions + access.decoded * costs.decode_instructions
    elif access.role == "realigning_read":
        each = _REALIGNING
    elif access.role == "box":
        each = costs.asynchronous_instructions
    elif access.role == "fill_past":
        each = costs.asynchronous_instructions + access.decoded * costs.decode_instructions
    elif access.role in _ONE_EACH or (access.role in ("write", "read_back") and not work.reduces):
        each = 1
    one_by_one: Number = 0
    if not is_nothing(access.broken):
        one_by_one = access.broken * nest.lanes
        each = each * (1 - access.broken) + one_by_one
    if not is_nothing(access.tested):
        past = access.role == "fill_past" and costs.asynchronous_guard_instructions
        each = each + access.tested * (past or costs.guard_instructions) * (1 + one_by_one)
    if access.role == "read" and not is_nothing(access.decoded):
        each = each + access.decoded * costs.decode_instructions
    return each


def _prefetches(nest: Nest) -> Number:
    """Instructions of one thread that ask for lines of the next row: one for each vector that the last reduction
    reads of it; of the next panel, one for each step of a register tile; of later steps, one for each vector; of takes,
    one for each lane that is asked for, and one that reads ids for it or for all of them."""
    points = nest.product(lambda p, loop: loop.kind not in (GRID, *PARALLEL, LANE))
    if not nest.stage.op.reductions:
        takes = [(len(asked_lanes(nest.stage, take)), take) for take in prefetched_takes(nest.stage)]
        return sum(lanes + (lanes if ids_by_lane(nest.stage, take) else 1) for lanes, take in takes) * points
    if prefetches_lines(nest.stage):
        positions = nest.in_thread()
        before = [p for p in positions if p < asking_depth(nest.stage)]
        return sum(nest.passed((*before, *line_loops(nest.stage, load))) for load, _ in prefetched_lines(nest.stage))
    asked = len(prefetched_loads(nest.stage, loads(*nest.stage.op.reductions[-1].bodies)))
    part = panel_part(nest.stage)
    if part is not None:
        return asked * part.each * nest.passed(tuple([p for p in nest.in_thread() if p < part.depth]))
    return asked * points


_REALIGNING = 20
"""Instructions of a vector that is put together of two pieces, beyond those of one that lies aligned: a load, 11
choices between words, 4 shifts by half a word, and some four that say where it lies.  (Products of 1025 and of 1024,
whole tiles of 128 x 128 x 32 and 128 x 256 x 32, in machine code: 21.3 for sm_70, 19.3 for sm_80.)"""

_ONE_EACH = ("exchange", "ahead_read", "spill_write", "spill_read")


def issue_rate(device: Device, costs: Costs) -> float:
    return costs.issue_per_clock or device.schedulers
