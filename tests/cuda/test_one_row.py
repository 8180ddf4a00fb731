"""A vector times a matrix of narrow numbers, by matrix instructions that multiply a single row."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.one_row import one_row
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_values, run_opencl, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
T = rg.tensor
ROUNDED = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 0.0, "float64": 0.0}


def vector_times_matrix(dtype, n, k, turned=False):
    return rg.ops.matmul(T("A", (1, k), dtype), T("B", (n, k) if turned else (k, n), dtype), transpose_b=turned)


def with_bias(dtype, n, k):
    return rg.ops.relu(vector_times_matrix(dtype, n, k) + T("bias", (n,), dtype))


def programs(expression, device):
    """The best ones of one row, and whatever is split of them."""
    graph, found = canonicalize(expression), []
    for variant in variants(graph.tensor_ops[0], device):
        if variant.name == "one row":
            made = matrix_candidates(variant, device, AlignmentRules(), 2, Ledger())
            found += [program_of(graph, device, (one,)).program for one in made]
    return found


def assert_right(expression, made, device, dtype):
    check(made, device)
    arrays = small_integers(made)
    assert_values(expression, made, interpret(made, arrays, device).outputs, arrays, None, ROUNDED[dtype])
    if device.kind.language == "cuda":
        got = executed(made, emit(made, device, "cuda"), arrays)
    else:
        got = run_opencl(made, arrays, device)
    assert_values(expression, made, got, arrays, None, ROUNDED[dtype])


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("on, dtype", [
    ("a100", "float16"), ("h200", "bfloat16"), ("v100", "float16"), ("a100", "int8"), ("mi210", "float16"),
])  # fmt: skip
@pytest.mark.parametrize("make", [vector_times_matrix, with_bias], ids=lambda make: make.__name__)
def test_all_readers_agree(on, dtype, make):
    expression, device = make(dtype, 120, 200), load_device(on)
    found = programs(expression, device)
    assert found
    for made in found:
        assert_right(expression, made, device, dtype)


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(8))
def test_random_shapes_agree(seed):
    random = np.random.default_rng(seed)
    n, k = (int(size) for size in random.integers(20, 300, 2))
    device = load_device(str(random.choice(["a100", "h200", "v100"])))
    expression = vector_times_matrix("float16", n, k, bool(random.integers(2)))
    for made in programs(expression, device)[:3]:
        assert_right(expression, made, device, "float16")


@pytest.mark.parametrize("on", ["a100", "h200"])
@pytest.mark.parametrize("m", [1, 2, 16])
@pytest.mark.parametrize("n, k", [(11008, 4096), (4096, 11008)])
@pytest.mark.every(3)
def test_few_rows_are_predicted_near_the_time_of_their_bytes(on, m, n, k):
    device = load_device(on)
    product = rg.ops.matmul(T("A", (m, k), "float16"), T("B", (k, n), "float16"))
    best = construct(canonicalize(product), device, top_k=1)[0]
    bound = 2 * (m * k + k * n + m * n) / (device.backing.bandwidth_gb_s * 1e9)
    assert predict(best.program, device).seconds <= 1.3 * bound
    assert ("one row" in best.variants[0]) == (m == 1)


def test_what_is_no_vector_times_a_matrix_has_no_row():
    for expression in (
        rg.ops.matmul(T("A", (2, 40), "float16"), T("B", (40, 30), "float16")),
        rg.ops.sum(T("A", (40, 30), "float16"), axis=0),
        rg.ops.matmul(T("A", (3, 1, 40), "float16"), T("B", (3, 40, 30), "float16")),
    ):
        (op,) = canonicalize(expression).tensor_ops
        assert one_row(op) is None
