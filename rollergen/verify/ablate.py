"""What a verifier owes to what: groups of features, number of records, operators it has seen, abstention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from rollergen.verify.dataset import Dataset
from rollergen.verify.evaluate import FOLDS, folds, interval, judge, judged, vars_of
from rollergen.verify.features import GROUPS
from rollergen.verify.metrics import top_k
from rollergen.verify.rankers import Analytical, Boosted, columns_of, deployed_order
from rollergen.verify.support import Support

Progress = Callable[[str, int, int], None]
_QUIET: Progress = lambda what, done, of: None
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
LOCAL = (0, 5, 10, 20)


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
        found[name] = _macro([judge(data, make, seed, count) for seed in seeds])
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
        found.append({"records": fmean(sizes), "share of operators": share, **_macro(runs)})
        progress(f"{share:.0%} of the operators", number + 1, len(SHARES))
    return found


def transfer(data: Dataset, objective: str, seeds: Sequence[int], progress: Progress = _QUIET) -> dict[str, Any]:
    """Each class held out whole; the same after `LOCAL` programs of each of its operators were measured, with trees
    trained on these and the others together, judged on the programs that were not; and, for comparison, shapes held
    out while operators of the same structure were seen."""
    kinds = np.array([""] * len(data), dtype=object)
    for rows in data.operators():
        kinds[rows] = data.class_of(rows)
    by_class: dict[str, Any] = {}
    present = sorted(set(kinds))
    for number, kind in enumerate(present):
        test = kinds == kind
        by_class[kind] = {
            str(local): _macro([_with_local(data, test, objective, local, seed) for seed in seeds]) for local in LOCAL
        }
        by_class[kind]["analytical"] = _macro([judged(Analytical(), data.of(test))])
        progress(kind, number + 1, len(present) + 1)
    shapes = _macro([_shapes_held_out(data, objective, seed) for seed in seeds])
    progress("shapes", len(present) + 1, len(present) + 1)
    return {"classes held out, by programs measured of each operator": by_class, "shapes held out": shapes}


def abstention(data: Dataset, objective: str, seeds: Sequence[int], slots: int = 3) -> dict[str, Any]:
    """Each class held out: how often the verifier abstains, and the best of the first `slots` programs against the
    analytical order's, in the geometric mean over operators (above 1: the verifier's is faster), with abstention and
    without."""
    kinds = {int(data.operator[rows[0]]): data.class_of(rows) for rows in data.operators()}
    kept, asked, abstained, total = [], [], 0, 0
    for seed in seeds:
        for kind in sorted(set(kinds.values())):
            test = np.isin(data.operator, [op for op, own in kinds.items() if own == kind])
            ranker = Boosted(objective)
            train = data.of(~test & data.right)
            ranker.fit(train, seed)
            support = Support.of(train.x, ranker.boosters[0].feature_importance("gain").astype(float))
            for rows in data.of(test).operators():
                held = data.of(np.flatnonzero(test)[rows])
                ratio = _against_analytical(ranker, held, slots)
                objection = support.objection(held.x)
                asked.append(ratio)
                kept.append(1.0 if objection else ratio)
                abstained += objection is not None
                total += 1
    return {
        "operators": total,
        "abstained": abstained / total,
        "with abstention": float(np.exp(np.mean(np.log(kept)))),
        "without": float(np.exp(np.mean(np.log(asked)))),
        "worst with abstention": min(kept),
        "worst without": min(asked),
    }


def _against_analytical(ranker: Boosted, held: Dataset, slots: int) -> float:
    order = deployed_order(ranker.scores(held), held.predicted_ms, slots)
    model = deployed_order(Analytical().scores(held), held.predicted_ms, slots)
    return top_k(held.ms, order, slots) / top_k(held.ms, model, slots)


def _with_local(data: Dataset, test: np.ndarray, objective: str, local: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    measured = np.zeros(len(data), dtype=bool)
    if local:
        for rows in data.operators():
            if test[rows[0]]:
                measured[rng.permutation(rows)[: min(local, len(rows) // 2)]] = True
    ranker = Boosted(objective)
    ranker.fit(data.of(~test | measured), seed)
    return judged(ranker, data.of(test & ~measured))


def _shapes_held_out(data: Dataset, objective: str, seed: int, count: int = FOLDS) -> list[Any]:
    operators = np.unique(data.operator)
    dealt = np.random.default_rng(seed).permutation(len(operators)) % count
    run = []
    for fold in range(count):
        test = np.isin(data.operator, operators[dealt == fold])
        if test.any() and not test.all():
            ranker = Boosted(objective)
            ranker.fit(data.of(~test), seed)
            run += judged(ranker, data.of(test))
    return run


def _some_operators(data: Dataset, share: float, seed: int) -> Dataset:
    operators = np.unique(data.operator)
    chosen = np.random.default_rng(seed).permutation(operators)[: max(2, round(share * len(operators)))]
    return data.of(np.isin(data.operator, chosen))


def _macro(runs: Sequence[Sequence[Any]]) -> dict[str, float]:
    by_operator: dict[int, list[Any]] = {}
    for run in runs:
        for one in run:
            by_operator.setdefault(one.operator, []).append(one.figures)
    keys = ("top-1", "top-3", "top-5", "pairs", "trials")
    found = {k: float(np.nanmean([fmean(f[k] for f in own) for own in by_operator.values()])) for k in keys}
    spread = vars_of(interval([fmean(f["top-1"] for f in own) for own in by_operator.values()]))
    return {**found, "top-1 low": spread["low"], "top-1 high": spread["high"]}
