"""Programs for a GPU, executed from their CUDA text: equal to the definition, whatever the order of threads."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from tests.agreement.readers import GUARD, POISON, assert_values, device, small_integers
from tests.cuda.host import HostError, compiler, run, seeded

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
T = rg.tensor

# Remainders on every axis, and several tiles along each.
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(T("A", (141, 37)), T("B", (37, 203))),
    "matmul, whole tiles": lambda: rg.ops.matmul(T("A", (256, 64)), T("B", (64, 256))),
    "matmul, B transposed": lambda: rg.ops.matmul(T("A", (67, 52)), T("B", (77, 52)), transpose_b=True),
    "matmul, bias, relu": lambda: rg.ops.relu(
        rg.ops.bias_add(rg.ops.matmul(T("A", (137, 36)), T("B", (36, 100))), T("bias", (100,)), axis=-1)
    ),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (2, 7, 15, 13)), T("W", (37, 7, 3, 3)), padding=1),
    "conv 7x7 stride 2": lambda: rg.ops.conv2d(T("X", (1, 3, 37, 39)), T("W", (19, 3, 7, 7)), stride=2, padding=3),
    "depthwise": lambda: rg.ops.depthwise_conv2d(T("X", (2, 5, 19, 21)), T("W", (5, 1, 3, 3)), padding=1),
    "sum of rows": lambda: rg.ops.sum(T("X", (51, 371)), axis=1),
    "sum of columns": lambda: rg.ops.sum(T("X", (371, 53)), axis=0),
    "softmax": lambda: rg.ops.softmax(T("X", (21, 171)), axis=-1),
    "transpose": lambda: rg.ops.permute(T("X", (75, 103)), (1, 0)),
    "broadcast add": lambda: rg.ops.add(T("X", (8, 35, 37)), T("Y", (35, 1))),
    "int8 matmul": lambda: rg.ops.matmul(T("A", (41, 67), "int8"), T("B", (67, 53), "int8")),
    "float16 matmul": lambda: rg.ops.matmul(T("A", (41, 67), "float16"), T("B", (67, 53), "float16")),
    "bfloat16 relu": lambda: rg.ops.relu(T("X", (13, 57), "bfloat16")),
}


@lru_cache(maxsize=8)
def first_choice(name):
    expression = EXPRESSIONS[name]()
    return expression, construct(canonicalize(expression), device("v100"), top_k=1)[0].program


def executed(program, source, arrays, reverse=False):
    """Outputs; every array between guard zones that must stay as they are."""
    whole = {}
    for buffer in program.buffers():
        dtype = numpy_dtype(buffer.dtype)
        fill = np.nan if dtype.kind not in "biu" else POISON
        whole[buffer.name] = np.full(buffer.elements + GUARD, fill, dtype)
        if buffer.name in arrays:
            whole[buffer.name][: buffer.elements] = arrays[buffer.name].reshape(-1)
    after = run(source, whole, reverse).arrays
    for buffer in program.buffers():
        assert after[buffer.name][buffer.elements :].tobytes() == whole[buffer.name][buffer.elements :].tobytes()
        if buffer in program.inputs:
            assert after[buffer.name].tobytes() == whole[buffer.name].tobytes(), f"{buffer.name}: an input was changed"
    return {b.name: after[b.name][: b.elements].reshape(b.shape) for b in program.outputs}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.every(11)
def test_cuda_text_computes_the_definition(name):
    expression, program = first_choice(name)
    source, arrays = emit(program, device("v100"), "cuda"), small_integers(program)
    assert source.language == "cuda"
    # Every other case runs its threads backwards.
    reverse = list(EXPRESSIONS).index(name) % 2 == 1
    got = executed(program, source, arrays, reverse)
    tolerance = {"softmax": 1e-6, "float16 matmul": 2.0**-11}.get(name, 0.0)
    assert_values(expression, program, got, arrays, None, tolerance)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_barrier_taken_out_of_a_program_is_found(reverse):
    expression, program = first_choice("matmul, whole tiles")
    arrays = small_integers(program)
    broken = seeded(emit(program, device("v100"), "cuda"), r"__syncthreads\(\);", "")
    with pytest.raises(AssertionError):
        assert_values(expression, program, executed(program, broken, arrays, reverse), arrays)


def test_a_vector_moved_off_its_place_in_a_program_is_found():
    _, program = first_choice("matmul, whole tiles")
    broken = seeded(emit(program, device("v100"), "cuda"), r"\*\(const float4 \*\)\((\w+)", r"*(const float4 *)(\1 + 1")
    with pytest.raises(HostError, match="misaligned"):
        executed(program, broken, small_integers(program))


def test_both_dialects_of_a_program_have_the_same_launches():
    _, program = first_choice("matmul, whole tiles")
    cuda, opencl = (emit(program, device("v100"), dialect) for dialect in ("cuda", "opencl"))
    assert cuda.launches == opencl.launches and (cuda.language, opencl.language) == ("cuda", "opencl")
