import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from tests.agreement.readers import device
from tests.agreement.slicing import sliced
from tests.agreement.suite_cases import whole_numbers
from tests.lower.devices import AVX512


@pytest.mark.parametrize("shape", [(70_000,), (33, 1009), (7, 11, 513)])
def test_slices_are_the_same_iterations_in_the_same_order(shape):
    x = rg.tensor("X", shape)
    cpu = AVX512  # whose shares of work end at lines of 64 bytes: a line that two blocks share is counted twice
    program = construct(canonicalize(rg.ops.relu(x)), cpu, top_k=1)[0].program
    cut = sliced(program, most=5)
    check(cut, cpu)
    arrays = whole_numbers(program)
    whole, parts = interpret(program, arrays, cpu), interpret(cut, arrays, cpu)
    (out,) = program.outputs
    assert cut.stages[0].blocks > program.stages[0].blocks
    assert np.array_equal(whole.outputs[out.name], parts.outputs[out.name])
    requests = lambda result: [(t.tensor, t.role, t.bytes) for t in result.traffic]
    assert requests(whole) == requests(parts)


def test_stages_with_copies_or_reductions_stay_whole():
    a, b = rg.tensor("A", (65, 130)), rg.tensor("B", (130, 67))
    program = construct(canonicalize(rg.ops.matmul(a, b)), device("cpu"), top_k=1)[0].program
    assert sliced(program, most=1).stages[-1] == program.stages[-1]
