"""PyTorch's names of arguments, accepted beside NumPy's: `dim` for `axis`, `keepdim` for `keepdims`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rollergen.errors import ExpressionError, check_argument_names, shown

_OURS = {"dim": "axis", "keepdim": "keepdims"}

F = TypeVar("F", bound=Callable[..., Any])


def torch_spellings(operator: F) -> F:
    """`operator` of rg.ops, whose `axis` and `keepdims`, if it has them, may also be called `dim` and `keepdim`.

    The result raises ExpressionError where an argument comes under both names, UnknownNameError for one that it does
    not have.

    >>> import rollergen as rg
    >>> rg.ops.sum(rg.tensor("x", (2, 3)), dim=1, keepdim=True).shape
    (2, 1)
    """
    positions = {name: position for position, name in enumerate(inspect.signature(operator).parameters)}

    @functools.wraps(operator)
    def spelled(*arguments: Any, **named: Any) -> Any:
        for theirs, ours in _OURS.items():
            if theirs in named and ours in positions:
                if ours in named or positions[ours] < len(arguments):
                    given = named[ours] if ours in named else arguments[positions[ours]]
                    raise ExpressionError(
                        f"rg.ops.{operator.__name__}: {ours}={shown(given)} and {theirs}={shown(named[theirs])} are "
                        "both given; they are one argument, expected once"
                    )
                named[ours] = named.pop(theirs)
        return operator(*arguments, **named)

    theirs = tuple(name for name, ours in _OURS.items() if ours in positions)
    return check_argument_names(cast(F, spelled), "rg.ops", also=theirs)
