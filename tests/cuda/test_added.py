"""Sums added up atomically, executed from their CUDA text: right in any order of blocks, and faults are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollergen.emit import emit
from tests.agreement.readers import assert_values, device, small_integers
from tests.agreement.test_added import EXPRESSIONS, added
from tests.cuda.host import compiler, seeded
from tests.cuda.test_programs import executed

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_cuda_text_that_adds_computes_the_definition(name):
    expression, program = added(name)
    source, arrays = emit(program, device("v100"), "cuda"), small_integers(program)
    reverse = list(EXPRESSIONS).index(name) % 2 == 1
    assert_values(expression, program, executed(program, source, arrays, reverse), arrays, None, 0.0)


def test_parts_that_overwrite_each_other_are_found():
    expression, program = added("sum of columns")
    broken = seeded(emit(program, device("v100"), "cuda"), r"atomicAdd\((\w+)", r"assigned(\1", count=0)
    broken = replace(broken, text=ASSIGNED + broken.text)
    arrays = small_integers(program)
    with pytest.raises(AssertionError):
        assert_values(expression, program, executed(program, broken, arrays), arrays)


ASSIGNED = "inline void assigned(float *at, float value) { *at = value; }\n"


def test_sums_that_nothing_began_are_found():
    expression, program = added("sum of columns")
    source, arrays = emit(program, device("v100"), "cuda"), small_integers(program)
    broken = replace(source, launches=source.launches[1:])
    with pytest.raises(AssertionError):
        assert_values(expression, program, executed(program, broken, arrays), arrays)
