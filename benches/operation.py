"""What a library is asked for: no more than names and sizes, so that the list of cases is read at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operation:
    """An operation of arrays: ``name`` of ours (``int_matmul``: of bytes, into int32), ``shape`` and ``dtype`` of the
    result, ``settings`` as PyTorch spells them, ``weights``: which inputs are constant (a library may pack them
    beforehand)."""

    name: str
    shape: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    dtype: str = "float32"
