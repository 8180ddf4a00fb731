"""A spec that is slightly wrong is refused with its JSON path, or works: a sample of benches/bench_mutations.py."""

import pytest

from rollergen.explain.representative import representative
from rollergen.expr.canonical import canonicalize
from tests.hal.mutations import mutations, outcome

COUNT = 120
GRAPHS = {
    name: canonicalize(expr)
    for name, expr in representative().items()
    if name in ("matmul with tails", "matmul, int8", "softmax", "functions", "depthwise conv2d")
}


def test_mutations_are_the_same_for_the_same_seed():
    assert list(mutations(5, seed=1)) == list(mutations(5, seed=1)) != list(mutations(5, seed=2))


@pytest.mark.parametrize("first", range(0, COUNT, 15))
@pytest.mark.every(11)
def test_a_mutated_spec_is_refused_with_its_path_or_constructs(first):
    found = [outcome(*one, GRAPHS) for one in mutations(COUNT, seed=11) if first <= one[0] < first + 15]
    assert [one for one in found if one.state == "wrong"] == []
    assert {one.state for one in found} == {"refused", "constructed"}
