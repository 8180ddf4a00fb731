"""What no program of an operator can beat on a device: the roofline over whole operators, cheap at any size.

The model's own `roofline_seconds` counts distinct addresses of a stage, which takes minutes for a convolution of
10^11 points; here the distinct values of each dimension's index are counted, which is exact where no two dimensions
of a tensor share an axis.
"""

from __future__ import annotations

from math import prod

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.model.roofline import multiply_add_seconds
from rollergen.program.rprogram import RProgram


def roofline_seconds(graph: Graph, program: RProgram, device: Device) -> float:
    """The larger of all multiply-adds at the nominal rate of the program's instructions, and of the bytes of inputs
    and outputs, each element once, at the nominal bandwidth of the backing store.

    ``graph``: the operator as `rollergen.expr.stages.cut` leaves it, whose axes are not merged.
    """
    store = device.backing
    nominal = store.bandwidth_nominal_gb_s or store.bandwidth_gb_s
    seconds = sum(multiply_add_seconds(stage, device) for stage in program.stages if stage.op.reductions)
    return max(seconds, touched_bytes(graph) / (nominal * 1e9)) if nominal else seconds


def touched_bytes(graph: Graph) -> int:
    """Bytes of the distinct elements of the graph's inputs that its tensor ops read, and of what it writes."""
    most: dict[str, int] = {}
    for op in graph.tensor_ops:
        for load in op.loads():
            if load.buffer.kind == "input":
                elements = prod(
                    _distinct(op, *pair) for pair in zip(load.indices, load.buffer.shape, strict=True)
                )
                most[load.buffer.name] = max(most.get(load.buffer.name, 0), elements * ITEMSIZE[load.dtype])
    written = (one.output for one in graph.tensor_ops if one.output.kind == "output")
    return sum(most.values()) + sum(prod(one.shape) * ITEMSIZE[one.dtype] for one in written)


def _distinct(op: TensorOp, index: Index, extent: int) -> int:
    """How many positions of a dimension of ``extent`` the index takes."""
    names = sorted(index.axes())
    if not names:
        return 1
    grids = np.meshgrid(*(np.arange(op.axis(name).extent) for name in names), sparse=True, indexing="ij")
    values = np.unique(index.evaluate(dict(zip(names, grids, strict=True))))
    return int(((values >= 0) & (values < extent)).sum())
