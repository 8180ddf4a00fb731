"""Operators one after another: rankers trained on A, used on each operator of B in turn, updated before the next by the
programs that were measured of it.

A and B are the two halves of the structures, each in turn.  Of each operator of B the first `MEASURED` programs of the
ranker's own order are measured, as a profiled build does; it is judged on all of the operator's programs before that.
PaCM adapts by momentum (Pruner, ASPLOS 2025, section 4.3), or by ordinary fine-tuning; trees grow on all that was
measured so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from benches.verify.evaluate import judged, macro, packed, unpacked
from benches.verify.pacm import Attentive
from benches.verify.rankers import Analytical, Fitted
from benches.verify.splits import folds
from benches.verify.unfinished import Unfinished
from rollergen.errors import DeviceError
from rollergen.measure.outcome import Progress
from rollergen.optional import optional
from rollergen.verify.dataset import Dataset, joined
from rollergen.verify.rankers import Boosted, deployed_order

MEASURED = 10
"""Programs of each operator."""

HALVES = 2
THIRDS = ("first third", "second third", "last third")

_QUIET: Progress = lambda what, done, of: None


class Streamed(Fitted, Protocol):
    """A ranker that is told of each operator after it was measured."""

    def completed(self, measured: Dataset, seed: int) -> None:
        """All rows measured so far, those of the last operator among them."""


@dataclass
class Frozen:
    """Learns nothing more."""

    ranker: Fitted

    def scores(self, data: Dataset) -> np.ndarray:
        return self.ranker.scores(data)

    def completed(self, measured: Dataset, seed: int) -> None:
        pass


@dataclass
class Grown:
    """Trees of A, with more on all that was measured."""

    base: Boosted
    now: Boosted

    def scores(self, data: Dataset) -> np.ndarray:
        return self.now.scores(data)

    def completed(self, measured: Dataset, seed: int) -> None:
        self.now = copy(self.base)
        self.now.update(measured, seed)


@dataclass
class Adapted:
    """PaCM, updated as its `momentum` says."""

    ranker: Attentive

    def scores(self, data: Dataset) -> np.ndarray:
        return self.ranker.scores(data)

    def completed(self, measured: Dataset, seed: int) -> None:
        self.ranker.update(measured, seed)


def _of_trees(train: Dataset, objective: str, seed: int) -> dict[str, Streamed]:
    base = Boosted(objective)
    base.fit(train, seed)
    return {"verifier": Frozen(base), "verifier, updated": Grown(base, base)}


def _of_pacm(train: Dataset, seed: int) -> dict[str, Streamed]:
    base = Attentive()
    base.fit(train, seed)
    tuned = replace(deepcopy(base), momentum=0.0)
    return {"pacm": Frozen(base), "pacm, momentum": Adapted(deepcopy(base)), "pacm, fine-tuned": Adapted(tuned)}


def streams(
    data: Dataset, objective: str, seeds: Sequence[int], progress: Progress = _QUIET, kept: Unfinished | None = None,
    source: Dataset | None = None,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:  # fmt: skip
    """(by method the macro figures of all operators, and Top-1 by thirds of the stream; methods left out, and why).

    ``source``: A, such as another device's records, if not a half of `data`; all of `data` is then B."""
    kept = kept or Unfinished()
    families, left_out = ["trees"], {}
    try:
        optional("torch", "pacm")
        families.append("pacm")
    except DeviceError as error:
        left_out["pacm"] = str(error)
    found: dict[str, list[Any]] = {}
    for number, seed in enumerate(seeds):
        for family in families:
            name = f"{objective}, stream of {family}, {MEASURED} measured, seed {seed}"
            name += "" if source is None else f", from {len(source)} records of another source"
            run_all = partial(_followed_by_all, data, source, objective, family, seed)
            for method, run in kept.part(name, run_all).items():
                found.setdefault(method, []).append(run)
        progress("operators one after another", number + 1, len(seeds))
    return {method: _line(runs, data) for method, runs in found.items()}, left_out


def _line(runs: Sequence[Sequence[Any]], data: Dataset) -> dict[str, Any]:
    """``runs``: of each seed (third of its stream, what was judged)."""
    every = [unpacked([one for _, one in run], data) for run in runs]
    parts = (
        [one for run in runs for one in unpacked([found for at, found in run if at == third], data)]
        for third in range(len(THIRDS))
    )
    by_third = ([one.figures["top-1"] for one in part] for part in parts)
    return {**macro(every), **{name: float(np.mean(own)) for name, own in zip(THIRDS, by_third, strict=True) if own}}


def _followed_by_all(
    data: Dataset, source: Dataset | None, objective: str, family: str, seed: int
) -> dict[str, list[Any]]:
    """By method; trained on each half and followed on the other, or trained on `source` and followed on all."""
    if source is None:
        pairs = [(data.of(train), data.of(test)) for train, test in folds(data, HALVES, seed)]
    else:
        pairs = [(source, data)]
    found: dict[str, list[Any]] = {}
    for known, stream in pairs:
        learners = _of_pacm(known, seed) if family == "pacm" else _of_trees(known, objective, seed)
        if family == "trees":
            learners = {"analytical": Frozen(Analytical()), **learners}
        for method, learner in learners.items():
            found.setdefault(method, []).extend(followed(learner, stream, seed))
    return found


def followed(learner: Streamed, stream: Dataset, seed: int) -> list[Any]:
    """(third of the stream, packed judgement) of each operator, in random order by the seed."""
    operators = stream.operators()
    order = np.random.default_rng(seed).permutation(len(operators))
    found: list[Any] = []
    measured: Dataset | None = None
    for at, number in enumerate(order):
        own = stream.of(operators[number])
        found += [[len(THIRDS) * at // len(order), one] for one in packed(judged(learner, own))]
        first = own.of(np.array(deployed_order(learner.scores(own), own.predicted_ms, MEASURED)[:MEASURED]))
        measured = first if measured is None else joined(measured, first)
        learner.completed(measured, seed)
    return found
