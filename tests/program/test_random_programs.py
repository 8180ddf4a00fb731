"""Whatever loops and copies a matmul is given: if the rules allow them, they are valid and give the product."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.tile.exact_traffic import traffic
from tests.program.hand_devices import TURING
from tests.program.random_programs import matmuls
from tests.tensor_ops import evaluate_program, small_integers

quickly = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@quickly
@given(matmuls())
def test_any_allowed_nest_is_valid_and_gives_the_product(program):
    check(program, TURING)
    arrays = small_integers(program)
    result = interpret(program, arrays, TURING)
    np.testing.assert_array_equal(result.outputs["C"], evaluate_program(program, arrays)["C"])
    assert result.written["C"].all()


@quickly
@given(matmuls())
def test_counted_traffic_is_the_closed_form_for_any_nest(program):
    counted = interpret(program, small_integers(program), TURING).traffic
    expected = traffic(program.stages[0], TURING.backing.transaction_bytes)
    found = [(one.tensor, one.role, one.load, one.tiles, one.transactions) for one in counted]
    assert found == [(one.tensor, one.role, one.load, one.tiles, one.transactions) for one in expected]
