"""Convolutions by Winograd's filtering: readers agree, the tolerance knows the errors, only what may be is."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.candidate import Candidate
from rollergen.construct.choose import choice, program_of
from rollergen.construct.winograd import winograd_candidates
from rollergen.errors import ArgumentError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.values import Binary, Const, transform
from rollergen.expr.winograd import IMAGE, OUTPUT, TAPS, WEIGHT, growth
from rollergen.gate.facts import Facts
from rollergen.gate.gate import Gate
from rollergen.gate.narrowing import program_accuracies
from rollergen.gate.oracle import expression_oracle
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_values, device, run_opencl, small_integers
from tests.lower.devices import AVX512

T = rg.tensor


def weights(*shape):
    return T("w", shape, constant=True)


def channels_last():
    x = T("x", (9, 7, 8))
    y = rg.ops.conv2d(rg.compute((8, 9, 7), lambda c, h, v: x[h, v, c]), weights(16, 8, 3, 3), padding=1)
    return rg.compute((9, 7, 16), lambda h, v, f: y[f, h, v])


def epilogue():
    x, bias, beside = T("x", (2, 4, 6, 4)), T("b", (8,), constant=True), T("r", (2, 8, 6, 4))
    return rg.ops.relu(rg.ops.conv2d(x, weights(8, 4, 3, 3), bias, padding=1) + beside)


EXPRESSIONS = {
    "odd sizes": lambda: rg.ops.conv2d(T("x", (4, 7, 9)), weights(5, 4, 3, 3), padding=1),
    "unpadded": lambda: rg.ops.conv2d(T("x", (1, 4, 7, 6)), weights(8, 4, 3, 3)),
    "groups": lambda: rg.ops.conv2d(T("x", (1, 8, 6, 4)), weights(16, 4, 3, 3), padding=1, groups=2),
    "bias, sum and relu of two images": epilogue,
    "channels last": channels_last,
    "few": lambda: rg.ops.conv2d(T("x", (3, 5, 6)), weights(4, 3, 3, 3), padding=1),
    "wide padding": lambda: rg.ops.conv2d(T("x", (4, 6, 5)), weights(8, 4, 3, 3), padding=2),
}  # fmt: skip
SIDES = 2, 4


@lru_cache(maxsize=64)
def filtered(name, m, spec):
    """(expression, its best program by tiles of m x m outputs)."""
    expression, rules = EXPRESSIONS[name](), rg.BuildOptions(winograd=m).rules
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    best = lambda own: choice(own, device(spec), rules, 2).candidates
    title = f"winograd {m} x {m}"
    found = winograd_candidates(op, device(spec), rules, best)
    one: Candidate = next(one for one in found if one.variant.startswith(title))
    return expression, program_of(graph, device(spec), (one,)).program


def dense(matrix, lines, columns):
    found = np.zeros((lines, columns))
    for line in range(lines):
        for term in matrix:
            found[line, term.place(line)] += term.factors[line]
    return found


@pytest.mark.parametrize("m", SIDES)
def test_the_matrices_filter(m):
    t = m + TAPS - 1
    a, b, g = dense(OUTPUT[m], m, t), dense(IMAGE[m], t, t), dense(WEIGHT[m], t, TAPS)
    random = np.random.default_rng(0)
    pixels, taps = random.normal(size=t), random.normal(size=TAPS)
    want = [pixels[at : at + TAPS] @ taps for at in range(m)]
    np.testing.assert_allclose(a @ ((g @ taps) * (b @ pixels)), want, rtol=1e-12)


CASES = [
    *((name, 2, "cpu") for name in EXPRESSIONS), ("odd sizes", 4, "cpu"), ("channels last", 4, "cpu"),
    ("few", 2, "v100"), ("few", 4, "v100"),
]  # fmt: skip


@pytest.mark.every(7)
@pytest.mark.parametrize(("name", "m", "spec"), CASES)
def test_interpreter_and_text_compute_the_definition(name, m, spec):
    expression, program = filtered(name, m, spec)
    check(program, device(spec))
    assert predict(program, device(spec)).seconds > 0
    arrays = small_integers(program)
    found = interpret(program, arrays, device(spec)).outputs
    accuracy = program_accuracies(program)[program.outputs[0].name]
    tolerance = 8 * accuracy.variance**0.5 * max(1.0, np.abs(found[program.outputs[0].name]).max())
    assert_values(expression, program, found, arrays, None, tolerance)
    assert_values(expression, program, run_opencl(program, arrays, device(spec)), arrays, None, tolerance)


def verdict(expression, program, run=None):
    gate = Gate(program, expression_oracle([expression], program.outputs))

    def interpreted(arrays):
        made = interpret(run or program, {b.name: arrays[b.name] for b in program.inputs}, device("cpu"))
        for buffer in program.outputs:
            arrays[buffer.name][...] = made.outputs[buffer.name]

    return gate.check(program, interpreted)


@pytest.mark.parametrize("m", SIDES)
def test_the_gate_passes_right_transforms(m):
    found = verdict(*filtered("few", m, "cpu"))
    assert found.passed, found


@pytest.mark.parametrize(
    ("m", "stage"), [(2, "weights"), (2, "tiles"), (2, "contraction"), (2, "sums"), (4, "weights"), (4, "tiles")]
)
def test_the_gate_refuses_transforms_that_are_a_thousandth_wrong(m, stage):
    expression, program = filtered("few", m, "cpu")
    changed = list(program.stages)
    at = next(n for n, one in enumerate(changed) if one.name == stage)
    op = changed[at].op
    if op.reductions:
        (sums,) = op.reductions
        body = sums.bodies[0]
        scaled = replace(body, a=Binary("mul", body.a, Const(1.001, "float32"), "float32"))
        op = replace(op, reductions=(replace(sums, bodies=(scaled,)),))
    else:
        op = replace(op, result=nudged(op.result))
    changed[at] = replace(changed[at], op=op)
    assert not verdict(expression, program, replace(program, stages=tuple(changed))).passed


def nudged(value):
    """`value` with its first factor a thousandth larger."""
    seen = []

    def change(node):
        if isinstance(node, Const) and node.dtype == "float32" and not seen:
            seen.append(node)
            return Const(node.value + 0.001, "float32")
        return None

    return transform(value, change)


def test_errors_of_larger_tiles_are_allowed_for():
    variance = {}
    for m in SIDES:
        _, program = filtered("unpadded", m, "cpu")
        variance[m] = program_accuracies(program)[program.outputs[0].name].variance
        assert not Facts(program).orderless
    assert variance[4] > 100 * variance[2]
    assert 2.5 < growth(2) < 3 and 900 < growth(4) < 1100


def test_weights_are_transformed_once():
    for spec in ("cpu", "v100"):
        _, program = filtered("few", 2, spec)
        assert next(stage.name for stage in program.stages if stage.once) == "weights"
        assert all(not stage.once for stage in program.stages if stage.name in ("tiles", "sums"))


def test_programs_that_say_so_survive_their_text():
    _, program = filtered("groups", 4, "cpu")
    assert from_text(to_text(program)) == program
    assert program.stages[-1].winograd == 4


W = weights(32, 32, 3, 3)
X = (1, 32, 28, 28)
OTHERS = {
    "weights of the call": lambda: rg.ops.conv2d(T("x", X), T("w", (32, 32, 3, 3)), padding=1),
    "stride 2": lambda: rg.ops.conv2d(T("x", X), W, stride=2, padding=1),
    "dilation": lambda: rg.ops.conv2d(T("x", X), W, padding=2, dilation=2),
    "5 taps": lambda: rg.ops.conv2d(T("x", X), weights(32, 32, 5, 5), padding=2),
    "float16": lambda: rg.ops.conv2d(T("x", X, "float16"), T("w", (32, 32, 3, 3), "float16", constant=True)),
    "depthwise": lambda: rg.ops.conv2d(T("x", X), weights(32, 1, 3, 3), padding=1, groups=32),
    "pooling": lambda: rg.ops.max_pool2d(T("x", X), 3, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_have_no_such_programs(name):
    rules = rg.BuildOptions(winograd=4).rules
    nothing = lambda own: pytest.fail(f"{own} was drawn")
    for op in canonicalize(OTHERS[name]()).tensor_ops:
        assert not list(winograd_candidates(op, device("cpu"), rules, nothing))


def sides(**options):
    x = T("x", (28, 28, 64))
    y = rg.ops.conv2d(rg.compute((64, 28, 28), lambda c, h, v: x[h, v, c]), weights(64, 64, 3, 3), padding=1)
    expression = rg.compute((28, 28, 64), lambda h, v, f: y[f, h, v])
    kernel = rg.build(expression, AVX512, profile=False, cache=False, options=rg.BuildOptions(**options))
    return {stage.winograd for one in kernel.candidates for stage in one.program.stages}


def test_the_user_decides_how_large_tiles_may_be():
    assert 2 in sides() and 4 not in sides()
    assert sides(winograd=0) == {0}
    assert 4 in sides(winograd=4)


def test_other_sides_are_refused():
    for wrong in (True, 3, "2"):
        with pytest.raises(ArgumentError, match=r"winograd is .*; expected 0, 2 or 4"):
            rg.BuildOptions(winograd=wrong)
