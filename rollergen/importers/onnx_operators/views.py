"""ONNX operators that rearrange elements, and those that select them by integers that are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.language import Tensor
from rollergen.importers.onnx_operators.table import Node, operator, operators
from rollergen.importers.refusals import Refused

operators(
    Transpose=lambda n: ops.permute(n.tensor(0), n.get("perm") or tuple(reversed(range(n.tensor(0).ndim)))),
    Concat=lambda n: ops.concat([n.tensor(i) for i in range(len(n.inputs)) if filled(n, i)], n.get("axis")),
)


def filled(n: Node, position: int) -> bool:
    value = n.inputs[position]
    return isinstance(value, Tensor) or value.size > 0


@operator("Flatten")
def flatten(n: Node) -> Tensor:
    x = n.tensor(0)
    axis = n.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Reshape")
def reshape(n: Node) -> Tensor:
    x, wanted = n.tensor(0), list(n.integers(1, "shape"))
    if not n.get("allowzero", 0):
        wanted = [x.shape[d] if extent == 0 else extent for d, extent in enumerate(wanted)]
    return ops.reshape(x, wanted)


@operator("Squeeze")
def squeeze(n: Node) -> Tensor:
    x, axes = n.tensor(0), n.integers(1, "axes")
    gone = {a % x.ndim for a in axes} if axes else {d for d, extent in enumerate(x.shape) if extent == 1}
    return ops.reshape(x, [extent for d, extent in enumerate(x.shape) if d not in gone])


@operator("Unsqueeze")
def unsqueeze(n: Node) -> Tensor:
    x, axes = n.tensor(0), n.integers(1, "axes")
    rank = x.ndim + len(axes)
    new, rest = {a % rank for a in axes}, iter(x.shape)
    return ops.reshape(x, [1 if d in new else next(rest) for d in range(rank)])


@operator("Expand")
def expand(n: Node) -> Tensor:
    x = n.tensor(0)
    return ops.expand(x, np.broadcast_shapes(x.shape, n.integers(1)))


@operator("Tile")
def tile(n: Node) -> Tensor:
    x, times = n.tensor(0), n.integers(1)
    shape = tuple(extent * t for extent, t in zip(x.shape, times, strict=True))
    return rg.compute(shape, lambda *i: x[tuple(index % extent for index, extent in zip(i, x.shape, strict=True))])


@operator("Split")
def split(n: Node) -> list[Tensor]:
    x, sizes = n.tensor(0), n.integers(1, "split")
    axis = n.get("axis", 0) % x.ndim
    if sizes is None:
        size = -(-x.shape[axis] // n.outputs)
        sizes = tuple(min(size, x.shape[axis] - size * part) for part in range(n.outputs))
    ends = np.cumsum(sizes)
    return [sliced(x, axis, int(end) - size, int(end)) for size, end in zip(sizes, ends, strict=True)]


def sliced(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return ops.getitem(x, tuple(slice(start, stop) if d == axis else slice(None) for d in range(x.ndim)))


@operator("Slice")
def slice_(n: Node) -> Tensor:
    x, starts, stops = n.tensor(0), n.integers(1, "starts"), n.integers(2, "ends")
    axes = n.integers(3, "axes") or tuple(range(len(starts)))
    steps = n.integers(4) or (1,) * len(starts)
    parts = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        extent = x.shape[axis]
        backwards = step < 0 and stop < -extent
        parts[axis] = slice(start, None if backwards else stop, step)
    return ops.getitem(x, tuple(parts))


@operator("Pad")
def pad(n: Node) -> Tensor:
    x, widths, value = n.tensor(0), n.integers(1, "pads"), n.known(2, "value")
    axes = n.integers(3) or tuple(range(x.ndim))
    pairs = [(0, 0)] * x.ndim
    for place, axis in enumerate(axes):
        pairs[axis] = widths[place], widths[place + len(axes)]
    mode = {"edge": "replicate", "wrap": "circular"}.get(n.get("mode", "constant"), n.get("mode", "constant"))
    last_first = [width for pair in reversed(pairs) for width in pair]
    return ops.pad(x, last_first, mode, 0 if value is None else value.reshape(()).item())


@operator("CenterCropPad")
def center_crop_pad(n: Node) -> Tensor:
    x, wanted = n.tensor(0), n.integers(1)
    for axis, extent in zip(n.get("axes", range(x.ndim)), wanted, strict=True):
        axis %= x.ndim
        have = x.shape[axis]
        if extent < have:
            x = sliced(x, axis, (have - extent) // 2, (have - extent) // 2 + extent)
        before = (extent - have) // 2
        if extent > have:
            x = ops.pad(x, (0, 0) * (x.ndim - 1 - axis) + (before, extent - have - before))
    return x


@operator("DepthToSpace")
def depth_to_space(n: Node) -> Tensor:
    x, block = n.tensor(0), n.get("blocksize")
    b, c, h, w = x.shape
    if n.get("mode", "DCR") == "DCR":
        order, split_shape = (0, 3, 4, 1, 5, 2), (b, block, block, c // block**2, h, w)
    else:
        order, split_shape = (0, 1, 4, 2, 5, 3), (b, c // block**2, block, block, h, w)
    return ops.reshape(ops.permute(ops.reshape(x, split_shape), order), (b, c // block**2, h * block, w * block))


@operator("SpaceToDepth")
def space_to_depth(n: Node) -> Tensor:
    x, block = n.tensor(0), n.get("blocksize")
    b, c, h, w = x.shape
    parts = ops.reshape(x, (b, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if n.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return ops.reshape(ops.permute(parts, order), (b, c * block**2, h // block, w // block))


@operator("Trilu")
def triangle(n: Node) -> Tensor:
    x, k = n.tensor(0), 0 if n.known(1) is None else int(n.known(1))
    upper = n.get("upper", 1)
    zero = False if x.dtype == "bool" else 0

    def element(*i: Any) -> Any:
        *_, row, column = i
        return rg.select(column >= row + k if upper else column <= row + k, x[i], zero)

    return rg.compute(x.shape, element)


@operator("EyeLike")
def eye_like(n: Node) -> np.ndarray:
    x, dtype = n.tensor(0), n.get("dtype")
    wanted = np.dtype(x.dtype) if dtype is None else onnx.helper.tensor_dtype_to_np_dtype(dtype)
    rows, columns = x.shape
    return np.eye(rows, columns, k=n.get("k", 0), dtype=wanted)


def decided(n: Node) -> Any:
    """What follows from known operands alone is folded; of others it is a tensor of no fixed extent."""
    raise Refused("data-dependent parameter", n.proto.op_type)


operator("Range")(decided)
operator("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow")(decided)
operator("MelWeightMatrix")(decided)
