"""Operators on whole tensors (`rg.ops`), written in the public language only; one family a module.

They have the names and arguments of their PyTorch namesakes; `name` is what the result is called in the kernel's source
and in explanations.  All raise ShapeError for shapes that do not fit, DtypeError for dtypes that they do not take,
UnknownNameError for an argument that they do not have, and ExpressionError for what is no tensor or no such setting.
"""

from typing import Any

from rollergen.errors import name_advice
from rollergen.expr.dims import takes_dims
from rollergen.expr.methods import OPERATORS
from rollergen.expr.operators.activations import gelu, leaky_relu, prelu, relu, sigmoid, silu
from rollergen.expr.operators.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from rollergen.expr.operators.arguments import torch_spellings
from rollergen.expr.operators.borders import pad
from rollergen.expr.operators.channels import group_norm, instance_norm, local_response_norm
from rollergen.expr.operators.constants import arange, eye, full, linspace, meshgrid
from rollergen.expr.operators.contractions import batch_matmul, bmm, einsum, linear, matmul, mm
from rollergen.expr.operators.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    depthwise_conv2d,
)
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.distances import operator as loss
from rollergen.expr.operators.dot_product_attention import scaled_dot_product_attention
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
    round,
    sub,
    where,
)
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.operators.formulas import operator as formula
from rollergen.expr.operators.losses import cross_entropy, nll_loss
from rollergen.expr.operators.normalisation import batch_norm, layer_norm, log_softmax, rms_norm, softmax
from rollergen.expr.operators.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from rollergen.expr.operators.quantised import (
    dequantize,
    dynamic_quantize,
    quantize,
    quantized_conv2d,
    quantized_matmul,
)
from rollergen.expr.operators.rearrangements import (
    chunk,
    flip,
    one_hot,
    pixel_shuffle,
    pixel_unshuffle,
    repeat,
    roll,
    split,
    stack,
    tile,
    tril,
    triu,
    unfold,
    unfold_copy,
)
from rollergen.expr.operators.reductions import (
    amax,
    amin,
    argmax,
    argmin,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from rollergen.expr.operators.resizing import interpolate, resize, upsample_nearest
from rollergen.expr.operators.scans import cummax, cummin, cumprod, cumsum, logcumsumexp
from rollergen.expr.operators.scatters import select_scatter, slice_scatter
from rollergen.expr.operators.takes import embedding, gather, index_select, take_along_dim
from rollergen.expr.operators.truths import all, any
from rollergen.expr.operators.views import (
    concat,
    expand,
    flatten,
    getitem,
    permute,
    reshape,
    slice,
    squeeze,
    t,
    transpose,
    unsqueeze,
)
from rollergen.expr.primitives import FUNCTIONS

ELEMENTWISE = (*(name for name in FUNCTIONS if name != "round"), *FORMULAS)
"""Operators that are a row each: of `primitives`, and of `formulas`."""

__all__ = [
    *ELEMENTWISE,
    *LOSSES,
    "abs",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "add",
    "all",
    "amax",
    "amin",
    "any",
    "arange",
    "argmax",
    "argmin",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "bmm",
    "cast",
    "chunk",
    "clip",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "depthwise_conv2d",
    "dequantize",
    "div",
    "dynamic_quantize",
    "einsum",
    "embedding",
    "equal",
    "expand",
    "eye",
    "flatten",
    "flip",
    "full",
    "gather",
    "gelu",
    "getitem",
    "global_avg_pool",
    "global_max_pool",
    "greater",
    "greater_equal",
    "group_norm",
    "index_select",
    "instance_norm",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "linear",
    "linspace",
    "local_response_norm",
    "log_softmax",
    "logcumsumexp",
    "logsumexp",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "mm",
    "mul",
    "neg",
    "nll_loss",
    "not_equal",
    "one_hot",
    "pad",
    "permute",
    "pixel_shuffle",
    "pixel_unshuffle",
    "pow",
    "prelu",
    "prod",
    "quantize",
    "quantized_conv2d",
    "quantized_matmul",
    "relu",
    "repeat",
    "reshape",
    "resize",
    "rms_norm",
    "roll",
    "round",
    "scaled_dot_product_attention",
    "select_scatter",
    "sigmoid",
    "silu",
    "slice",
    "slice_scatter",
    "softmax",
    "split",
    "squeeze",
    "stack",
    "std",
    "sub",
    "sum",
    "t",
    "take_along_dim",
    "tile",
    "transpose",
    "tril",
    "triu",
    "unfold",
    "unfold_copy",
    "unsqueeze",
    "upsample_nearest",
    "var",
    "where",
]

ALIASES = {
    "absolute": "abs", "attention": "scaled_dot_product_attention", "cat": "concat", "clamp": "clip", "divide": "div",
    "eq": "equal", "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "multiply": "mul",
    "ne": "not_equal", "negative": "neg", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
"""Second names of operators, which torch has too."""

globals().update({_name: pointwise(_name) for _name in FUNCTIONS if _name != "round"})
globals().update({_name: loss(_row) for _name, _row in LOSSES.items()})
globals().update({_name: formula(_row) for _name, _row in FORMULAS.items()})
for _name in __all__:
    _operator = takes_dims(torch_spellings(globals()[_name]))
    _operator.__module__ = __name__  # where pickle finds it
    globals()[_name] = _operator
globals().update({_name: globals()[_of] for _name, _of in ALIASES.items()})
OPERATORS.update({_name: globals()[_name] for _name in (*__all__, *ALIASES)})


def __getattr__(name: str) -> Any:
    raise AttributeError(f"rg.ops has no operator {name!r}; {name_advice(name, (*__all__, *ALIASES))}")
