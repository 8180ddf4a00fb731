"""The state that all steps of one stage's lowering share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollergen.lower.copies import Staged
from rollergen.lower.nest import Nest
from rollergen.lower.reductions import Threads
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import Copy


@dataclass(frozen=True, slots=True)
class Context:
    """The state that all steps of one stage's lowering share. ``filled``: shared buffers that are in use."""

    out: Writer
    nest: Nest
    buffers: Mapping[Copy, Staged]
    threads: Threads
    step: str
    filled: set[Copy] = field(default_factory=set)
