"""Clocks of one compute superstep of the slowest tile.

Formulas: PopLibs' estimators of its vertices (1x1 and nx1 partial convolutions, addition of partial results,
elementwise and reducing vertices), condensed; every constant is a cost of the device.  ``workers`` take turns: an
instruction of each takes ``thread_issue_clocks``, idle workers or not, and the slowest worker counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Partial
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, Instruction
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.numeric import Number, ceil_div, least, most

_DATA_PATH_BYTES = 8


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """What one tile's matrix vertex does in one superstep: ``vertices`` products of ``rows`` by ``outputs`` by
    ``inputs``, each summed over ``taps``; rows come in image rows of ``width``."""

    vertices: Number
    rows: Number
    width: Number
    outputs: Number
    inputs: Number
    taps: Number


def matrix_clocks(work: MatrixWork, instruction: Instruction, device: Device) -> Number:
    """Clocks of the matrix instruction's vertices."""
    costs = costs_of(device)
    per_worker = most(costs.amp_least_rows, ceil_div(work.rows, device.limits.threads_per_unit))
    inputs, outputs = ceil_div(work.inputs, instruction.k), ceil_div(work.outputs, instruction.n)
    row, issue = 1 / instruction.per_clock, costs.thread_issue_clocks
    if isinstance(work.taps, int) and work.taps == 1:
        block = costs.amp_block_clocks + costs.amp_weight_clocks
        block += issue * (instruction.latency_clocks + row * per_worker)
        clear = issue * outputs * (costs.amp_zero_call_clocks + row * per_worker)
        one = costs.amp_call_clocks + costs.amp_input_clocks * inputs + inputs * outputs * block + clear
        return work.vertices * one
    pieces = least(ceil_div(work.rows, work.width), ceil_div(per_worker, work.width) + 1)
    half = ITEMSIZE[instruction.dtype] < 4
    piece = costs.amp_conv_piece_half_clocks if half else costs.amp_conv_piece_clocks
    tap = costs.amp_conv_tap_clocks + costs.amp_weight_clocks
    tap += issue * (costs.amp_conv_worker_clocks + piece * pieces + row * per_worker)
    block = costs.amp_conv_block_clocks + work.taps * tap
    clear = issue * outputs * (costs.amp_zero_call_clocks + costs.amp_conv_zero_clocks * per_worker)
    one = costs.amp_conv_call_clocks + costs.amp_conv_input_clocks * inputs + inputs * outputs * block + clear
    return work.vertices * one


def partials_clocks(parts: Number, outputs: Number, device: Device) -> Number:
    """Adding ``parts`` partial results of each of a tile's ``outputs``."""
    costs = costs_of(device)
    vectors = ceil_div(ceil_div(outputs, int(costs.partial_vector) or 1), device.limits.threads_per_unit)
    each = costs.partial_input_clocks * parts + costs.partial_output_clocks
    return costs.thread_issue_clocks * (costs.partial_call_clocks + each * vectors)


def vector_clocks(elements: Number, operations: float, dtype: str, device: Device) -> Number:
    """An elementwise vertex of ``operations`` for each element, the first of them in the loop's own slots."""
    costs = costs_of(device)
    vectors = ceil_div(elements, device.limits.threads_per_unit * width(dtype))
    slots = (costs.vector_loop_clocks + max(0.0, operations - 1)) * vectors
    return costs.thread_issue_clocks * (costs.vector_call_clocks + slots) + costs.vector_end_clocks


def dot_clocks(outputs: Number, length: Number, operations: float, dtype: str, device: Device) -> Number:
    """A vertex that reduces ``length`` elements, ``operations`` each, for each of a tile's outputs."""
    costs = costs_of(device)
    per_worker = ceil_div(outputs, device.limits.threads_per_unit)
    slots = costs.dot_call_clocks + max(1.0, operations) * ceil_div(length, width(dtype))
    return costs.thread_issue_clocks * per_worker * slots


def width(dtype: str) -> int:
    """Elements of a vector of the data path."""
    return max(1, _DATA_PATH_BYTES // ITEMSIZE[dtype])


def phase_operations(op: TensorOp, device: Device) -> tuple[float, ...]:
    """Issue slots of the arithmetic of one point, for each reduction and the result; a multiply-add is one."""
    costs: Costs = costs_of(device)
    return tuple(
        sum(count * costs.operation(name) for name, count in phase.operations if name != "cast")
        for phase in facts_of(op).phases
    )


def result_clocks(op: TensorOp, outputs: Number, device: Device) -> Number:
    """What is done to finished reductions: nothing where they are stored as they are."""
    if isinstance(op.result, Partial):
        return 0
    return vector_clocks(outputs, phase_operations(op, device)[-1], op.output.dtype, device)


def plain_clocks(op: TensorOp, blocks: dict[str, Any], device: Device) -> Number:
    """A superstep without the matrix instruction: reductions, each over the whole block, and the result."""
    spatial = size_of(blocks, [a.name for a in op.of_role("spatial")])
    inner = size_of(blocks, [a.name for a in op.of_role("reduce", "row")])
    total: Number = 0
    operations = phase_operations(op, device)
    for reduction, slots in zip(op.reductions, operations, strict=False):
        total = total + dot_clocks(spatial, inner, slots, reduction.bodies[0].dtype, device)
    rows = size_of(blocks, [a.name for a in op.of_role("row")])
    if not op.reductions or op.of_role("row"):
        return total + vector_clocks(spatial * rows, operations[-1], op.output.dtype, device)
    return total + result_clocks(op, spatial, device)


def size_of(blocks: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Points of a block along these axes."""
    return prod((blocks[name] for name in names), start=1)
