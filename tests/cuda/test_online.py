"""Softmax of rows too long to keep: the largest element and the sum in one pass, in all readers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.rows import is_gathered, online
from rollergen.expr.values import Binary, Partial, Select
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import device
from tests.cuda.host import compiler, seeded
from tests.cuda.test_programs import executed

V100 = device("v100")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
SHAPE = (3, 20004)


def softmax(shape=SHAPE):
    return rg.ops.softmax(rg.tensor("X", shape), axis=-1)


def program_of(expression, variant="online", **switches):
    """The best program of the variant, and whether it is the best of all."""
    options = BuildOptions(shapes=CodeShapes(rows_in_registers=False, **switches))
    ranked = construct(canonicalize(expression), V100, options, top_k=10)
    (best, *_) = (one for one in ranked if one.variants == (variant,))
    return best.program, best is ranked[0]


def wanted(x):
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True).astype(np.float64))
    return wide / wide.sum(1, keepdims=True)


def test_pairs_are_chosen_where_rows_are_walked_again_and_not_otherwise():
    assert program_of(softmax())[1]
    assert program_of(softmax(), "kept row", online=False)[1]
    kept = construct(canonicalize(softmax((4096, 1024))), V100, top_k=1)[0]
    assert kept.variants == ("kept row",), "the row stays in registers"


@needs_compiler
@pytest.mark.parametrize("gathered", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("operator", [rg.ops.softmax, rg.ops.log_softmax])
def test_text_and_interpreter_compute_the_definition(operator, gathered):
    program, _ = program_of(operator(rg.tensor("X", SHAPE), axis=-1), gathered_pairs=gathered)
    assert bool(program.stages[0].accumulator.gathered) == gathered
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(c, s, SHAPE[1]) for c, s in ((0, 1), (-500, 30), (3e4, 5))]).astype(np.float32)
    x[0, ::7] = -np.inf
    got = executed(program, emit(program, V100, "cuda"), {"X": x}, reverse=True)[program.outputs[0].name]
    counted = interpret(program, {"X": x}, V100).outputs[program.outputs[0].name]
    want = wanted(x)
    if operator is rg.ops.log_softmax:
        got, counted = np.exp(got), np.exp(counted)
    assert np.abs(got - want).max() < 2e-6 * want.max() and np.abs(counted - want).max() < 2e-6 * want.max()


@needs_compiler
@pytest.mark.parametrize("gathered", [True, False], ids=["together", "one by one"])
def test_rows_of_infinities_and_nan_are_as_defined(gathered):
    """exp(inf - inf) is NaN, and makes the whole row so."""
    program, _ = program_of(softmax((4, 20004)), gathered_pairs=gathered)
    x = np.zeros((4, 20004), np.float32)
    x[0, 5], x[1, 9], x[2] = np.inf, np.nan, -np.inf
    name = program.outputs[0].name
    for got in (executed(program, emit(program, V100, "cuda"), {"X": x}), interpret(program, {"X": x}, V100).outputs):
        assert np.isnan(got[name][:3]).all() and np.allclose(got[name][3], 1 / 20004)


FAULTS = {
    "the sums of two threads do not shrink": (r"exp2_approx\(-fabsf\(", "exp2_approx(-0.0f*fabsf("),
    "the sum so far does not shrink": (r"acc1\*exp2_approx", "acc1*1.0f + 0.0f*exp2_approx"),
    "points add less than they are": (r"held\[i13\]\[i14\] - most", "held[i13][i14] - most - 1.0f"),
    "an element is no candidate for the largest": (r"fmaxf\(most, held\[i13\]", "fmaxf(most, held[0]"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_step_of_the_walk_is_found(fault):
    program, _ = program_of(softmax())
    x = np.sort(np.random.default_rng(0).normal(0, 60, SHAPE).astype(np.float32), axis=1)
    right = emit(program, V100, "cuda")
    broken = seeded(right, *FAULTS[fault], count=0)
    name = program.outputs[0].name
    assert np.allclose(executed(program, right, {"X": x})[name], wanted(x), atol=1e-6)
    assert not np.allclose(executed(program, broken, {"X": x})[name], wanted(x), atol=1e-6)


def test_the_model_sees_one_walk_less():
    bytes_ = []
    for variant in ("online", "kept row"):
        (stage,) = predict(program_of(softmax((256, 65536)), variant)[0], V100).stages
        bytes_.append(dict(stage.traffic_bytes)["dram"])
    assert 0.7 < bytes_[0] / bytes_[1] < 0.8  # two reads and a write against three and one


def test_the_model_counts_fewer_instructions_of_points_that_go_in_together():
    programs = (program_of(softmax((256, 65536)), gathered_pairs=on)[0] for on in (False, True))
    stages = (predict(program, V100).stages[0] for program in programs)
    one_by_one, together = ({one.name: one.seconds for one in stage.limiters}["issue"] for stage in stages)
    assert together < 0.9 * one_by_one


def test_points_go_in_together_only_where_a_nan_sum_is_a_nan_result():
    x = rg.tensor("X", SHAPE)
    op = online(canonicalize(rg.ops.softmax(x, axis=-1)).tensor_ops[0])
    assert is_gathered(op)
    largest = Partial(op.reductions[0].name, "float32")
    blind = replace(op, result=Select(Binary("gt", largest, largest, "bool"), op.result, largest, "float32"))
    assert not is_gathered(blind) and not is_gathered(replace(op, result=largest))
    program, _ = program_of(softmax())
    wrong = replace(program.stages[0], op=blind)
    with pytest.raises(ProgramError, match="takes several points at once"):
        check(replace(program, stages=(wrong,)), V100)


def test_points_that_go_in_together_are_the_innermost():
    program, _ = program_of(softmax())
    (stage,) = program.stages
    for gathered in (stage.accumulator.gathered[:1], (0, 1), stage.accumulator.gathered[::-1]):
        wrong = replace(stage, accumulator=replace(stage.accumulator, gathered=gathered))
        with pytest.raises(ProgramError, match="expected the innermost loops"):
            check(replace(program, stages=(wrong,)), V100)


def test_only_a_largest_element_and_its_exponentials_are_made_pairs():
    op = lambda expression: canonicalize(expression).tensor_ops[0]
    assert online(op(softmax())) is not None
    x = rg.tensor("X", SHAPE)
    assert online(op(rg.ops.layer_norm(x, SHAPE[1]))) is None
    assert online(op(rg.ops.sum(x, axis=1))) is None
