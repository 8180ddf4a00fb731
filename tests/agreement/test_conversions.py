"""Products with narrow weights whose factors are converted on the way to matrix instructions: the readers of a program
agree for random sizes, layouts, dtypes and plans, and what cannot be converted is left to other programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.conversions import CONVERTED_EIGHT, CONVERTING
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.model import predict_stage
from tests.agreement.readers import assert_traffic, assert_values
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.narrow_products import Narrow, drawn, program

A100 = load_device("a100")


@st.composite
def cases(draw):
    steps = draw(st.sampled_from((1, 2, 4)))
    k = steps * 16 * draw(st.integers(1, 5))
    weights = draw(st.sampled_from(("int8", "uint8", "int4", "uint4")))
    groups = [g for g in (-1, 0, 16, 32, 64, 128) if g <= 0 or k % g == 0]
    group = draw(st.sampled_from(groups))
    byte = "uint8" if weights.startswith("u") else "int8"  # of one sign: bfloat16 holds no difference of two
    packed = weights if weights.endswith("int4") and group > 0 and (k // group) % 2 == 0 else byte
    zero = draw(st.sampled_from(("", byte, packed))) if group >= 0 else ""
    case = Narrow(draw(st.integers(1, 40)), k, draw(st.integers(4, 90)), weights, group, zero, draw(st.booleans()),
                  draw(st.sampled_from(("float16", "bfloat16"))), draw(st.booleans()))  # fmt: skip
    tiles = tuple(draw(st.integers(1, 3)) for _ in range(2)) + tuple(draw(st.integers(1, 2)) for _ in range(2))
    gk = draw(st.sampled_from([one for one in (1, 2, 4) if one <= steps]))
    chains = draw(st.sampled_from([one for one in (1, 2, 4) if gk * one <= steps]))
    how = {"weights_first": draw(st.booleans()), "chains": chains, "gk": gk}
    return case, (*tiles, steps, draw(st.integers(1, 4))), how


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(cases())
def test_all_readers_agree(drawn_case):
    case, plan, how = drawn_case
    assume(not (case.weights.endswith("int4") and not case.turned and case.n % 2))  # rows of whole bytes
    made = program(case, A100, *plan, **how)
    arrays = drawn(made)
    run = interpret(made, arrays, A100)
    rounded = 2.0**-11 if case.dtype == "float16" else 2.0**-8
    assert_values(case.expression(), made, run.outputs, arrays, None, rounded)
    assert_traffic(made, run.traffic, A100, {})
    stage = made.stages[-1]
    assert stage.compute.factors in CONVERTING
    assert predict_stage(stage, A100).shared_bytes == managed_bytes(stage, A100)["shared"]
    if compiler() is not None:
        got = executed(made, emit(made, A100, "cuda"), arrays)
        assert got["C"].tobytes() == run.outputs["C"].tobytes()


@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("case", [Narrow(1, 2048, 2048, "int4", 128), Narrow(16, 2048, 2048, "int8", 64, turned=True)])
@pytest.mark.every(3)
def test_narrow_weights_are_multiplied_by_matrix_instructions_as_they_are(case, device):
    spec = load_device(device)
    (best,) = rg.construct(case.expression(), device, 1)
    stage = next(one for one in best.stages if one.op.reductions and not one.once)
    assert stage.compute.factors in CONVERTING
    assert stage.compute.instruction == "mma"
    read = {stage.load(copy).buffer.dtype for copy in stage.copies}
    assert read == {"float16", "uint8" if case.weights == "int4" else "int8"}
    weights, scales = case.k * case.n // (2 if case.weights == "int4" else 1), case.k // case.group * case.n * 2
    whole = weights + scales + (case.k + case.n) * case.m * 2
    assert dict(predict_stage(stage, spec).traffic_bytes)["dram"] <= 1.05 * whole  # columns that overhang


NEIGHBOURS = [
    Narrow(3, 100, 33, "int8", 0), Narrow(17, 72, 34, "int4"), Narrow(1, 96, 50, "int8", 48, turned=True),
    Narrow(2, 160, 2, "int4", 32, turned=True), Narrow(40, 48, 40, "uint8", 16, "uint8", constant=False),
    Narrow(1, 512, 96, "int4", 32, "int8", dtype="bfloat16"),
]  # fmt: skip


@pytest.mark.every(5)
@pytest.mark.parametrize("device", ["v100", "a100", "h200"])
@pytest.mark.parametrize("case", NEIGHBOURS)
def test_first_choices_for_odd_sizes_compute_the_definition(case, device):
    spec, product = load_device(device), case.expression()
    made = construct(planned(product, spec), spec, top_k=1)[0].program
    arrays = drawn(made)
    assert_values(product, made, interpret(made, arrays, spec).outputs, arrays, None, 2.0**-8)


@pytest.mark.parametrize("shifted", [False, True])
def test_dequantize_is_converted_with_its_zero_points_in_integers(shifted):
    q = rg.tensor("Q", (64, 256), "int8", constant=True)
    scale, zero = rg.tensor("S", (64, 4), "float16", constant=True), rg.tensor("Z", (64, 4), "int8", constant=True)
    w = rg.ops.dequantize(q, scale, zero if shifted else 0, axis=1, block_size=64, dtype="float16")
    product = rg.ops.matmul(rg.tensor("A", (9, 256), "float16"), w, transpose_b=True)
    (op,) = canonicalize(product).tensor_ops
    assert any(variant.by_matrices for variant in variants(op, A100))
    found = [one.program for one in construct(canonicalize(product), A100, top_k=10)]
    converted = [one for one in found if one.stages[-1].compute.factors in CONVERTING]
    assert converted
    random = np.random.default_rng(0)
    arrays = {b.name: random.integers(-9, 10, b.shape).astype(b.dtype) for b in converted[0].inputs}
    run = interpret(converted[0], arrays, A100)
    assert_values(product, converted[0], run.outputs, arrays, None, 2.0**-11)


def test_scales_of_more_bits_than_the_factor_are_left_to_other_programs():
    q, scale = rg.tensor("Q", (64, 256), "int8"), rg.tensor("S", (64,), "float32")
    w = rg.compute((64, 256), lambda n, k: rg.cast(rg.cast(q[n, k], "float32") * scale[n], "float16"))
    product = rg.ops.matmul(rg.tensor("A", (9, 256), "float16"), w, transpose_b=True)
    found = construct(canonicalize(product), A100, top_k=10)
    assert all(stage.compute.factors not in CONVERTING for one in found for stage in one.program.stages)


def refused(message, copy=None, weights="int4", **changes):
    made = _program(weights)
    stage = made.stages[-1]
    if copy is not None:
        copies = list(stage.copies)
        copies[copy] = replace(copies[copy], **changes)
        changes = {"copies": tuple(copies)}
    broken = replace(made, stages=(*made.stages[:-1], replace(stage, **changes)))
    with pytest.raises(ProgramError, match=message):
        check(broken, A100)


def test_what_a_conversion_cannot_read_is_refused():
    number = next(at for at, copy in enumerate(_stage().copies) if copy.every)
    alone = {"copy": number, "vector": 1, "asynchronous": False, "depth": 2}
    refused("every is .* expected runs of k that read one element", every=(1, 4), **alone)
    refused("every is .* expected one for each of j, k", copy=number, every=(2,))
    refused("every is \\(\\); expected 2 along k", every=(), **alone)
    plain = replace(_stage().compute, factors="")
    refused("compute.factors is '' of mma; expected 'converted'", weights="int8", compute=plain)
    eight = replace(plain, factors=CONVERTED_EIGHT)
    refused("compute.factors is 'converted_8' of mma; expected 'converted'", weights="int8", compute=eight)
    refused("copies of load 2; expected one", copies=_stage().copies[:-1])
    inside = len(_stage().loops) - 1
    refused("accumulator is .* or of layout quads", accumulator=replace(_stage().accumulator, separate=(inside,)))


def _program(weights="int4"):
    return program(Narrow(16, 128, 64, weights, 0, turned=True), A100, 1, 2, 1, 1, 2, 3)


def _stage():
    return _program().stages[-1]
