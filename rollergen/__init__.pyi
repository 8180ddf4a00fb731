"""The public names, for editors and type checkers: at run time each is loaded at its first use."""

from typing import Any as _Any

from rollergen import errors
from rollergen.build import build
from rollergen.construct.options import BuildOptions
from rollergen.explain.plots import plot_space
from rollergen.expr import operators as ops
from rollergen.expr.dims import dim
from rollergen.expr.einsum import einsum
from rollergen.expr.language import (
    Tensor,
    abs,
    atan2,
    cast,
    compute,
    divide,
    max,
    maximum,
    min,
    minimum,
    pow,
    prod,
    reduce,
    reduce_axis,
    remainder,
    select,
    sum,
    take,
    tensor,
)
from rollergen.expr.nibbles import pack
from rollergen.expr.puts import put as put
from rollergen.expr.scalar_arguments import scalar as scalar
from rollergen.expr.scalars import Expr as _Expr
from rollergen.expr.scans import scan as scan
from rollergen.kernel import Kernel
from rollergen.network.compiling import compile
from rollergen.network.model import Model, load
from rollergen.research import construct, load_device, predict, profile, space
from rollergen.runtime.result_pool import clear_pool
from rollergen.tile.rules import AlignmentRules, CodeShapes

__version__: str
__all__ = [
    "AlignmentRules",
    "BuildOptions",
    "CodeShapes",
    "Kernel",
    "Model",
    "Tensor",
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "build",
    "cast",
    "clear_pool",
    "compile",
    "compute",
    "construct",
    "cos",
    "dim",
    "divide",
    "einsum",
    "erf",
    "erfc",
    "errors",
    "exp",
    "expm1",
    "floor",
    "load",
    "load_device",
    "log",
    "log1p",
    "max",
    "maximum",
    "min",
    "minimum",
    "ops",
    "pack",
    "plot_space",
    "pow",
    "predict",
    "prod",
    "profile",
    "put",
    "reduce",
    "reduce_axis",
    "remainder",
    "round",
    "rsqrt",
    "scalar",
    "scan",
    "select",
    "sin",
    "space",
    "sqrt",
    "sum",
    "take",
    "tan",
    "tanh",
    "tensor",
]

def exp(x: _Any) -> _Expr: ...
def log(x: _Any) -> _Expr: ...
def sqrt(x: _Any) -> _Expr: ...
def rsqrt(x: _Any) -> _Expr: ...
def tanh(x: _Any) -> _Expr: ...
def erf(x: _Any) -> _Expr: ...
def erfc(x: _Any) -> _Expr: ...
def expm1(x: _Any) -> _Expr: ...
def log1p(x: _Any) -> _Expr: ...
def sin(x: _Any) -> _Expr: ...
def cos(x: _Any) -> _Expr: ...
def tan(x: _Any) -> _Expr: ...
def asin(x: _Any) -> _Expr: ...
def acos(x: _Any) -> _Expr: ...
def atan(x: _Any) -> _Expr: ...
def floor(x: _Any) -> _Expr: ...
def round(x: _Any) -> _Expr: ...
