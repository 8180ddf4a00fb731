"""What is held out was not trained on, and too few records are refused before anything is trained."""

import numpy as np
import pytest

from benches.verify import ablate, evaluate, replay
from benches.verify.rankers import RANKERS
from benches.verify.splits import LEAST_TRAINED, SPLITS, TooFewRecords, folds
from benches.verify.transfer_curve import curve
from rollergen.errors import ArgumentError
from rollergen.verify.dataset import from_records
from rollergen.verify.model_text import VerifierError
from rollergen.verify.rankers import Boosted
from tests.verify.records import recorded


@pytest.fixture(scope="module")
def data():
    return from_records([recorded()])


def of_operators(data, *numbers):
    return data.of(np.isin(data.operator, numbers))


def test_one_structure_cannot_be_held_out(data):
    matmuls = of_operators(data, 0, 1, 2)
    expected = "the records are 90 of 3 operators, in 1 parts by canonical structure; expected at least 2"
    with pytest.raises(TooFewRecords, match=expected):
        evaluate.compare(matmuls, {"analytical": RANKERS["analytical"]}, seeds=[0])
    with pytest.raises(TooFewRecords, match=expected):
        replay.measurements_saved(matmuls, seeds=[0])
    with pytest.raises(TooFewRecords, match="in 1 parts by class; expected at least 2"):
        ablate.abstention(matmuls, "foremost", [0])
    with pytest.raises(TooFewRecords, match="in 0 parts by shape"):
        curve(of_operators(data, 0, 5), "foremost", [0], "shapes")
    assert issubclass(TooFewRecords, ArgumentError), "the command line tells it without a traceback"


def test_a_structure_that_leaves_too_few_records_is_told_with_their_number(data):
    few = of_operators(data, 0, 1, 5)
    few = few.of(np.flatnonzero((few.operator != 5) | (np.cumsum(few.operator == 5) <= LEAST_TRAINED - 1)))
    with pytest.raises(TooFewRecords, match=f"held out, {LEAST_TRAINED - 1} that passed .* at least {LEAST_TRAINED}"):
        folds(few, 10, 0)
    assert len(list(folds(of_operators(data, 0, 1, 5), 10, 0))) == 2


def test_records_of_programs_that_failed_are_too_few():
    data = from_records([recorded(10, failing=2)])
    data.ms[:] = np.inf
    for split in SPLITS.values():
        with pytest.raises(TooFewRecords, match="0 that passed their check are left"):
            split(data, 0)


def test_trees_are_not_grown_on_nothing(data):
    pytest.importorskip("lightgbm")
    for name in ("regression", "lambdarank", "foremost"):
        with pytest.raises(VerifierError, match="1 records that passed their check; expected at least 2"):
            RANKERS[name]().fit(data.of(np.arange(1)), 0)
    assert Boosted().objective == "foremost"
