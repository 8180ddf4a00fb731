"""Construction-first kernel generator: the public names, each loaded at its first use."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from rollergen.expr.primitives import FUNCTIONS

__version__ = "0.2.0"

_LANGUAGE = "rollergen.expr.language"
_NAMES = {
    **dict.fromkeys(
        ("tensor", "reduce_axis", "compute", "sum", "max", "min", "prod", "reduce", "maximum", "minimum", "select",
         "cast", "divide", "remainder", "take", "abs", "pow", "atan2", "Tensor", *FUNCTIONS),
        _LANGUAGE,
    ),
    "einsum": "rollergen.expr.einsum",
    "scan": "rollergen.expr.scans",
    "put": "rollergen.expr.puts",
    "scalar": "rollergen.expr.scalar_arguments",
    "dim": "rollergen.expr.dims",
    "build": "rollergen.build",
    "compile": "rollergen.network.compiling",
    "pack": "rollergen.expr.nibbles",
    "Model": "rollergen.network.model",
    "BuildOptions": "rollergen.construct.options",
    "AlignmentRules": "rollergen.tile.rules",
    "CodeShapes": "rollergen.tile.rules",
    "Kernel": "rollergen.kernel",
    "load": "rollergen.network.model",
    "clear_pool": "rollergen.runtime.result_pool",
    "plot_space": "rollergen.explain.plots",
    **dict.fromkeys(("construct", "predict", "space", "profile", "load_device"), "rollergen.research"),
}  # fmt: skip
_MODULES = {"ops": "rollergen.expr.operators", "errors": "rollergen.errors"}
__all__ = sorted([*_NAMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        if _NAMES[name] == _LANGUAGE:
            importlib.import_module(_MODULES["ops"])  # the operators and methods of tensors
        value = _public(getattr(importlib.import_module(_NAMES[name]), name))
    else:
        from rollergen.hal.errors import name_advice

        operators = getattr(sys.modules.get(_MODULES["ops"]), "__all__", ())
        advice = f"expected rg.ops.{name}" if name in operators else name_advice(name, __all__)
        raise AttributeError(f"rollergen has no attribute {name!r}; {advice}")
    globals()[name] = value
    return value


def _public(value: Any) -> Any:
    """A function with checked names of arguments, found under this package by whoever unpickles it."""
    if isinstance(value, types.FunctionType):
        from rollergen.errors import check_argument_names

        value = check_argument_names(value, "rg")
        if value.__module__.startswith("rollergen.expr."):
            from rollergen.expr.dims import takes_dims

            value = takes_dims(value)
        value.__module__ = __name__
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(types.ModuleType):
    """Importing the module ``rollergen.build`` must not hide the function ``rollergen.build``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _NAMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
