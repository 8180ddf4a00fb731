"""What a verifier owes to groups of features and to the number of records; what it does where it saw nothing alike."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset
from rollergen.verify.evaluate import FOLDS, folds, judge, judged, macro
from rollergen.verify.features import GROUPS
from rollergen.verify.metrics import top_k
from rollergen.verify.rankers import Analytical, Boosted, columns_of, deployed_order
from rollergen.verify.support import Support

_QUIET: Progress = lambda what, done, of: None
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)


def by_group(
    data: Dataset, objective: str, seeds: Sequence[int], count: int = FOLDS, progress: Progress = _QUIET
) -> dict[str, dict[str, float]]:
    """Macro figures with all features, without each group, and with each group alone."""
    letters = "".join(GROUPS)
    choices = {"all": letters, **{f"without {g} ({GROUPS[g]})": letters.replace(g, "") for g in letters}}
    choices |= {f"only {g} ({GROUPS[g]})": g for g in letters}
    found = {}
    for number, (name, chosen) in enumerate(choices.items()):
        make = lambda chosen=chosen: Boosted(objective, columns_of(*chosen))
        found[name] = macro([judge(data, make, seed, count) for seed in seeds])
        progress(name, number + 1, len(choices))
    return found


def learning_curve(
    data: Dataset, objective: str, seeds: Sequence[int], count: int = FOLDS, progress: Progress = _QUIET
) -> list[dict[str, float]]:
    """Macro figures by the share of the training operators that are used, whole operators at a time."""
    found = []
    for number, share in enumerate(SHARES):
        runs, sizes = [], []
        for seed in seeds:
            run = []
            for train, test in folds(data, count, seed):
                part = _some_operators(data.of(train), share, seed)
                ranker = Boosted(objective)
                ranker.fit(part, seed)
                sizes.append(int(part.right.sum()))
                run += judged(ranker, data.of(test))
            runs.append(run)
        found.append({"records": fmean(sizes), "share of operators": share, **macro(runs)})
        progress(f"{share:.0%} of the operators", number + 1, len(SHARES))
    return found


SLOTS = (3, 10)


def abstention(
    data: Dataset, objective: str, seeds: Sequence[int], progress: Progress = _QUIET
) -> dict[str, dict[str, float]]:
    """Each class held out whole, and all of them together: how often the verifier abstains, and the speed of the best
    of the first 3 and 10 programs over that of the analytical order's, in the geometric mean over operators and seeds
    and for the worst one, with abstention and without."""
    kinds = {int(data.operator[rows[0]]): data.class_of(rows) for rows in data.operators()}
    lines: dict[str, list[tuple[bool, tuple[float, ...]]]] = {kind: [] for kind in sorted(set(kinds.values()))}
    for number, (kind, found) in enumerate(lines.items()):
        test = np.isin(data.operator, [op for op, own in kinds.items() if own == kind])
        for seed in seeds:
            found += _asked(data.of(~test & data.right), data.of(test), objective, seed)
        progress(f"abstention, {kind}", number + 1, len(lines))
    every = [one for found in lines.values() for one in found]
    return {kind: _line(found) for kind, found in {"all": every, **lines}.items()}


def _asked(train: Dataset, test: Dataset, objective: str, seed: int) -> list[tuple[bool, tuple[float, ...]]]:
    """Of each operator of `test` whether a verifier of `train` abstains, and its speed over the model's by `SLOTS`."""
    ranker = Boosted(objective)
    ranker.fit(train, seed)
    support = Support.of(train.x, ranker.boosters[0].feature_importance("gain").astype(float))
    found = []
    for rows in test.operators():
        held = test.of(rows)
        objects = support.objection(held.x) is not None
        found.append((objects, tuple(_against_analytical(ranker, held, slots) for slots in SLOTS)))
    return found


def _line(found: Sequence[tuple[bool, tuple[float, ...]]]) -> dict[str, float]:
    line = {"operators": len(found), "abstained": fmean(objects for objects, _ in found)}
    for at, slots in enumerate(SLOTS):
        asked = np.array([ratios[at] for _, ratios in found])
        kept = np.where([objects for objects, _ in found], 1.0, asked)
        for what, ratios in (("with abstention", kept), ("without", asked)):
            line[f"{slots} slots, {what}"] = float(np.exp(np.log(ratios).mean()))
            line[f"{slots} slots, worst {what}"] = float(ratios.min())
    return line


def _against_analytical(ranker: Boosted, held: Dataset, slots: int) -> float:
    order = deployed_order(ranker.scores(held), held.predicted_ms, slots)
    model = deployed_order(Analytical().scores(held), held.predicted_ms, slots)
    return top_k(held.ms, order, slots) / top_k(held.ms, model, slots)


def _some_operators(data: Dataset, share: float, seed: int) -> Dataset:
    operators = np.unique(data.operator)
    chosen = np.random.default_rng(seed).permutation(operators)[: max(2, round(share * len(operators)))]
    return data.of(np.isin(data.operator, chosen))
