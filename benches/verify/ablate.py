"""What a verifier owes to groups of features and to the number of records; what it does where it saw nothing alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from benches.verify.evaluate import judge_kept, judged, macro, packed, unpacked
from benches.verify.metrics import top_k
from benches.verify.rankers import Analytical, columns_of
from benches.verify.splits import FOLDS, SPLITS, TooFewRecords, by_class, folds
from benches.verify.transfer_curve import curve
from benches.verify.unfinished import Unfinished
from rollergen.features import GROUPS
from rollergen.measure.outcome import Progress
from rollergen.verify.dataset import Dataset
from rollergen.verify.rankers import Boosted, deployed_order
from rollergen.verify.support import Support

_QUIET: Progress = lambda what, done, of: None
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)


def whole(
    data: Dataset, objective: str, seeds: Sequence[int], progress: Progress = _QUIET, kept: Unfinished | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """(groups, learning curve, transfer by split, abstention; parts that the records do not allow, and why).

    Raises TooFewRecords where they allow none.
    """
    kept = kept or Unfinished()
    content: dict[str, Any] = {
        "groups": by_group(data, objective, seeds, progress=progress, kept=kept),
        "learning curve": learning_curve(data, objective, seeds, progress=progress, kept=kept),
        "transfer": {},
    }
    left_out = {}
    for split in SPLITS:
        try:
            content["transfer"][split] = curve(data, objective, seeds, split, progress, kept)
        except TooFewRecords as error:
            left_out[f"transfer to new {split}"] = str(error)
    try:
        content["abstention"] = abstention(data, objective, seeds, progress, kept)
    except TooFewRecords as error:
        left_out["abstention"] = str(error)
    return content, left_out


def by_group(
    data: Dataset, objective: str, seeds: Sequence[int], count: int = FOLDS, progress: Progress = _QUIET,
    kept: Unfinished | None = None,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Macro figures with all features, without each group, and with each group alone."""
    kept, letters = kept or Unfinished(), "".join(GROUPS)
    choices = {"all": letters, **{f"without {g} ({GROUPS[g]})": letters.replace(g, "") for g in letters}}
    choices |= {f"only {g} ({GROUPS[g]})": g for g in letters}
    found = {}
    for number, (name, chosen) in enumerate(choices.items()):
        make = lambda chosen=chosen: Boosted(objective, columns_of(*chosen))
        found[name] = macro([judge_kept(kept, f"{objective}, {name}", data, make, seed, count) for seed in seeds])
        progress(name, number + 1, len(choices))
    return found


def learning_curve(
    data: Dataset, objective: str, seeds: Sequence[int], count: int = FOLDS, progress: Progress = _QUIET,
    kept: Unfinished | None = None,
) -> list[dict[str, float]]:  # fmt: skip
    """Macro figures by the share of the training operators that are used, whole operators at a time."""
    kept, found = kept or Unfinished(), []
    for number, share in enumerate(SHARES):
        parts = [
            kept.part(
                f"{objective}, {share:.0%} of the operators, {count} folds, seed {seed}",
                partial(_with_some, data, objective, share, seed, count),
            )
            for seed in seeds
        ]
        sizes = [size for own, _ in parts for size in own]
        figures = macro([unpacked(run, data) for _, run in parts])
        found.append({"records": fmean(sizes), "share of operators": share, **figures})
        progress(f"{share:.0%} of the operators", number + 1, len(SHARES))
    return found


def _with_some(data: Dataset, objective: str, share: float, seed: int, count: int) -> tuple[list[int], list[Any]]:
    """(records trained on in each fold, what was judged) with a share of the training operators."""
    sizes, run = [], []
    for train, test in folds(data, count, seed):
        part = _some_operators(data.of(train), share, seed)
        ranker = Boosted(objective)
        ranker.fit(part, seed)
        sizes.append(int(part.right.sum()))
        run += judged(ranker, data.of(test))
    return sizes, packed(run)


SLOTS = (3, 10)


STRUCTURES = "structures"


def abstention(
    data: Dataset, objective: str, seeds: Sequence[int], progress: Progress = _QUIET, kept: Unfinished | None = None
) -> dict[str, dict[str, float]]:
    """Each class held out whole, all of them together ("all"), and structures held out in folds: how often the
    verifier abstains, and the speed of the best of the first 3 and 10 programs over that of the analytical order's, in
    the geometric mean over operators and seeds and for the worst one, with abstention and without."""
    kept = kept or Unfinished()
    lines: dict[str, list[tuple[bool, tuple[float, ...]]]] = {kind: [] for kind in sorted(set(data.kinds()))}
    by_structure: list[tuple[bool, tuple[float, ...]]] = []
    for number, ((train, test), (kind, found)) in enumerate(zip(by_class(data, 0), lines.items(), strict=True)):
        for seed in seeds:
            ask = partial(_asked, data.of(train & data.right), data.of(test), objective, seed)
            found += kept.part(f"{objective}, without {kind}, seed {seed}", ask)
        progress(f"abstention, {kind}", number + 1, len(lines))
    for number, seed in enumerate(seeds):
        for fold, (train, test) in enumerate(folds(data, FOLDS, seed)):
            ask = partial(_asked, data.of(train & data.right), data.of(test), objective, seed)
            by_structure += kept.part(f"{objective}, asked in fold {fold} of {FOLDS}, seed {seed}", ask)
        progress("abstention, structures", number + 1, len(seeds))
    every = [one for found in lines.values() for one in found]
    return {kind: _line(found) for kind, found in {"all": every, **lines, STRUCTURES: by_structure}.items()}


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
