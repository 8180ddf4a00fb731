"""Which rows a device keeps resident while they are reduced and walked again."""

from __future__ import annotations

from rollergen.expr.one_stage import Rows
from rollergen.hal.spec import Device

_APART = 4096
"""Elements of a row that lie apart: with its neighbours in lines of 64 bytes, as much as the longest other rows."""


def resident_rows(device: Device) -> Rows:
    """Rows whose elements lie apart are walked once where threads side by side take rows side by side.  A single
    thread reads them faster in separate passes along memory: elements a power of two apart share a set of its caches
    (measured: up to three times as fast on a CPU)."""
    return Rows(apart=_APART) if device.kind.lockstep else Rows()
