"""Expressions of many layers: what is cut off is found without writing all of it out again and again."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.inlining import Inliner, Separator
from rollergen.expr.reads import computed_tensors


def layers(count: int):
    """Blocks of two products, a softmax and a sum with what went in."""
    x = rg.tensor("x", (8, 16))
    for n in range(count):
        first, second = (rg.tensor(f"{name}{n}", (16, 16), constant=True) for name in "ab")
        x = x + rg.ops.matmul(rg.ops.gelu(rg.ops.softmax(rg.ops.matmul(x, first))), second)
    return x


def written_out(count: int, monkeypatch) -> tuple[int, int]:
    """(nodes of all that is written out, stages)."""
    sizes, expand = [], Inliner.expand

    def counted(inliner, root):
        expansion = expand(inliner, root)
        sizes.append(expansion.size)
        return expansion

    with monkeypatch.context() as patched:
        patched.setattr(Inliner, "expand", counted)
        stages = len(canonicalize(layers(count)).tensor_ops)
    return sum(sizes), stages


def test_every_layer_more_costs_as_much_as_the_one_before(monkeypatch):
    nodes, stages = zip(*(written_out(count, monkeypatch) for count in (6, 7, 8)), strict=True)
    assert nodes[2] - nodes[1] == nodes[1] - nodes[0] and stages[2] - stages[1] == stages[1] - stages[0] > 1


@pytest.mark.parametrize("make", [lambda: layers(2), lambda: rg.ops.layer_norm(layers(1), (16,)),
    lambda: rg.ops.cumsum(rg.ops.take_along_dim(layers(1), rg.tensor("i", (8, 16), "int64"), 1), 1),
    lambda: rg.ops.relu(rg.tensor("x", (3, 4)))])  # fmt: skip
def test_the_size_of_an_expression_is_known_before_it_is_written_out(make):
    separator, root = Separator(), make()
    tensors = [one for one in computed_tensors([root]) if one.producer is not None]
    for stored in (set(), {id(one) for one in tensors[::3]}):
        for one in tensors:
            assert Inliner(separator, stored).size(one) == Inliner(separator, stored).expand(one).size
