"""The public names, for editors and type checkers: at run time each is loaded at its first use."""

from rollergen import errors
from rollergen.build import build
from rollergen.bundle.read import load
from rollergen.expr import operators as ops
from rollergen.expr.einsum import einsum
from rollergen.expr.language import (
    Tensor,
    abs,
    cast,
    compute,
    erf,
    exp,
    floor,
    log,
    max,
    maximum,
    min,
    minimum,
    pow,
    prod,
    reduce,
    reduce_axis,
    round,
    rsqrt,
    select,
    sqrt,
    sum,
    tanh,
    tensor,
)
from rollergen.kernel import Kernel
from rollergen.options import BuildOptions
from rollergen.research import construct, load_device, predict, profile, space
from rollergen.result_pool import clear_pool
from rollergen.tile.rules import AlignmentRules, CodeShapes

__version__: str
__all__ = [
    "AlignmentRules",
    "BuildOptions",
    "CodeShapes",
    "Kernel",
    "Tensor",
    "abs",
    "build",
    "cast",
    "clear_pool",
    "compute",
    "construct",
    "einsum",
    "erf",
    "errors",
    "exp",
    "floor",
    "load",
    "load_device",
    "log",
    "max",
    "maximum",
    "min",
    "minimum",
    "ops",
    "pow",
    "predict",
    "prod",
    "profile",
    "reduce",
    "reduce_axis",
    "round",
    "rsqrt",
    "select",
    "space",
    "sqrt",
    "sum",
    "tanh",
    "tensor",
]
