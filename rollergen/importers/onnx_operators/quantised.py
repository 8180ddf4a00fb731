"""ONNX operators of quantised values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import is_float
from rollergen.expr.language import Tensor
from rollergen.hal.dtypes import DTYPES
from rollergen.importers.onnx_operators.contractions import convolved, product
from rollergen.importers.onnx_operators.pointwise import pointwise
from rollergen.importers.onnx_operators.table import Node, operator, operators
from rollergen.importers.refusals import Refused, accepted_dtype

operators(DynamicQuantizeLinear=lambda n: ops.dynamic_quantize(n.tensor(0)))


@operator("QuantizeLinear")
def quantize(n: Node) -> Tensor:
    """As the zero point's dtype, as `output_dtype` says, or uint8."""
    x, scale, zero = n.tensor(0), _parameter(n, 1), _parameter(n, 2)
    number = n.get("output_dtype", 0)
    numbered = np.dtype(np.uint8) if not number else onnx.helper.tensor_dtype_to_np_dtype(number)
    dtype = accepted_dtype(n.value(2).dtype if n.has(2) else numbered)
    if not n.get("saturate", 1):
        raise Refused("attribute", "saturate of QuantizeLinear: 0")
    if not is_float(x.dtype):
        x = ops.cast(x, "float32")
    return ops.quantize(x, scale, zero, _axis(n, scale, zero), dtype=dtype, block_size=n.get("block_size", 0) or None)


@operator("DequantizeLinear")
def dequantize(n: Node) -> Tensor:
    """In the scale's dtype, or as `output_dtype` says."""
    q, scale, zero = n.tensor(0), _parameter(n, 1), _parameter(n, 2)
    number = n.get("output_dtype", 0)
    dtype = accepted_dtype(onnx.helper.tensor_dtype_to_np_dtype(number) if number else n.value(1).dtype)
    return ops.dequantize(q, scale, zero, _axis(n, scale, zero), dtype=dtype, block_size=n.get("block_size", 0) or None)


def _parameter(n: Node, position: int) -> Any:
    """A scale or zero point: a number where it is known to be one, 0 where it is left out; floats' zero point is 0."""
    if not n.has(position):
        return 0
    if position == 2 and is_float(accepted_dtype(n.value(2).dtype)):
        if np.any(n.known(2).astype(np.float32)):
            raise Refused("attribute", "a zero point of floats other than 0")
        return 0
    value = n.value(position)
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.item()
    tensor = n.tensor(position)
    return ops.reshape(tensor, ()) if tensor.shape == (1,) else tensor


def _axis(n: Node, *parameters: Any) -> int | None:
    return n.get("axis", 1) if any(isinstance(one, Tensor) and one.ndim for one in parameters) else None


@operator("QLinearMatMul")
def quantised_product(n: Node) -> Tensor:
    """A scale of a for each row, one of b for each column."""
    a, b = _shifted(n, 0, 2, (-1, 1)), _shifted(n, 3, 5)
    return _requantised(n, product(a, b), _spread(n.tensor(1), (-1, 1)), n.tensor(4))


@operator("QLinearConv")
def quantised_convolution(n: Node) -> Tensor:
    """A scale of w for each filter."""
    filters = (-1, *(1,) * (n.tensor(3).ndim - 1))
    total = convolved(n, _shifted(n, 0, 2), _shifted(n, 3, 5, filters), n.optional(8))
    return _requantised(n, total, n.tensor(1), _spread(n.tensor(4), filters[:-1]))


@operator("MatMulInteger")
def integer_product(n: Node) -> Tensor:
    """A zero point of a for each row, one of b for each column."""
    return product(_shifted(n, 0, 2, (-1, 1)), _shifted(n, 1, 3))


@operator("ConvInteger")
def integer_convolution(n: Node) -> Tensor:
    """A zero point of w for each filter."""
    filters = (-1, *(1,) * (n.tensor(1).ndim - 1))
    return convolved(n, _shifted(n, 0, 2), _shifted(n, 1, 3, filters), None)


def _spread(parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Scales or zero points along the axis where `shape` has -1; one of all as it is."""
    return parameter if parameter.shape in ((), (1,)) or len(shape) == 1 else ops.reshape(parameter, shape)


def _shifted(n: Node, position: int, zero: int, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """An operand less its zero point, int32."""
    known = n.value(zero)
    if not n.has(zero) or (isinstance(known, np.ndarray) and known.size == 1):
        shift = int(known.reshape(())) if n.has(zero) else 0
        return pointwise(lambda v: rg.cast(v, "int32") - shift, n.tensor(position))
    less = lambda v, z: rg.cast(v, "int32") - rg.cast(z, "int32")
    return pointwise(less, n.tensor(position), _spread(n.tensor(zero), shape))


def _requantised(n: Node, total: Tensor, of_a: Tensor, of_b: Tensor) -> Tensor:
    """Sums of products by the scale and zero point of the result, which has the zero point's dtype."""
    zero = n.tensor(7)
    if is_float(zero.dtype):
        raise Refused("dtype", f"{n.proto.op_type} of {zero.dtype}")
    low, high = DTYPES[zero.dtype].limits
    wide = lambda v: rg.cast(v, "float32")

    def element(v: Any, a: Any, b: Any, y: Any, z: Any) -> Any:
        scaled = rg.round(wide(v) * (wide(a) * wide(b) / wide(y))) + wide(z)
        return rg.cast(rg.minimum(rg.maximum(scaled, low), high), zero.dtype)

    return pointwise(element, total, of_a, of_b, n.tensor(6), zero)
