"""Candidates for the MI50, compiled by AMD's back end: a sample; benches/bench_gfx906.py has all."""

from __future__ import annotations

import pytest

from benches.bench_gfx906 import candidate, spills, summary
from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import amd_clang
from rollergen.hal.load import load_device

SAMPLE = ("M1", "C0", "C3", "C13", "D4", "P0", "E0", "R0")


def first_choice(id):
    device = load_device("mi50")
    return construct(canonicalize(suite("roller").entry(id).make()), device, top_k=1)[0].program, device


@pytest.mark.skipif(not amd_clang.is_installed(), reason=f"no clang for AMD: {amd_clang.INSTALL}")
@pytest.mark.parametrize("id", SAMPLE)
def test_a_first_choice_spills_nothing_and_uses_what_the_model_says(id):
    program, device = first_choice(id)
    found = candidate(program, device)
    assert not spills(found)
    for kernel in found["kernels"]:
        assert kernel["private_bytes"] == 0
        assert kernel["lds_bytes"] == kernel["predicted_lds_bytes"]
        assert kernel["vgprs"] <= kernel["predicted_registers"]


def test_amds_compiler_sees_few_steps_of_a_reduction_at_once():
    """It starts all loads that it sees: sixteen steps of this convolution held 248 registers."""
    program, device = first_choice("C0")
    text = emit(program, device, "opencl").text
    assert "#pragma unroll 4\n        for (int c1 = 0; c1 < 16; ++c1)" in text
    assert "#pragma unroll 4" not in emit(program, load_device("v100"), "opencl").text


def test_the_summary_names_what_spills_and_what_is_not_as_predicted():
    kernel = lambda spilled, lds: {
        "vgpr_spills": spilled, "sgpr_spills": 0, "private_bytes": 4 * spilled, "vgprs": 60, "lds_bytes": lds,
        "predicted_registers": 50.0, "predicted_lds_bytes": 64,
    }  # fmt: skip
    rows = [
        {"id": "A", "candidates": [{"kernels": [kernel(0, 64)]}, {"kernels": [kernel(3, 64)]}]},
        {"id": "B", "candidates": [{"kernels": [kernel(1, 64), kernel(0, 65)]}, {"error": "no"}]},
    ]
    found = summary(rows)
    assert found["spilling"] == ["A #1", "B #0"] and found["spilling_first_choices"] == ["B #0"]
    assert found["spilling_share"] == 0.5 and found["refused"] == ["B #1: no"]
    assert found["registers_over_model_most"] == 1.2 and found["local_memory_not_as_predicted"] == 1
