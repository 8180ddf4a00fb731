"""What a bench's figures should be: said on the page, and by the exit status of a bench that misses one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aim:
    """``what`` was found to be ``figure`` and should be ``aim``, in words; ``met``: whether it is."""

    what: str
    figure: str
    aim: str
    met: bool

    def headline(self) -> dict[str, str | bool]:
        """As the page reads it."""
        said: dict[str, str | bool] = {"what": self.what, "figure": self.figure, "aim": self.aim}
        return {**said, "met": self.met} if self.aim else said


def verdict(aims: Sequence[Aim]) -> int:
    """The exit status: 1 where an aim is missed.  Those are named in one line, the last that a bench prints:
    `rollergen bench suite` shows it."""
    missed = [one for one in aims if not one.met]
    if missed:
        said = "; ".join(f"{one.what}: {one.figure} ({one.aim})" for one in missed)
        print(f"misses {len(missed)} of {len(aims)} aims: {said}", flush=True)
    return int(bool(missed))
