"""ONNX's operators by `rg.ops` and the language: a module for each family enters its own into `table.TABLE`."""

from rollergen.importers.onnx_operators import (  # noqa: F401
    attention,
    contractions,
    linear,
    pointwise,
    quantised,
    recurrent,
    reductions,
    selections,
    views,
)
from rollergen.importers.onnx_operators.table import TABLE

__all__ = ["TABLE"]
