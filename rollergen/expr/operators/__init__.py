"""Operators on whole tensors (`rg.ops`), written in the public language only; one family a module,
which is loaded when one of its operators is first asked for.

They have the names and arguments of their PyTorch namesakes; `name` is what the result is called in the kernel's source
and in explanations.  All raise ShapeError for shapes that do not fit, DtypeError for dtypes that they do not take,
UnknownNameError for an argument that they do not have, and ExpressionError for what is no tensor or no such setting.
"""

import sys
from functools import partial
from importlib import import_module
from typing import Any

from rollergen.errors import name_advice
from rollergen.expr.dims import takes_dims
from rollergen.expr.methods import OPERATORS
from rollergen.expr.operators.arguments import torch_spellings
from rollergen.expr.primitives import FUNCTIONS

_FAMILIES = {
    "activations": "gelu leaky_relu prelu relu sigmoid silu",
    "adaptive_pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d"
    ),
    "borders": "pad",
    "channels": "group_norm instance_norm local_response_norm",
    "constants": "arange eye full linspace meshgrid",
    "contractions": "batch_matmul bmm einsum linear matmul mm",
    "convolutions": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d depthwise_conv2d",
    "distances": (
        "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits "
        "soft_margin_loss"
    ),
    "dot_product_attention": "scaled_dot_product_attention",
    "elementwise": (
        "abs add bias_add cast clip div equal greater greater_equal less less_equal maximum minimum mul neg "
        "not_equal pow round sub where"
    ),
    "formulas": (
        "sinh cosh asinh acosh atanh exp2 log2 log10 reciprocal square ceil trunc frac sign isnan isinf isfinite "
        "logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not "
        "bitwise_left_shift bitwise_right_shift remainder fmod fmax atan2 softplus softsign tanhshrink logsigmoid "
        "mish relu6 hardtanh hardsigmoid hardswish elu celu selu threshold hardshrink softshrink"
    ),
    "losses": "cross_entropy nll_loss",
    "normalisation": "batch_norm layer_norm log_softmax rms_norm softmax",
    "pooling": "avg_pool1d avg_pool2d avg_pool3d global_avg_pool global_max_pool max_pool1d max_pool2d max_pool3d",
    "quantised": "dequantize dynamic_quantize quantize quantized_conv2d quantized_matmul",
    "rearrangements": (
        "chunk flip one_hot pixel_shuffle pixel_unshuffle repeat roll split stack tile tril triu unfold unfold_copy"
    ),
    "reductions": "amax amin argmax argmin logsumexp max mean min prod std sum var",
    "resizing": "interpolate resize upsample_nearest",
    "scans": "cummax cummin cumprod cumsum logcumsumexp",
    "scatters": "select_scatter slice_scatter",
    "takes": "embedding gather index_select take_along_dim",
    "truths": "all any",
    "views": "concat expand flatten getitem permute reshape slice squeeze t transpose unsqueeze",
}  # fmt: skip
"""Operators by the module that they are in."""
_TABLES = {"distances": "LOSSES", "formulas": "FORMULAS"}
"""Families whose operators are a row each of a table, and are made by ``operator``."""
_PRIMITIVES = [name for name in FUNCTIONS if name != "round"]
"""Operators that are a row each of `primitives`."""

_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names.split()}
ELEMENTWISE = (*_PRIMITIVES, *_FAMILIES["formulas"].split())
"""Operators that are a row each: of `primitives`, and of `formulas`."""
_ROWS = (*ELEMENTWISE, *_FAMILIES["distances"].split())
__all__ = [*_ROWS, *sorted(set(_FAMILY) - set(_ROWS))]

ALIASES = {
    "absolute": "abs", "attention": "scaled_dot_product_attention", "cat": "concat", "clamp": "clip", "divide": "div",
    "eq": "equal", "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "multiply": "mul",
    "ne": "not_equal", "negative": "neg", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
"""Second names of operators, which torch has too."""


def _made(name: str) -> Any:
    if name in _PRIMITIVES:
        from rollergen.expr.operators.elementwise import pointwise

        return pointwise(name)
    family = _FAMILY[name]
    module = import_module(f"{__name__}.{family}")
    return module.operator(getattr(module, _TABLES[family])[name]) if family in _TABLES else getattr(module, name)


def __getattr__(name: str) -> Any:
    own = ALIASES.get(name, name)
    if own not in __all__:
        raise AttributeError(f"rg.ops has no operator {name!r}; {name_advice(name, (*__all__, *ALIASES))}")
    if own not in globals():
        operator = takes_dims(torch_spellings(_made(own)))
        operator.__module__ = __name__  # where pickle finds it
        globals().setdefault(own, operator)  # another thread may have made it meanwhile
    return globals().setdefault(name, globals()[own])


def __dir__() -> list[str]:
    return [*__all__, *ALIASES]


OPERATORS.update({name: partial(getattr, sys.modules[__name__], name) for name in __dir__()})
