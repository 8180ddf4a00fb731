"""Chains of additions that are added up one after the other are written a term of each at a time."""

import re
from functools import reduce
from operator import add

import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.program.interpreter import interpret
from tests.agreement.readers import device, run_opencl, small_integers

X = rg.tensor("X", (24, 32))


def program(*lengths):
    """Sums of so many rows of X each, one after the other, added up."""
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    chain = lambda start, length, i: reduce(add, [X[start + n, i] for n in range(length)])
    total = lambda i: reduce(add, [chain(*one, i) for one in zip(starts, lengths, strict=True)])
    return rg.construct(rg.compute((32,), total, name="Y"), "cpu", top_k=1)[0]


def additions(made):
    """What each constant of the text that holds a part of a chain is."""
    return re.findall(r" chain\w* = (.*);", emit(made, device("cpu"), "opencl").text)


@pytest.mark.parametrize("lengths", [(4, 4), (6, 5, 8), (5, 4, 4, 4)])
def test_long_chains_take_turns_and_compute_what_they_did(lengths):
    made = program(*lengths)
    found = additions(made)
    assert len(found) == sum(lengths) - len(lengths)
    assert ["chain" in one for one in found] == [False] * len(lengths) + [True] * (len(found) - len(lengths))
    arrays = small_integers(made)
    assert (run_opencl(made, arrays, device("cpu"))["Y"] == interpret(made, arrays, device("cpu")).outputs["Y"]).all()


@pytest.mark.parametrize("lengths", [(20,), (3, 4), (4, 3), (2, 2, 2)])
def test_one_chain_and_short_ones_stay_an_expression(lengths):
    assert not additions(program(*lengths))
