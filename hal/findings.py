"""What `devices check` reports: one finding, with its severity, path and reason."""

from __future__ import annotations

from rollergen.hal.dataclass import dataclass

WARNING, NOTE = "warning", "note"
SLACK = 1.05
"""Printed figures are rounded."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``severity``: warning (predictions are probably off) or note (worth a look).  ``path``: of the figure."""

    severity: str
    path: str
    message: str
    reason: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.path} {self.message} ({self.reason})"
