"""Formulas of tiles: the same numbers as an address count where tiles fit, more where they overhang."""

from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.tile.closed_forms import closed_forms, explain_forms, operations, steps_of
from rollergen.tile.exact_traffic import traffic
from tests.programs import gpu_conv, gpu_matmul, matmul_op


def elements(op, tile, what):
    return [getattr(one, what).value for one in closed_forms(op, tile)]


def test_a_matmul_tile_holds_and_moves_what_arithmetic_says():
    op, tile = matmul_op(128, 96, 64), {"i": 32, "j": 16, "k": 8}
    assert elements(op, tile, "footprint") == [32 * 8, 8 * 16, 32 * 16]
    steps = (128 // 32) * (96 // 16) * (64 // 8)
    assert steps_of(op, tile).value == steps
    assert elements(op, tile, "traffic") == [steps * 32 * 8, steps * 8 * 16, 128 * 96]
    assert operations(op) == 2 * 128 * 96 * 64


def test_an_axis_that_no_tile_names_has_tile_size_one():
    assert steps_of(matmul_op(8, 8, 8), {"i": 8}).value == 64


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([64, 128, 192]), st.sampled_from([64, 128, 192]), st.sampled_from([8, 16, 24]))
def test_forms_equal_the_address_count_where_tiles_fit(m, n, k):
    stage = gpu_matmul(m, n, k).stages[0]
    assert elements(stage.op, {"i": 64, "j": 64, "k": 8}, "traffic") == [t.transactions for t in traffic(stage, 4)]


def test_a_window_touches_less_than_it_holds():
    window = closed_forms(gpu_conv(4, 16, 16, 16).stages[0].op, {"f": 16, "p": 16, "k": 9})[1]
    assert window.footprint.value == 16 * 9
    assert window.distinct.value == 3 * 18  # one row of 16 outputs under a 3x3 window


def test_explanations_put_names_and_numbers_in():
    lines = explain_forms(matmul_op(128, 96, 64), {"i": 32, "j": 16, "k": 8})
    assert lines[0] == f"A: footprint tile_i*tile_k = 256 elements; traffic tile_i*tile_k*steps = {192 * 256 * 4} bytes"
    assert lines[-1] == "steps ceil(i/tile_i)*ceil(j/tile_j)*ceil(k/tile_k) = 192; 1572864 operations"


def test_what_a_formula_says_is_its_number():
    """Of windows too: their text is worth the same when Python reads it."""
    op, tile = gpu_conv(4, 16, 16, 16).stages[0].op, {"f": 16, "p": 16, "k": 9}
    names = {f"tile_{axis.name}": tile.get(axis.name, 1) for axis in op.axes}
    names |= {axis.name: axis.extent for axis in op.axes}
    names |= {"steps": steps_of(op, tile).value, "ceil": lambda x: -int(-x // 1), "min": min}
    for one in closed_forms(op, tile):
        for form in (one.footprint, one.distinct, one.traffic):
            assert eval(form.text, {"__builtins__": {}}, names) == form.value, form


def test_tiles_that_overhang_move_at_least_what_is_there():
    stage = gpu_matmul(70, 100, 37).stages[0]
    upper = elements(stage.op, {"i": 64, "j": 64, "k": 8}, "traffic")
    for bound, count in zip(upper, traffic(stage, 4), strict=True):
        assert count.transactions <= bound


def test_a_plain_tile_touches_exactly_what_it_holds():
    op, tile = matmul_op(64, 64, 64), {"i": 5, "j": 7, "k": 3}
    assert elements(op, tile, "distinct") == elements(op, tile, "footprint") == [5 * 3, 3 * 7, 5 * 7]


def test_an_output_of_one_element_has_forms_too():
    graph = canonicalize(rg.ops.sum(rg.tensor("A", (33, 65)), name="C"))
    (op,) = graph.tensor_ops
    assert "C: footprint 1 = 1 elements; traffic 1 = 4 bytes" in explain_forms(op, {})
