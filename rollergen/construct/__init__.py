"""The construction of programs, loaded by the first one: a kernel that is found in the store needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollergen.construct.choose import Ranked, construct

__all__ = ["Ranked", "construct"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from rollergen.construct import choose

    return getattr(choose, name)
