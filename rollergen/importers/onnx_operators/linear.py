"""ONNX operators that are linear in the tensor, with fixed sizes: products with the matrix of their weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import is_float
from rollergen.expr.language import Tensor
from rollergen.importers.onnx_operators.table import Node, operator
from rollergen.importers.refusals import Refused


@operator("Resize", "Upsample")
def resize(n: Node) -> Tensor:
    """Linear in x and separable: along each axis the elements that are nearest, or a product with the matrix of its
    weights."""
    x = n.tensor(0)
    if n.get("coordinate_transformation_mode") == "tf_crop_and_resize" and n.get("extrapolation_value", 0.0):
        raise Refused("attribute", "extrapolation_value: affine, not linear")
    shape = x.shape
    for axis in range(x.ndim):
        matrix = _weights(n, shape, axis)
        if np.array_equal(matrix, np.eye(shape[axis])):
            continue
        nearest = matrix.argmax(axis=1)
        if np.array_equal(matrix, np.eye(shape[axis])[nearest]):
            x = _picked(n, x, axis, nearest)
        elif is_float(x.dtype):
            x = along_axis(x, axis, n.constant(matrix.astype(x.dtype)))
        else:
            raise Refused("dtype", f"weights of {x.dtype}")
    return x


def _picked(n: Node, x: Tensor, axis: int, places: np.ndarray) -> Tensor:
    """The elements at constant `places` along one axis: a product would make 0 times infinity of their neighbours."""
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    ratio, at = Fraction(x.shape[axis], len(places)), np.arange(len(places))
    step, unit = ratio.numerator, ratio.denominator
    starts = range(-unit, unit + step)
    start = next((one for one in starts if np.array_equal((at * step + one) // unit, places)), None)
    if start is None:
        return rg.take(x, n.constant(places), axis)
    return rg.compute(shape, lambda *i: x[(*i[:axis], (i[axis] * step + start) // unit, *i[axis + 1 :])])


def along_axis(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """The product of `matrix` (out, in) and `x` along one axis."""
    k = rg.reduce_axis("source", x.shape[axis])
    shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
    return rg.compute(shape, lambda *i: rg.sum(matrix[i[axis], k] * x[(*i[:axis], k, *i[axis + 1 :])], axis=k))


def _weights(n: Node, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """What ONNX's reference makes of unit vectors along `axis`, constant along the others."""
    names = ("x", *(f"p{i}" if n.has(i) else "" for i in range(1, len(n.inputs))))
    proto = onnx.NodeProto()
    proto.CopyFrom(n.proto)
    del proto.input[:]
    proto.input.extend(names)
    _from_half_pixels(n, proto)
    known = {name: n.known(i) for i, name in enumerate(names) if i and name}
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in known.items()
    ]
    infos = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape), *infos]
    outputs = [onnx.helper.make_empty_tensor_value_info(proto.output[0])]
    graph = onnx.helper.make_graph([proto], "weights", infos, outputs)
    imports = [onnx.helper.make_opsetid("", n.version)]
    run: Any = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports)).run
    columns = []
    for place in range(shape[axis]):
        unit = np.zeros(shape, np.float32)
        unit[tuple(place if d == axis else slice(None) for d in range(len(shape)))] = 1
        try:
            made = run(None, {"x": unit, **known})[0]
        except Exception as error:  # of many kinds: an attribute that the reference does not know
            raise Refused("attribute", str(error)) from None
        columns.append(made[tuple(slice(None) if d == axis else 0 for d in range(len(shape)))])
    return np.stack(columns, axis=1)


_HALF_PIXELS = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""How a coordinate is rounded as it would be half an element further, by how it is rounded there."""


def _from_half_pixels(n: Node, proto: onnx.NodeProto) -> None:
    """Replaces operator set 11's tf_half_pixel_for_nn, which ONNX's reference lacks, by half_pixel, whose coordinates
    are less by 1/2, with the rounding that takes the same elements, where there is one."""
    rounding = _HALF_PIXELS.get(n.get("nearest_mode", "round_prefer_floor"))
    if n.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn" or n.get("mode", "nearest") != "nearest":
        return
    if rounding is not None:
        kept = [one for one in proto.attribute if one.name not in ("coordinate_transformation_mode", "nearest_mode")]
        del proto.attribute[:]
        proto.attribute.extend(kept)
        attributes = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": rounding}
        proto.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())


@operator("DFT")
def fourier(n: Node) -> Tensor:
    """A product with the matrix of the transform; complex numbers are pairs along the last axis."""
    x, length = n.tensor(0), n.known(1)
    axis = int(n.known(2) if n.has(2) else n.get("axis", -2 if n.version >= 20 else 1))
    axis = axis % x.ndim
    inverse, onesided = n.get("inverse", 0), n.get("onesided", 0)
    if inverse and onesided:
        return real_inverse(n, x, axis, 2 * (x.shape[axis] - 1) if length is None else int(length))
    points = x.shape[axis] if length is None else int(length)
    if points != x.shape[axis]:
        raise Refused("attribute", "dft_length other than the axis")
    rows = points // 2 + 1 if onesided else points
    turn = np.exp((2j if inverse else -2j) * np.pi * np.outer(np.arange(rows), np.arange(points)) / points)
    return complex_product(n, x, axis, turn / (points if inverse else 1))


def real_inverse(n: Node, x: Tensor, axis: int, points: int) -> Tensor:
    """Of the half of a spectrum whose other half is conjugate: all but the ends count twice."""
    rows = np.arange(x.shape[axis])
    twice = np.where((rows == 0) | (2 * rows == points), 1, 2)
    turn = twice * np.exp(2j * np.pi * np.outer(np.arange(points), rows) / points) / points
    real, imaginary = (n.constant(part.astype(x.dtype)) for part in (turn.real, turn.imag))
    part = lambda at: ops.getitem(x, (..., slice(at, at + 1)))
    return ops.sub(along_axis(part(0), axis, real), along_axis(part(1), axis, imaginary))


def complex_product(n: Node, x: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """The product of a complex matrix with `x` (..., 1: real, or 2: complex) along `axis`."""
    real, imaginary = (n.constant(part.astype(x.dtype)) for part in (matrix.real, matrix.imag))
    part = lambda at: ops.getitem(x, (..., slice(at, at + 1)))
    re = along_axis(part(0), axis, real)
    im = along_axis(part(0), axis, imaginary)
    if x.shape[-1] == 2:
        re = ops.sub(re, along_axis(part(1), axis, imaginary))
        im = ops.add(im, along_axis(part(1), axis, real))
    return ops.concat([re, im], -1)


@operator("STFT")
def short_time_fourier(n: Node) -> Tensor:
    x, step, window = n.tensor(0), int(n.known(1)), n.optional(2)
    length = int(n.known(3)) if n.has(3) else window.shape[0]
    frames = (x.shape[1] - length) // step + 1
    framed = rg.compute((x.shape[0], frames, length, x.shape[2]), lambda b, f, t, c: x[b, f * step + t, c])
    if window is not None:
        framed = ops.mul(framed, ops.reshape(window, (length, 1)))
    rows = length // 2 + 1 if n.get("onesided", 1) else length
    turn = np.exp(-2j * np.pi * np.outer(np.arange(rows), np.arange(length)) / length)
    return complex_product(n, framed, 2, turn)
