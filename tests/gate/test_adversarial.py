"""Hostile inputs: chosen where they say something, undone afterwards, and seen by kernels that ordinary inputs miss."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.gate.adversarial import hostile_runs
from rollergen.gate.facts import Facts
from rollergen.gate.gate import Gate
from rollergen.gate.inputs import CANCELLING, ENDS, INFINITE, LARGE, SPECIAL, fill_different
from rollergen.gate.oracle import expression_oracle
from rollergen.targets import resolve

T, ops = rg.tensor, rg.ops
CANCELLATION, DENORMALS, INFINITIES, WRAPPING = (kind.title for kind in (CANCELLING, SPECIAL, INFINITE, ENDS))


def program_of(expression):
    return construct(canonicalize(expression), resolve("cpu"), top_k=1)[0].program


def gate(expression):
    program = program_of(expression)
    return Gate(program, expression_oracle((expression,), program.outputs)), program


def titles(expression):
    return {one.title for one in hostile_runs(Facts(program_of(expression)), 1)}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (ops.matmul(T("A", (20, 30)), T("B", (30, 40))), {INFINITIES, DENORMALS, CANCELLATION}),
        (ops.relu(T("X", (100,))), {INFINITIES, DENORMALS}),
        (rg.einsum("a,ab->a", T("X", (20,)), T("Y", (20, 30))), {DENORMALS, CANCELLATION}),
        (ops.sub(T("X", (100,)), T("Y", (100,))), {INFINITIES, DENORMALS}),
        (ops.prod(T("X", (10, 10)), 1), {DENORMALS}),
        (ops.cast(T("X", (100,)), "int32"), {DENORMALS}),
        (ops.matmul(T("A", (20, 30), "int8"), T("B", (30, 40), "int8")), {WRAPPING}),
        (ops.argmax(T("X", (20, 30), "int64"), 1), {WRAPPING}),
        (ops.softmax(T("X", (20, 30))), {INFINITIES, DENORMALS}),
        (ops.matmul(T("A", (20, 30), "float16"), T("B", (30, 40), "float16")), {INFINITIES, DENORMALS}),
    ],
)
def test_each_kind_is_tried_where_it_says_something(expression, expected):
    assert titles(expression) == expected


def test_the_inputs_are_as_before_after_a_check():
    checked, program = gate(ops.matmul(T("A", (20, 30)), T("B", (30, 40)), name="C"))
    before = {name: array.copy() for name, array in checked.inputs.items()}
    seen = []

    def run(arrays):
        seen.append(arrays["A"].copy())
        with np.errstate(invalid="ignore"):
            np.matmul(arrays["A"], arrays["B"], out=arrays[program.outputs[0].name])

    assert checked.check(program, run).passed
    for name, array in checked.inputs.items():
        np.testing.assert_array_equal(array, before[name])
    assert sum(np.isnan(a).any() for a in seen) == 1
    assert sum(np.abs(a).max() == LARGE for a in seen) == 1


def problems(expression, compute):
    """What the gate says of ``compute(arrays) -> result``."""
    checked, program = gate(expression)

    def run(arrays):
        with np.errstate(all="ignore"):
            arrays[program.outputs[0].name][...] = compute(arrays)

    return "; ".join(checked.check(program, run).problems)


RELU, MATMUL = ops.relu(T("X", (500,))), ops.matmul(T("A", (20, 64)), T("B", (64, 40)))


def test_right_results_pass_all_of_them():
    assert problems(RELU, lambda a: np.maximum(a["X"], 0)) == ""
    assert problems(MATMUL, lambda a: a["A"] @ a["B"]) == ""


def test_a_maximum_that_drops_nan_is_found():
    assert problems(RELU, lambda a: np.fmax(a["X"], 0)).startswith(INFINITIES)


def test_a_copy_that_flushes_denormals_is_found():
    flushed = lambda x: np.where(np.abs(x) < np.finfo(np.float32).tiny, 0, x)
    assert problems(RELU, lambda a: flushed(np.maximum(a["X"], 0))).startswith(DENORMALS)


def test_padding_by_multiples_of_a_neighbour_is_found():
    """0 * the next row: nothing on ordinary numbers, NaN next to an infinity."""
    leaking = lambda a: a["A"] @ a["B"] + 0 * np.roll(a["A"], 1, axis=0).sum(axis=1, keepdims=True)
    assert problems(MATMUL, leaking).startswith(INFINITIES)


def test_an_accumulator_of_too_few_bits_is_found():
    def rounded(x):
        return (x.view(np.uint32) & 0xFFFFF800).view(np.float32)  # 13 significant bits

    def low(a):
        total = np.zeros((20, 40), np.float32)
        for k in range(64):
            total = rounded(total + np.outer(a["A"][:, k], a["B"][k]))
        return total

    assert problems(MATMUL, low) != ""


def test_a_copy_from_another_place_is_found_for_every_element():
    """Ramps differ everywhere: two elements that changed places show, whatever the random values were."""
    expression = ops.permute(T("X", (30, 50)), (1, 0))
    assert problems(expression, lambda a: a["X"].T) == ""

    def swapped(a):
        out = a["X"].T.copy()
        out[[0, 49]] = out[[49, 0]]
        return out

    assert "whole-number ramps" in problems(expression, swapped)


@pytest.mark.parametrize("extent", range(1, 7))
def test_places_that_are_all_different_hold_the_first_and_the_last_where_there_is_room(extent):
    for size in range(1, extent + 1):
        for seed in range(20):
            ids = np.zeros(size, np.int64)
            fill_different(ids, extent, np.random.default_rng(seed))
            places = {int(one) % extent for one in ids}
            assert len(places) == size and places >= set((0, extent - 1)[:size])
