"""Operators on whole tensors (`rg.ops`), written in the public language only; one family a module."""

from typing import Any

from rollergen.errors import name_advice
from rollergen.expr.operators.activations import gelu, leaky_relu, relu, sigmoid, silu
from rollergen.expr.operators.attention import attention
from rollergen.expr.operators.contractions import batch_matmul, linear, matmul
from rollergen.expr.operators.convolutions import conv1d, conv2d, conv3d, conv_transpose2d, depthwise_conv2d
from rollergen.expr.operators.elementwise import (
    abs,
    add,
    bias_add,
    cast,
    clip,
    div,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    mul,
    neg,
    not_equal,
    pointwise,
    pow,
    sub,
    where,
)
from rollergen.expr.operators.normalisation import batch_norm, layer_norm, log_softmax, rms_norm, softmax
from rollergen.expr.operators.pooling import avg_pool2d, global_avg_pool, global_max_pool, max_pool2d
from rollergen.expr.operators.quantised import dequantize, quantize, quantized_matmul
from rollergen.expr.operators.reductions import (
    argmax,
    argmin,
    cumprod,
    cumsum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from rollergen.expr.operators.spellings import torch_spellings
from rollergen.expr.operators.views import concat, expand, pad, reshape, slice, transpose, upsample_nearest
from rollergen.expr.primitives import FUNCTIONS

exp = pointwise("exp")
log = pointwise("log")
sqrt = pointwise("sqrt")
rsqrt = pointwise("rsqrt")
tanh = pointwise("tanh")
erf = pointwise("erf")
floor = pointwise("floor")
round = pointwise("round")

__all__ = [
    *FUNCTIONS,
    "abs",
    "add",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "cast",
    "clip",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "cumprod",
    "cumsum",
    "depthwise_conv2d",
    "dequantize",
    "div",
    "equal",
    "expand",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "greater",
    "greater_equal",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "linear",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mul",
    "neg",
    "not_equal",
    "pad",
    "pow",
    "prod",
    "quantize",
    "quantized_matmul",
    "relu",
    "reshape",
    "rms_norm",
    "sigmoid",
    "silu",
    "slice",
    "softmax",
    "std",
    "sub",
    "sum",
    "transpose",
    "upsample_nearest",
    "var",
    "where",
]

for _name in __all__:
    _operator = torch_spellings(globals()[_name])
    _operator.__module__ = __name__  # where pickle finds it
    globals()[_name] = _operator


def __getattr__(name: str) -> Any:
    raise AttributeError(f"rg.ops has no operator {name!r}; {name_advice(name, __all__)}")
