"""Rows times weights of four bits: all readers agree with the definition where words are unpacked in registers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import cuts, planned
from rollergen.emit import emit
from rollergen.gate.facts import Facts
from rollergen.program.model import predict
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl
from tests.agreement.test_quantized_activations import arrays_of, stored, weighted, weights_of
from tests.program.hand_devices import AVX512

OPTIONS = BuildOptions()
CASES = [
    ("uint4", 1, 256, 50, 32, 8, True), ("int4", 1, 128, 33, 64, 0, True), ("uint4", 1, 96, 40, 32, "tensor", False),
    ("int4", 1, 64, 17, 16, "tensor", True), ("uint4", 1, 24, 70, 24, 15, True), ("int4", 1, 128, 48, 128, 0, False),
    ("uint4", 2, 256, 50, 32, 8, True), ("int4", 8, 128, 33, 64, 0, True), ("uint4", 5, 96, 40, 32, "tensor", False),
    ("int4", 13, 64, 17, 16, "tensor", True), ("uint4", 3, 24, 70, 24, 15, True), ("int4", 21, 128, 48, 128, 0, False),
]  # fmt: skip


def in_words(expression, spec=AVX512):
    """The stages with words unpacked; None where there are no such."""
    found = cuts(expression, spec, OPTIONS, None)
    return found[0] if len(found) == 2 else None


def checked(kind, rows, k, n, group, zero, transposed, seed=0):
    expression = weighted(kind, rows, k, n, group, zero, transposed)
    graph = in_words(expression)
    assert graph is not None
    program = construct(graph, AVX512, OPTIONS, top_k=1)[0].program
    arrays = arrays_of(program, kind, seed)
    w, given_ = weights_of(arrays, group, transposed, zero), stored(arrays, kind)
    want, size = arrays["x"].astype(float) @ w.T, np.abs(arrays["x"]) @ np.abs(w).T
    result, blocks = interpreted(program, given_, AVX512, most_blocks=200)
    for got in (result.outputs, run_opencl(program, given_, AVX512)):
        (out,) = got.values()
        assert np.all(np.abs(out - want) <= 1e-6 * size + 1e-30)
    assert_traffic(program, result.traffic, AVX512, blocks)
    return program


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.every(2)
def test_all_readers_agree_with_the_definition(case):
    checked(*case)


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(("uint4", "int4")), st.integers(1, 9), st.integers(1, 6), st.integers(16, 70), st.sampled_from((8, 16, 24, 32, 64)),
    st.sampled_from((0, 3, "tensor")), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_they_do_so_for_sizes_of_any_kind(kind, rows, groups, n, group, zero, transposed, seed):
    checked(kind, rows, groups * group, n, group, zero, transposed, seed)


def test_nibbles_become_floats_by_a_table_and_weights_are_made_words_once():
    program = checked("int4", 1, 128, 48, 128, 0, False)
    assert emit(program, AVX512, "opencl").text.count("lanes16_chosen((float16)(-8.0f, -7.0f") == 32
    assert [stage.once for stage in program.stages].count(True) == 2  # words of weights, scales


def test_panels_are_read_whole():
    expression = weighted("uint4", 1, 8192, 64, 32, 8)
    found = construct(in_words(expression), AVX512, OPTIONS, top_k=4)
    assert not any(one.program.stages[-1].accumulator.carry for one in found)


def test_numbers_that_are_equal_cancel_exactly():
    expression = weighted("uint4", 1, 64, 32, 32, 8)
    program = construct(in_words(expression), AVX512, OPTIONS, top_k=1)[0].program
    arrays = arrays_of(program, "uint4")
    arrays["q"][...] = 8
    (out,) = run_opencl(program, stored(arrays, "uint4"), AVX512).values()
    assert not out.any()


@pytest.mark.parametrize(
    ("expression", "spec"),
    [
        (weighted("int8", 1, 64, 32, 32, 0), AVX512),
        (weighted("uint4", 1, 60, 32, 20, 8), AVX512),
        (weighted("uint4", 1, 64, 32, 32, 8), device("v100")),
    ],
    ids=["bytes", "groups of no whole words", "threads"],
)
def test_where_weights_are_no_words_nothing_changes(expression, spec):
    assert in_words(expression, spec) is None


def test_rows_share_what_is_unpacked():
    one, eight = (
        next(one.seconds for one in predict(program, AVX512).stages[-1].limiters if one.name == "multiply-adds")
        for program in (checked("uint4", rows, 64, 32, 32, 8, True) for rows in (1, 8))
    )
    assert eight < 8 * one


def test_a_row_of_each_of_several_weights_shares_nothing_and_scales_sums():
    """Experts: a batch axis is one of activations and of weights."""
    experts, k, n = 3, 64, 33
    q = rg.tensor("q", (experts, n, k), "uint4", constant=True)
    s = rg.tensor("s", (experts, n, k // 32), constant=True)
    w = rg.ops.dequantize(q, s, 8, axis=2, block_size=32)
    graph = in_words(rg.ops.matmul(rg.tensor("x", (experts, 1, k)), rg.ops.permute(w, (0, 2, 1))))
    assert [axis.extent for axis in graph.tensor_ops[-1].of_role("reduce")] == [k // 32]
    program = construct(graph, AVX512, OPTIONS, top_k=1)[0].program
    arrays = arrays_of(program, "uint4")
    weights = (arrays["q"] - 8.0) * np.repeat(arrays["s"].astype(float), 32, axis=2)
    want = np.einsum("emk,enk->emn", arrays["x"].astype(float), weights)
    (out,) = run_opencl(program, stored(arrays, "uint4"), AVX512).values()
    assert np.allclose(out.reshape(want.shape), want, rtol=0, atol=1e-5)


def test_infinite_scales_that_are_taken_out_of_sums_are_not_compared():
    program = construct(in_words(weighted("uint4", 1, 64, 32, 32, 8)), AVX512, OPTIONS, top_k=1)[0].program
    assert not Facts(program).orderless


def test_infinities_in_other_sums_of_products_are_compared_as_before():
    """Rotated rows, say: nothing was taken out of them."""
    a, b, c, d = (rg.tensor(name, (8, 32)) for name in "abcd")
    rotated = rg.ops.matmul(a * b + c * d, rg.tensor("w", (32, 16)))
    program = construct(planned(rotated, AVX512), AVX512, OPTIONS, top_k=1)[0].program
    assert Facts(program).orderless


@pytest.mark.parametrize(("rows", "k", "n"), [(1, 512, 256), (2, 4096, 512)])
def test_the_faster_of_both_is_planned(rows, k, n):
    expression = weighted("uint4", rows, k, n, 32, 8)
    seconds = lambda graph: construct(graph, AVX512, OPTIONS, top_k=1)[0].seconds
    unpacked, apart = map(seconds, cuts(expression, AVX512, OPTIONS, None))
    assert seconds(planned(expression, AVX512)) == unpacked < apart
