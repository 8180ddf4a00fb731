"""The alignment rules say what the paper says, and each can be switched off."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.errors import ArgumentError
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load
from rollergen.tile.rules import AlignmentRules, CodeShapes, contiguous_axis, padding_waste

sizes = st.integers(1, 5000)


@settings(deadline=None)
@given(sizes, sizes)
def test_padding_waste_is_the_padded_share_of_the_axis(extent, tile):
    padded = -(-extent // tile) * tile
    assert padding_waste(extent, tile) == (padded - extent) / extent


@settings(deadline=None)
@given(sizes, st.integers(1, 50))
def test_an_exact_fit_wastes_nothing(tile, count):
    assert padding_waste(tile * count, tile) == 0


def test_the_contiguous_axis_of_a_load_is_the_one_with_neighbouring_addresses():
    i, j = Index.axis("i"), Index.axis("j")
    matrix = Buffer("A", (8, 16))
    assert contiguous_axis(Load(matrix, (i, j))) == "j"
    assert contiguous_axis(Load(matrix, (j, i))) == "i"
    assert contiguous_axis(Load(matrix, (i, j * 2))) is None
    assert contiguous_axis(Load(matrix, (i, j % 4))) == "j"


def test_axes_of_a_definition_are_found_by_role():
    d = TensorOp(Buffer("C", (8,)), (Axis("i", 8), Axis("k", 4, "reduce")), (Index.axis("i"),), Load(Buffer("A", (8,)), (Index.axis("i"),)))
    assert [a.name for a in d.of_role("reduce")] == ["k"]


@pytest.mark.parametrize(("switches", "name"), [(AlignmentRules, "bank"), (CodeShapes, "prefetch")])
@pytest.mark.parametrize("value", [1, "no", None])
def test_a_switch_is_true_or_false(switches, name, value):
    with pytest.raises(ArgumentError, match=f"{name} is {value!r}; expected True or False"):
        switches(**{name: value})
