"""The operators, for editors and type checkers: at run time each family is loaded at the first use of one."""

# ruff: noqa: I001

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from rollergen.expr.operators import normalisation as _normalisation, rearrangements as _rearrangements
from rollergen.expr.operators import reductions as _reductions, scans as _scans, scatters as _scatters
from rollergen.expr.operators import takes as _takes, truths as _truths, views as _views
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
    rms_norm as rms_norm,
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
    flip as flip,
    one_hot as one_hot,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    repeat as repeat,
    roll as roll,
    tile as tile,
    tril as tril,
    triu as triu,
    unfold as unfold,
    unfold_copy as unfold_copy,
)
from rollergen.expr.operators.resizing import (
    interpolate as interpolate,
    resize as resize,
    upsample_nearest as upsample_nearest,
)
from rollergen.expr.operators.takes import embedding as embedding
from rollergen.expr.operators.views import (
    expand as expand,
    flatten as flatten,
    getitem as getitem,
    permute as permute,
    reshape as reshape,
    t as t,
    transpose as transpose,
)

_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)

class _AlongAxis(Protocol[_P, _R]):
    """Takes ``axis`` and ``keepdims`` for ``dim`` and ``keepdim``, as ``arguments.torch_spellings`` does."""

    @overload
    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _R: ...
    @overload
    def __call__(self, *arguments: Any, axis: Any, **named: Any) -> _R: ...
    @overload
    def __call__(self, *arguments: Any, keepdims: bool, **named: Any) -> _R: ...

def _along(operator: Callable[_P, _R]) -> _AlongAxis[_P, _R]: ...

log_softmax = _along(_normalisation.log_softmax)
softmax = _along(_normalisation.softmax)
chunk = _along(_rearrangements.chunk)
split = _along(_rearrangements.split)
stack = _along(_rearrangements.stack)
amax = _along(_reductions.amax)
amin = _along(_reductions.amin)
argmax = _along(_reductions.argmax)
argmin = _along(_reductions.argmin)
logsumexp = _along(_reductions.logsumexp)
max = _along(_reductions.max)
mean = _along(_reductions.mean)
min = _along(_reductions.min)
prod = _along(_reductions.prod)
std = _along(_reductions.std)
sum = _along(_reductions.sum)
var = _along(_reductions.var)
cummax = _along(_scans.cummax)
cummin = _along(_scans.cummin)
cumprod = _along(_scans.cumprod)
cumsum = _along(_scans.cumsum)
logcumsumexp = _along(_scans.logcumsumexp)
select_scatter = _along(_scatters.select_scatter)
slice_scatter = _along(_scatters.slice_scatter)
gather = _along(_takes.gather)
index_select = _along(_takes.index_select)
take_along_dim = _along(_takes.take_along_dim)
all = _along(_truths.all)
any = _along(_truths.any)
concat = _along(_views.concat)
slice = _along(_views.slice)
squeeze = _along(_views.squeeze)
unsqueeze = _along(_views.unsqueeze)

ELEMENTWISE: tuple[str, ...]
ALIASES: dict[str, str]
__all__: list[str]

def __getattr__(name: str) -> Any: ...  # those of tables
