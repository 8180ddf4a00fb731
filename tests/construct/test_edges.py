"""Products whose last rows and columns are kernels of their own beside that of their whole tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice, program_of
from rollergen.construct.edges import edge_candidates
from rollergen.emit import emit
from rollergen.expr import edges
from rollergen.expr.canonical import canonicalize
from rollergen.gate.tiles import tilings
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.tile.rules import ALL_SHAPES, AlignmentRules
from tests.agreement.readers import assert_values, device, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

T = rg.tensor


def product(m, n, k, dtype="float32"):
    return rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype))


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(edges, "TILE", 32)
    monkeypatch.setattr(edges, "LEAST", 32)


def apart(expression, on, seconds=1.0):
    """The candidates with edges apart, where the product as a whole takes so long."""
    (op,) = canonicalize(expression).tensor_ops
    rules = lambda shapes: AlignmentRules(shapes=shapes)
    products = lambda own, shapes: choice(own, device(on), rules(shapes), 2).candidates
    return [*edge_candidates(op, ALL_SHAPES, seconds, products)]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 0.0), ("float16", 2.0**-11)])
@pytest.mark.parametrize("on", ["a100", "v100"])
@pytest.mark.parametrize(("m", "n"), [(65, 98), (64, 97), (33, 64)])
@pytest.mark.every(7)
def test_text_and_interpreter_compute_the_definition_with_edges_apart(m, n, on, dtype, tolerance, short):
    expression = rg.ops.relu(product(m, n, 37, dtype) + T("c", (n,), dtype))
    graph, found = canonicalize(expression), apart(expression, on)
    assert found
    for one in found:
        program = program_of(graph, device(on), (one,)).program
        check(program, device(on))
        arrays = small_integers(program)
        got = executed(program, emit(program, device(on), "cuda"), arrays)
        assert_values(expression, program, got, arrays, None, tolerance)
        counted = interpret(program, arrays, device(on))
        assert_values(expression, program, counted.outputs, arrays, None, tolerance)


def test_each_result_is_stored_once(short):
    (op,) = canonicalize(product(65, 98, 40)).tensor_ops
    whole, left = edges.without_edges(op, ("i", "j"))
    spatial = lambda one: [axis.extent for axis in one.of_role("spatial")]
    assert spatial(whole) == [64, 96]
    assert [spatial(one) for one in left] == [[98], [64, 2]]


def test_the_gate_compares_what_each_kernel_stores(short):
    expression = product(65, 97, 40)
    (one, *_) = apart(expression, "v100")
    program = program_of(canonicalize(expression), device("v100"), (one,)).program
    stored = np.zeros((65, 97), int)
    for tiling in tilings(program, program.outputs[0].name, np.random.default_rng(0)):
        for number in range(len(tiling.order)):
            stored[tiling.points(number, stored.shape)] += 1
    assert (stored == 1).all()


def test_only_little_that_is_left_of_long_axes_is_an_edge():
    (op,) = canonicalize(product(1025, 1088, 1025)).tensor_ops
    assert edges.has_edge(op, "i")
    assert not edges.has_edge(op, "j")
    (op,) = canonicalize(product(513, 1040, 1025)).tensor_ops
    assert edges.has_edge(op, "i")
    assert not edges.has_edge(op, "j")
    (op,) = canonicalize(product(449, 256, 1025)).tensor_ops
    assert not edges.has_edge(op, "i")


def test_edges_that_take_long_beside_the_product_stay_in_it():
    assert apart(product(1025, 1025, 1025), "h200", seconds=60e-6)
    assert apart(product(1025, 1025, 1025), "h200", seconds=10e-6) == []


def test_nothing_but_products_of_plain_factors_has_edges_apart():
    x = T("x", (1025, 1025))
    assert apart(rg.ops.sum(x * x, axis=1), "v100") == []
    convolution = rg.ops.conv2d(T("x", (1, 16, 33, 33)), T("w", (16, 16, 3, 3)))
    assert apart(convolution, "v100") == []


@pytest.mark.parametrize("on", ["v100", "mi50"])
def test_a_product_one_element_longer_has_its_edges_apart_unless_that_is_forbidden(on):
    graph = canonicalize(product(2049, 2049, 2049))
    first, *_ = construct(graph, device(on), top_k=1)
    assert "edges of" in first.variants[0]
    forbidden = rg.BuildOptions(shapes=replace(ALL_SHAPES, edges_apart=False))
    whole, *_ = construct(graph, device(on), forbidden, top_k=1)
    assert "edges of" not in whole.variants[0]
    assert whole.seconds > first.seconds
