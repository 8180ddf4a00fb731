"""Batches of contractions: the points that have the loops and copies of one nest, as one plan of columns.

What else a plan decides (vectors of copies, padding of rows, guards, swizzle) follows from the sizes, point by point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.levels import MULTIPLIED, MULTIPLIED_BY_THREADS
from rollergen.program.assemble.plan import ContractionPlan, Roles
from rollergen.space.engine import Points

_WIDEST = 8
"""Elements of a vector of 16 bytes of the narrow dtypes."""


def batches(
    points: Points, op: TensorOp, roles: Roles, device: Device, **fixed: Any
) -> Iterator[tuple[Points, ContractionPlan]]:
    """The points, those of one structure together, with the plan of all of them; ``fixed``: sizes that all share."""
    for alike in points.alike(*_structure(points, op, roles, device, fixed)):
        yield alike, contraction_plan(alike.sizes(), fixed)


def contraction_plan(sizes: dict[str, Any], fixed: dict[str, Any]) -> ContractionPlan:
    """The plan of these sizes; threads that share a layer unroll a whole step of the reduction."""
    plan = {**fixed, **sizes}
    unrolled = plan.pop("unrolled", False)
    return ContractionPlan(**plan, unroll=plan["kc"]) if unrolled else ContractionPlan(**plan)


def _structure(
    points: Points, op: TensorOp, roles: Roles, device: Device, fixed: dict[str, Any]
) -> list[np.ndarray]:
    """Columns in which points with the same loops and copies agree."""
    of = {digit.name for digit in points.digits}
    size = lambda name: points[name] if name in of else np.full(len(points), fixed.get(name, 1))
    k_extent = op.axis(roles.k).extent
    steps = size("kc")
    blocked, panels = steps < k_extent, size("pm") * size("pn") > 1
    found = [blocked * (1 + panels)]  # partial results wait in the output where blocks of k go over several panels
    longest = MULTIPLIED if not device.kind.threads else MULTIPLIED_BY_THREADS
    if k_extent > longest:
        found.append(steps)  # accumulators start anew after so many terms
    if not device.kind.threads:
        return found
    rows, columns = size("rm"), size("rn") * size("lanes")
    block = rows * size("tm") * size("pm"), columns * size("tn") * size("pn")
    staged = fixed.get("staged", ())
    if staged:
        found += [rows > 1, columns > 1, block[0] > 1, block[1] > 1, steps > 1]
    if dict(device.costs).get("uniform_loads"):
        moving = {roles.m: size("tm") > 1, roles.n: size("tn") > 1}
        for number, load in enumerate(op.body_loads()):
            own = [moves for axis, moves in moving.items() if axis in load.axes()]
            found += [np.logical_or.reduce(own)] if own and number not in staged else []
    if fixed.get("asynchronous") and any(ITEMSIZE[load.dtype] < 4 for load in op.body_loads()):
        found += [np.gcd(tile, _WIDEST) for tile in (*block, steps)]
    return found
