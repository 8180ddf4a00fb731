"""Kernel IR -> source text, one string for all launches of a program.

What writes programs is loaded by the first one: a kernel that is found in the store has its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollergen.emit.source import Launch, Source, packed_names

if TYPE_CHECKING:
    from rollergen.emit.writing import emit, emit_all, emit_open

__all__ = ["Launch", "Source", "emit", "emit_all", "emit_open", "packed_names"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from rollergen.emit import writing

    return getattr(writing, name)
