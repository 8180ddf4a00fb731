"""Symbolic forms: the same numbers as an address count where tiles fit, one compilation for all shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.tile import closed_forms as module
from rollergen.tile.closed_forms import closed_forms, explain_forms, reuse_score, structure_of, traffic
from tests.programs import cpu_matmul, gpu_conv, gpu_matmul, matmul_op


def test_a_matmul_tile_holds_and_moves_what_arithmetic_says():
    forms = closed_forms(matmul_op(128, 96, 64))
    tile = {"i": 32, "j": 16, "k": 8}
    assert forms.footprint_bytes(tile) == (32 * 8 * 4, 8 * 16 * 4, 32 * 16 * 4)
    steps = (128 // 32) * (96 // 16) * (64 // 8)
    assert forms.steps(tile) == steps
    assert forms.traffic_bytes(tile) == (steps * 32 * 8 * 4, steps * 8 * 16 * 4, 128 * 96 * 4)
    assert forms.flops == 2 * 128 * 96 * 64


def test_padding_lengthens_rows_of_the_contiguous_axis():
    forms = closed_forms(matmul_op(128, 96, 64))
    padded = forms.footprint_bytes({"i": 32, "j": 16, "k": 8}, padding=(4, 2))
    assert padded == (32 * (8 + 4) * 4, 8 * (16 + 2) * 4, 32 * 16 * 4)


def test_an_axis_that_no_tile_names_has_tile_size_one():
    assert closed_forms(matmul_op(8, 8, 8)).steps({"i": 8}) == 64


def test_an_unknown_axis_is_refused_with_the_axes_there_are():
    with pytest.raises(ValueError, match=r"tile names \['z'\]; the axes are \['i', 'j', 'k'\]"):
        closed_forms(matmul_op(8, 8, 8)).steps({"z": 8})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([64, 128, 192]), st.sampled_from([64, 128, 192]), st.sampled_from([8, 16, 24]))
def test_forms_equal_the_address_count_where_tiles_fit(m, n, k):
    stage = gpu_matmul(m, n, k).stages[0]
    forms = closed_forms(stage.op)
    counted = [t.transactions * 4 for t in traffic(stage, 4)]
    assert list(forms.traffic_bytes({"i": 64, "j": 64, "k": 8})) == counted


def test_a_window_touches_less_than_it_holds():
    stage = gpu_conv(4, 16, 16, 16).stages[0]
    forms = closed_forms(stage.op)
    tile = {"f": 16, "p": 16, "k": 9}
    held, touched = forms.footprint_bytes(tile)[1], forms.distinct_bytes(tile)[1]
    assert held == 16 * 9 * 4
    assert touched == 3 * 18 * 4  # one row of 16 outputs under a 3x3 window


def test_all_shapes_of_one_structure_compile_once(monkeypatch):
    calls = []
    original = module.compiled.__wrapped__
    module.compiled.cache_clear()
    monkeypatch.setattr(module, "compiled", module.lru_cache(lambda s: calls.append(s) or original(s)))
    for shape in ((4, 16, 16, 16), (8, 20, 24, 32), (16, 9, 9, 8, 2)):
        closed_forms(gpu_conv(*shape).stages[0].op)
    strided = 1  # a stride of 2 is a constant where 1 is none: a structure of its own
    assert len(calls) == 1 + strided


def test_constants_are_not_part_of_the_structure():
    one, _ = structure_of(gpu_conv(4, 16, 16, 16).stages[0].op)
    two, constants = structure_of(gpu_conv(8, 20, 24, 32).stages[0].op)
    assert one == two
    assert 24 in constants


def test_arrays_of_tiles_give_arrays():
    forms = closed_forms(cpu_matmul(96, 128, 64).stages[1].op)
    tiles = {"i": np.array([6, 12]), "j": np.array([32, 64]), "k": np.array([16, 16])}
    many = forms.traffic_bytes(tiles)
    for n in range(2):
        one = forms.traffic_bytes({a: int(t[n]) for a, t in tiles.items()})
        assert [int(np.broadcast_to(x, 2)[n]) for x in many] == list(one)


@pytest.mark.parametrize("axis", ["i", "j"])
def test_reuse_grows_with_what_the_other_axis_reuses(axis):
    op = matmul_op(1024, 1024, 1024)
    slope = reuse_score(op, {"i": 32, "j": 32, "k": 8}, axis)
    # Q = 4 MNK (1/ti + 1/tj) bytes: dQ/dti = -4 MNK / ti^2; F = 4 (ti + tj) tk: dF/dti = 4 tk
    assert slope == pytest.approx((1024**3 / 32**2) / 8)


def test_the_reduction_axis_of_a_matmul_reuses_nothing():
    assert reuse_score(matmul_op(256, 256, 256), {"i": 32, "j": 32, "k": 8}, "k") == 0


def test_the_difference_between_two_tiles_converges_to_the_slope():
    op = matmul_op(2**20, 2**20, 2**10)
    tile = {"i": 1024, "j": 1024, "k": 8}
    step = reuse_score(op, tile, "i", 2048)
    # finite: from 1024 to 2048 the traffic of B halves
    assert step == pytest.approx(4 * 2**50 * (1 / 1024 - 1 / 2048) / (1024 * 8 * 4))
    assert reuse_score(op, tile, "i") == pytest.approx(2 * step)


def test_explanations_put_names_and_numbers_in():
    lines = explain_forms(matmul_op(128, 96, 64), {"i": 32, "j": 16, "k": 8})
    assert lines[0].startswith("A: footprint tile_i*tile_k = 256 elements; traffic ")
    assert lines[-1] == "steps ceiling(i/tile_i)*ceiling(j/tile_j)*ceiling(k/tile_k) = 192; 1572864 operations"


def test_tiles_that_overhang_move_at_least_what_is_there():
    stage = gpu_matmul(70, 100, 37).stages[0]
    upper = closed_forms(stage.op).traffic_bytes({"i": 64, "j": 64, "k": 8})
    for bound, count in zip(upper, traffic(stage, 4), strict=True):
        assert count.transactions * 4 <= bound


def test_a_plain_tile_touches_exactly_what_it_holds():
    forms = closed_forms(matmul_op(64, 64, 64))
    tile = {"i": 5, "j": 7, "k": 3}
    assert forms.distinct_bytes(tile) == forms.footprint_bytes(tile) == (5 * 3 * 4, 3 * 7 * 4, 5 * 7 * 4)


def test_an_output_of_one_element_has_forms_too():
    graph = canonicalize(rg.ops.sum(rg.tensor("A", (33, 65)), name="C"))
    (op,) = graph.tensor_ops
    assert "C: footprint 1 = 1 elements; traffic 1 = 4 bytes" in explain_forms(op, {})
