"""Records held out in turn: (train, test) masks, refused with what is missing where one side would have too few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rollergen.errors import ArgumentError
from rollergen.verify.dataset import Dataset

FOLDS = 10
LEAST_TRAINED = 20
"""Records to train on below which boosted trees are of one leaf, or refused by LightGBM."""

Split = Iterator[tuple[np.ndarray, np.ndarray]]


STRUCTURE = (
    "the operator's class; which operands some reduced axis and some other axis index, and which are read through "
    "windows; of one operand without a window also whether its neighbours are the output's, reduced, or neither. No "
    "names, extents or numbers of axes, no order of dimensions, nothing of what is computed from the elements"
)
"""What operators have in common that are on one side: `features.structure.Operator.structure`, in words."""


class TooFewRecords(ArgumentError):
    """Records of too few operators, structures or classes for a protocol: how many there are, how many it needs."""


def folds(data: Dataset, count: int, seed: int) -> Split:
    """(train, test) masks; all operators of one structure are on the same side.  Structures are dealt to the folds
    in random order, each to the smallest fold so far.  Raises TooFewRecords."""
    structures, sizes = np.unique(data.structure, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(structures))
    held: list[list[int]] = [[] for _ in range(min(count, len(structures)))]
    filled = [0] * len(held)
    for at in order:
        smallest = filled.index(min(filled))
        held[smallest].append(int(structures[at]))
        filled[smallest] += int(sizes[at])
    return held_out(data, [np.isin(data.structure, one) for one in held], "canonical structure")


def by_structure(data: Dataset, seed: int) -> Split:
    """(train, test) masks of ten folds: B's structures are none of A's."""
    return folds(data, FOLDS, seed)


def by_class(data: Dataset, seed: int) -> Split:
    """One fold for each class, which A lacks."""
    kinds = data.kinds()
    return held_out(data, [kinds == kind for kind in sorted(set(kinds))], "class")


def by_shape(data: Dataset, seed: int) -> Split:
    """Ten folds of the operators that share their structure with another: B's shapes are none of A's."""
    operators = np.array([data.operator[rows[0]] for rows in data.operators()])
    structures = np.array([data.structure[rows[0]] for rows in data.operators()])
    several = np.isin(structures, [s for s in np.unique(structures) if (structures == s).sum() > 1])
    dealt = np.random.default_rng(seed).permutation(int(several.sum())) % FOLDS
    tests = [np.isin(data.operator, operators[several][dealt == fold]) for fold in range(FOLDS)]
    return held_out(data, [test for test in tests if test.any()], "shape of a structure that others share")


SPLITS: Mapping[str, Callable[[Dataset, int], Split]] = {
    "operators": by_structure, "shapes": by_shape, "classes": by_class,
}  # fmt: skip


def held_out(data: Dataset, tests: Sequence[np.ndarray], of: str) -> Split:
    """Each of the masks `tests` in turn with the rest to train on; ``of``: what its operators have in common, in words.

    Raises TooFewRecords, before the first, where there are fewer than two, where one leaves fewer than
    `LEAST_TRAINED` records that passed their check, or where no operator has two programs of which one passed.
    """
    has = f"the records are {len(data)} of {len(data.operators())} operators"
    more = "rollergen verify collect measures more"
    if len(tests) < 2:
        raise TooFewRecords(
            f"{has}, in {len(tests)} parts by {of}; expected at least 2, as each is held out from training: {more}"
        )
    left = min(int((data.right & ~test).sum()) for test in tests)
    if left < LEAST_TRAINED:
        raise TooFewRecords(
            f"{has}; with those of one {of} held out, {left} that passed their check are left to train on; expected "
            f"at least {LEAST_TRAINED}: {more}"
        )
    if not any(len(rows) > 1 and data.right[rows].any() for rows in data.operators()):
        raise TooFewRecords(f"{has}, none of which has 2 programs of which one passed its check: {more}")
    return iter([(~test, test) for test in tests])
