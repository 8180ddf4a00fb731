"""What a caller may permit, forbid or limit in a build: one frozen type."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

from rollergen.errors import ArgumentError
from rollergen.tile.rules import AlignmentRules


def _is_number(value: object) -> bool:
    """Whether it is an int or float that fits a double; infinities and NaN are."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_share(value: Any) -> bool:
    return _is_number(value) and isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Options of `rollergen.build`; the defaults are what nearly everybody wants.

    alignment
        Which of the four alignment rules construction obeys (ROLLER, section 3.2); switching one
        off is an ablation, the programs stay correct.
    epsilon
        Largest padded share of an axis that a tile may cause, 0.1 meaning 10 %.  None: starts at 0
        and is raised until enough programs exist.
    padding
        Whether tiles may reach beyond the end of an axis (what lies there is computed in vain, or masked).  False
        is ``epsilon=0``: every tile divides its axis.
    pad_value
        What copies made for a program (packed operands) hold beyond the end of an axis; never part of a result,
        whatever it is.  Copies of operands that the expression itself pads hold the expression's value.
    max_units
        Use at most so many of the device's execution units (streaming multiprocessors, cores).
        None: all of them.
    time_budget_s
        Seconds of wall time after which profiling starts no further candidate; the first one is
        always compiled, checked and timed.

    Raises `ArgumentError` for a value out of range.
    """

    alignment: AlignmentRules = AlignmentRules()
    epsilon: float | None = None
    padding: bool = True
    pad_value: float = 0.0
    max_units: int | None = None
    time_budget_s: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.alignment, AlignmentRules):
            names = ", ".join(f.name for f in fields(AlignmentRules))
            raise ArgumentError(f"alignment is {self.alignment!r}; expected AlignmentRules({names})")
        if self.epsilon is not None and not _is_share(self.epsilon):
            raise ArgumentError(f"epsilon is {self.epsilon!r}; expected None or a share of at least 0, such as 0.1")
        self._check_padding()
        units = self.max_units
        if units is not None and (not isinstance(units, int) or isinstance(units, bool) or units < 1):
            raise ArgumentError(f"max_units is {self.max_units!r}; expected None or an integer of at least 1")
        if not (_is_number(self.time_budget_s) and self.time_budget_s > 0):
            raise ArgumentError(f"time_budget_s is {self.time_budget_s!r}; expected a number of seconds above 0")

    def _check_padding(self) -> None:
        if not isinstance(self.padding, bool):
            raise ArgumentError(f"padding is {self.padding!r}; expected True or False")
        if not _is_number(self.pad_value):
            raise ArgumentError(f"pad_value is {self.pad_value!r}; expected a number")
        if not self.padding and self.epsilon:
            raise ArgumentError(f"epsilon is {self.epsilon!r}, padding False; expected epsilon=None or padding=True")

    @property
    def rules(self) -> AlignmentRules:
        """The alignment rules with the limits of padding that go with them."""
        epsilon = self.epsilon if self.padding else 0.0
        return replace(self.alignment, epsilon=epsilon, pad_value=float(self.pad_value))
