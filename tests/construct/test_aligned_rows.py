"""Products of odd sizes over factors copied into rows that begin at multiples of 16 bytes."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.thread_space import ThreadSpace
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.expr import aligned_rows
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_values, device, small_integers
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

T = rg.tensor


def product(m, n, k, dtype, transpose_b=False):
    right = T("B", (n, k) if transpose_b else (k, n), dtype)
    return rg.ops.matmul(T("A", (m, k), dtype), right, transpose_b=transpose_b)


def rows_of(expression, on):
    """The variants over aligned rows."""
    (op,) = canonicalize(expression).tensor_ops
    return [one for one in variants(op, device(on)) if one.name.startswith("aligned rows")]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("on", ["a100", "v100"])
@pytest.mark.every(7)
def test_text_and_interpreter_compute_the_definition_over_aligned_rows(on, dtype, transpose_b, monkeypatch):
    monkeypatch.setattr(aligned_rows, "REUSE", 1)
    expression = product(77, 139, 69, dtype, transpose_b)
    graph, rules, tolerance = canonicalize(expression), AlignmentRules(), 2.0**-11 if dtype == "float16" else 0.0
    found = rows_of(expression, on)
    assert len(found) == (4 if dtype == "int8" and on == "a100" else 3)
    for variant in found:
        picked = [*matrix_candidates(variant, device(on), rules, 2, Ledger())][:1]
        picked += [*ThreadSpace(variant, device(on), rules).candidates(2, Ledger())][:1]
        for one in picked:
            program = program_of(graph, device(on), (one,)).program
            check(program, device(on))
            arrays = small_integers(program)
            got = executed(program, emit(program, device(on), "cuda"), arrays)
            assert_values(expression, program, got, arrays, None, tolerance)
            counted = interpret(program, arrays, device(on)).outputs
            assert_values(expression, program, counted, arrays, None, tolerance)
            if "mma" in one.variant and "A and B" in one.variant:
                assert all(copy.vector == 8 for copy in program.stages[-1].copies)


def test_an_operator_after_the_product_reads_nothing_behind_its_operands(monkeypatch):
    monkeypatch.setattr(aligned_rows, "REUSE", 1)
    expression = rg.ops.relu(product(33, 45, 37, "float32") + T("c", (45,)))
    variant, *_ = rows_of(expression, "v100")
    assert [axis.extent for axis in variant.op.axes] == [33, 48, 40]
    one = next(ThreadSpace(variant, device("v100"), AlignmentRules()).candidates(2, Ledger()))
    program = program_of(canonicalize(expression), device("v100"), (one,)).program
    arrays = small_integers(program)
    assert_values(expression, program, interpret(program, arrays, device("v100")).outputs, arrays, None, 0.0)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("on", ["v100", "mi50"])
def test_words_of_bytes_lie_in_rows_of_whole_vectors(on, dtype):
    expression = product(45, 33, 35, dtype)
    (op,) = canonicalize(expression).tensor_ops
    variant = next(one for one in variants(op, device(on)) if one.name.startswith("dot products"))
    assert [copy.output.shape for copy in variant.copies] == [(45, 36), (9, 36)]
    one = next(ThreadSpace(variant, device(on), AlignmentRules()).candidates(2, Ledger()))
    assert [copy.vector for copy in one.stages[-1].copies if copy.to_layer != "registers"] == [1, 4]
    program = program_of(canonicalize(expression), device(on), (one,)).program
    check(program, device(on))
    arrays = small_integers(program)
    got = executed(program, emit(program, device(on), "cuda"), arrays)
    assert_values(expression, program, got, arrays, None, 0.0)
    assert_values(expression, program, interpret(program, arrays, device(on)).outputs, arrays, None, 0.0)
    whole = canonicalize(product(45, 36, 35, dtype)).tensor_ops[0]
    assert next(one for one in variants(whole, device(on)) if one.name.startswith("dot products")).op.where == ()


def copied(expression, on):
    return [[copy.output.name for copy in one.copies] for one in rows_of(expression, on)]


def test_only_misaligned_factors_that_are_read_often_are_copied():
    assert copied(product(512, 512, 512, "float16"), "a100") == []
    assert copied(product(512, 512, 513, "float16"), "a100") == [["A_rows"]]  # B's rows are 512 elements long
    assert copied(product(512, 513, 513, "float16"), "a100") == [["A_rows", "B_rows"], ["A_rows"], ["B_rows"]]
    assert copied(product(8, 513, 513, "float16"), "a100") == [["A_rows"]]
    assert copied(product(8, 513, 512, "float16"), "a100") == []


def test_matrix_instructions_for_bytes_read_rows_along_the_sum():
    assert copied(product(512, 512, 512, "int8"), "a100") == [["B_rows"]]
    assert copied(product(512, 512, 512, "int8", transpose_b=True), "a100") == []


def test_large_odd_products_in_float16_are_computed_over_aligned_rows():
    first, *_ = construct(canonicalize(product(4097, 4097, 4097, "float16")), device("a100"), top_k=1)
    assert "aligned rows" in first.variants[0]
