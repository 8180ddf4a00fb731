"""Einsums of several operands are multiplied in pairs where that takes fewer multiplications."""

from itertools import permutations
from math import prod

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import DtypeError
from rollergen.expr.contraction_order import EXHAUSTIVE, _greedy, contraction_order
from rollergen.expr.reads import computed_tensors, given_tensors

CASES = {
    "pi,qj,ijkl,rk,sl->pqrs": [(5, 4), (6, 3), (4, 3, 5, 6), (7, 5), (4, 6)],
    "ij,jk,kl->il": [(9, 8), (8, 7), (7, 6)],
    "ij,jk,k->i": [(9, 8), (8, 7), (7,)],
    "...ij,...jk,kl->...il": [(2, 9, 8), (1, 8, 7), (7, 6)],
    "ii,ij,jk->k": [(9, 9), (9, 7), (7, 6)],
    "ij,ij,jk->ik": [(9, 8), (9, 8), (8, 7)],  # the first pair sums nothing
    "bdik,acaj,ikab,ajac,ikbd": [(2, 3, 4, 5), (3, 2, 3, 4), (4, 5, 3, 2), (3, 4, 3, 2), (4, 5, 2, 3)],
    "a,ab,bc,cd,de,ef,fg,gh,hi->i": [(3,), (3, 4), (4, 5), (5, 3), (3, 4), (4, 3), (3, 2), (2, 5), (5, 4)],
}


def of(subscripts, shapes, dtype):
    return rg.einsum(subscripts, *(rg.tensor(f"T{n}", shape, dtype) for n, shape in enumerate(shapes)))


@pytest.mark.every(7)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32"])
@pytest.mark.parametrize("subscripts", CASES)
def test_a_product_in_pairs_is_the_product(subscripts, dtype):
    """Of integers exactly: what wraps around is widened before it is multiplied."""
    rng = np.random.default_rng(0)
    whole = dtype.startswith("int")
    shapes = CASES[subscripts]
    arrays = [
        (rng.integers(-99, 99, shape) if whole else rng.standard_normal(shape)).astype(dtype) for shape in shapes
    ]
    expr = of(subscripts, shapes, dtype)
    assert len(computed_tensors([expr])) > 1 and expr.dtype == {"int8": "int32"}.get(dtype, dtype)
    result = rg.build(expr, "cpu", profile=False)(*arrays)
    exact = np.einsum(subscripts, *(a.astype("int64" if whole else "float64") for a in arrays), optimize=True)
    if whole:
        np.testing.assert_array_equal(result, exact.astype("int32"))
    else:
        np.testing.assert_allclose(result, exact, rtol=0, atol=(2e-3 if dtype == "float16" else 1e-5) * abs(exact).max())


@pytest.mark.parametrize("subscripts", CASES)
def test_arguments_stay_in_the_order_of_the_operands(subscripts):
    shapes = CASES[subscripts]
    assert [one.name for one in given_tensors([of(subscripts, shapes, "float32")])] == [f"T{n}" for n in range(len(shapes))]


@pytest.mark.parametrize("subscripts", ["i,i,i->i", "ij,ij,ij->ij", "ij,jk->ik"])
def test_all_at_once_stays_where_pairs_save_nothing(subscripts):
    shapes = [tuple({"i": 3, "j": 4, "k": 5}[letter] for letter in word) for word in subscripts.split("->")[0].split(",")]
    assert len(computed_tensors([of(subscripts, shapes, "float32")])) == 1


def cost(order, operands, output, extents):
    """Multiplications of pairs in that order."""
    operands, total = list(operands), 0
    for a, b in order:
        met = operands[a] | operands[b]
        others = [one for n, one in enumerate(operands) if n not in (a, b)]
        total += prod(extents[letter] for letter in met)
        operands = [*others, met & frozenset().union(output, *others)]
    return total


def every_order(count):
    if count == 1:
        yield ()
        return
    for a, b in permutations(range(count), 2):
        if a < b:
            yield from (((a, b), *rest) for rest in every_order(count - 1))


@pytest.mark.parametrize("subscripts", [one for one in CASES if "." not in one and one.count(",") < 5])
def test_no_order_takes_fewer_multiplications(subscripts):
    words, _, output = subscripts.partition("->")
    operands = [frozenset(word) for word in words.split(",")]
    extents = {letter: extent for word, shape in zip(words.split(","), CASES[subscripts], strict=True) for letter, extent in zip(word, shape, strict=True)}
    found = contraction_order(operands, frozenset(output), extents)
    tried = [cost(order, operands, frozenset(output), extents) for order in every_order(len(operands))]
    assert cost(found, operands, frozenset(output), extents) == min(tried)


def test_many_operands_take_the_pair_that_shrinks_most():
    letters = [frozenset(chr(97 + n) + chr(98 + n)) for n in range(EXHAUSTIVE + 3)]
    extents = {chr(97 + n): 2 + n % 3 for n in range(EXHAUSTIVE + 4)}
    order = contraction_order(letters, frozenset("a"), extents)
    assert len(order) == len(letters) - 1
    assert cost(order, letters, frozenset("a"), extents) == _greedy(letters, frozenset("a"), extents)[0]


def test_operands_of_several_dtypes_are_still_refused():
    a, b, c = rg.tensor("a", (3, 4)), rg.tensor("b", (4, 5), "float16"), rg.tensor("c", (5, 6))
    with pytest.raises(DtypeError, match="cast one operand"):
        rg.einsum("ij,jk,kl->il", a, b, c)
