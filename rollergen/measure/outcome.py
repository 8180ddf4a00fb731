"""The outcome of one candidate."""

from __future__ import annotations

from collections.abc import Callable

from rollergen.emit import Source
from rollergen.errors import ArgumentError, shown
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram

Progress = Callable[[str, int, int], None]
"""``progress(what, done, of)``."""


def silent(what: str, done: int, of: int) -> None:
    """Progress that nobody watches."""


def watched(progress: Progress | None) -> Progress:
    """``progress``, `silent` for None; ArgumentError for what is no function."""
    if not (progress is None or callable(progress)):
        raise ArgumentError(f"progress is {shown(progress)}; expected a function of (what, done, of), or None")
    return progress or silent


UNWRITTEN = Source("", (), "")
"""Of candidates whose text nobody has needed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate.

    ``wall_s`` and ``event_s``: medians in seconds of one call, as in `Reading`; None where it was not timed, or where
    the device's events tell nothing.
    ``compile_s``: seconds waited for its compiler, which may have begun before (`background.py`).  ``times_s``: those
    of ``wall_s``, in order.
    ``problems`` is why it may not win: a build holds the fastest alone to all of the gate's runs, so that others with
    none of them may still be wrong on infinities and NaN, or now and then (`Gate.confirm`).  ``compared`` counts the
    elements that were held against the oracle; ``sent_bytes`` and ``fetched_bytes`` are what its check copied to and
    from the device's memory.
    ``rank``: its place under the model, from 0.  ``ended``: "time" or "crash" where its
    process was lost with it (`isolation.py`), else "".  ``doubt``: why
    its times are not believed (then ``wall_s`` is None), else "".  ``note``: what else there is to know of it, else "".
    ``noisy``: why its times, which stand, look like those of a busy machine (`noise.py`), else "".
    ``caches``: how its runs find them when it is timed, "warm" (operands as the last run left them) or "cold".
    ``source``: empty where it has `problems`, and where nobody has needed it (``unwritten``).
    """

    rank: int
    program: RProgram
    source: Source
    predicted_s: float
    compile_s: float | None = None
    wall_s: float | None = None
    event_s: float | None = None
    rounds: int = 0
    compared: int = 0
    sent_bytes: int = 0
    fetched_bytes: int = 0
    problems: tuple[str, ...] = ()
    times_s: tuple[float, ...] = ()
    check_s: float | None = None
    ended: str = ""
    doubt: str = ""
    note: str = ""
    noisy: str = ""
    caches: str = "warm"

    def __repr__(self) -> str:
        predicted = f"predicted {self.predicted_s * 1e6:.4g} us"
        measured = "" if self.wall_s is None else f", measured {self.wall_s * 1e6:.4g} us"
        return f"<candidate {self.rank}, {self.state}: {predicted}{measured}; {self.program}>"

    @property
    def unwritten(self) -> bool:
        """Whether its source is still to be written (`profiler.written_out`)."""
        return self.source == UNWRITTEN and not self.problems

    @property
    def state(self) -> str:
        """passed, failed, not believed (its times; its results are right), or not run."""
        if self.problems:
            return "failed"
        if self.doubt:
            return "not believed"
        return "not run" if self.wall_s is None else "passed"

    @property
    def spread_s(self) -> float | None:
        """Seconds between the quartiles of the times; None where it was not timed."""
        if len(self.times_s) < 2:
            return None
        from statistics import quantiles  # which kernels that are found need not wait for

        low, _, high = quantiles(self.times_s, n=4)
        return high - low
