"""The operators, for editors and type checkers: at run time each family is loaded at the first use of one."""

# ruff: noqa: I001

from typing import Any

from rollergen.expr.operators.activations import (
    gelu as gelu,
    leaky_relu as leaky_relu,
    prelu as prelu,
    relu as relu,
    sigmoid as sigmoid,
    silu as silu,
)
from rollergen.expr.operators.adaptive_pooling import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d,
    adaptive_max_pool3d as adaptive_max_pool3d,
)
from rollergen.expr.operators.borders import pad as pad
from rollergen.expr.operators.channels import (
    group_norm as group_norm,
    instance_norm as instance_norm,
    local_response_norm as local_response_norm,
)
from rollergen.expr.operators.constants import (
    arange as arange,
    eye as eye,
    full as full,
    linspace as linspace,
    meshgrid as meshgrid,
)
from rollergen.expr.operators.contractions import (
    batch_matmul as batch_matmul,
    bmm as bmm,
    einsum as einsum,
    linear as linear,
    matmul as matmul,
    mm as mm,
)
from rollergen.expr.operators.convolutions import (
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    depthwise_conv2d as depthwise_conv2d,
)
from rollergen.expr.operators.dot_product_attention import scaled_dot_product_attention as scaled_dot_product_attention
from rollergen.expr.operators.elementwise import (
    abs as abs,
    add as add,
    bias_add as bias_add,
    cast as cast,
    clip as clip,
    div as div,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    less as less,
    less_equal as less_equal,
    maximum as maximum,
    minimum as minimum,
    mul as mul,
    neg as neg,
    not_equal as not_equal,
    pow as pow,
    round as round,
    sub as sub,
    where as where,
)
from rollergen.expr.operators.losses import cross_entropy as cross_entropy, nll_loss as nll_loss
from rollergen.expr.operators.normalisation import (
    batch_norm as batch_norm,
    layer_norm as layer_norm,
    log_softmax as log_softmax,
    rms_norm as rms_norm,
    softmax as softmax,
)
from rollergen.expr.operators.pooling import (
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
    global_avg_pool as global_avg_pool,
    global_max_pool as global_max_pool,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
)
from rollergen.expr.operators.quantised import (
    dequantize as dequantize,
    dynamic_quantize as dynamic_quantize,
    quantize as quantize,
    quantized_conv2d as quantized_conv2d,
    quantized_matmul as quantized_matmul,
)
from rollergen.expr.operators.rearrangements import (
    chunk as chunk,
    flip as flip,
    one_hot as one_hot,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    repeat as repeat,
    roll as roll,
    split as split,
    stack as stack,
    tile as tile,
    tril as tril,
    triu as triu,
    unfold as unfold,
    unfold_copy as unfold_copy,
)
from rollergen.expr.operators.reductions import (
    amax as amax,
    amin as amin,
    argmax as argmax,
    argmin as argmin,
    logsumexp as logsumexp,
    max as max,
    mean as mean,
    min as min,
    prod as prod,
    std as std,
    sum as sum,
    var as var,
)
from rollergen.expr.operators.resizing import (
    interpolate as interpolate,
    resize as resize,
    upsample_nearest as upsample_nearest,
)
from rollergen.expr.operators.scans import (
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    logcumsumexp as logcumsumexp,
)
from rollergen.expr.operators.scatters import select_scatter as select_scatter, slice_scatter as slice_scatter
from rollergen.expr.operators.takes import (
    embedding as embedding,
    gather as gather,
    index_select as index_select,
    take_along_dim as take_along_dim,
)
from rollergen.expr.operators.truths import all as all, any as any
from rollergen.expr.operators.views import (
    concat as concat,
    expand as expand,
    flatten as flatten,
    getitem as getitem,
    permute as permute,
    reshape as reshape,
    slice as slice,
    squeeze as squeeze,
    t as t,
    transpose as transpose,
    unsqueeze as unsqueeze,
)

ELEMENTWISE: tuple[str, ...]
ALIASES: dict[str, str]
__all__: list[str]

def __getattr__(name: str) -> Any: ...  # those of tables
