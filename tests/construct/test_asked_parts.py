"""Few rows times a matrix, and sums of columns, in parts that ask for their next rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.asked_parts import asked_parts
from rollergen.construct.ledger import Ledger
from rollergen.construct.options import BuildOptions
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.levels import WAITING_STREAMED
from rollergen.program.check import check
from rollergen.program.loops import chain_lengths, next_rows
from rollergen.program.rprogram import RProgram
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, interpreted, run_opencl, small_integers
from tests.construct.test_next_rows import AVX512

NEAR = replace(
    AVX512, layers=tuple(replace(one, capacity_bytes=1 << 14) if one.name == "l3" else one for one in AVX512.layers)
)
"""A device beyond whose last cache small matrices lie."""


def product(m, k, n, dtype):
    return canonicalize(rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype)))


def columns(k, n, dtype="float32"):
    return canonicalize(rg.ops.sum(rg.tensor("A", (k, n), dtype), 0))


def in_parts(graph, device=NEAR, rules=AlignmentRules()):
    (op,) = graph.tensor_ops
    return [one for variant in variants(op, device, rules) for one in asked_parts(variant, device, rules, 4, Ledger())]


def program_of(graph, one):
    (op,) = graph.tensor_ops
    buffers = {load.buffer.name: load.buffer for load in op.loads()}
    return RProgram(NEAR.name, tuple(buffers.values()), (op.output,), one.stages, one.temporaries)


@pytest.mark.parametrize("graph", [product(1, 4096, 4096, "float16"), product(4, 4096, 4096, "bfloat16"),
                                   product(1, 32768, 1024, "float32"), columns(4096, 4096), columns(4096, 4096, "float16")])  # fmt: skip
def test_parts_are_the_first_choice_beyond_the_caches(graph):
    best = construct(graph, AVX512, BuildOptions(), top_k=1)[0]
    first, second = best.program.stages
    assert next_rows(first) and first.loops[first.prefetch].stride == 8
    assert "next rows asked for, split" in best.variants[0]
    assert first.op.output.dtype == "float32" and second.op.output == graph.tensor_ops[0].output


@pytest.mark.parametrize("graph", [product(1, 256, 288, "float32"), columns(256, 288), product(1, 256, 288, "int8"),
                                   columns(257, 288), product(16, 256, 288, "float16")])  # fmt: skip
def test_none_are_made_where_one_part_will_do_or_none_are_equal_or_rows_are_many(graph):
    assert not in_parts(graph)


def test_none_are_made_where_splits_or_prefetches_are_forbidden():
    graph = product(1, 256, 288, "float16")
    assert in_parts(graph)
    for name in ("split_reductions", "prefetch"):
        rules = AlignmentRules()
        assert not in_parts(graph, rules=replace(rules, shapes=replace(rules.shapes, **{name: False})))


@pytest.mark.parametrize("k", [512, 4096, 16384])
def test_sums_of_parts_have_short_chains(k):
    for one in in_parts(columns(k, 288)):
        assert all(length <= WAITING_STREAMED for stage in one.own for length in chain_lengths(stage))


@pytest.mark.parametrize("graph", [product(1, 256, 288, "float16"), product(3, 256, 300, "bfloat16"),
                                   columns(512, 288), columns(512, 300, "float16")])  # fmt: skip
def test_readers_agree_on_parts(graph):
    made = in_parts(graph)
    assert made
    for one in made:
        program = program_of(graph, one)
        check(program, NEAR)
        arrays = small_integers(program)
        found, _ = interpreted(program, arrays, NEAR, most_blocks=10_000)
        assert_traffic(program, found.traffic, NEAR, {})
        (given,) = run_opencl(program, arrays, NEAR).values()
        (read,) = found.outputs.values()
        a = arrays["A"].astype(np.float64)
        want = a.reshape(-1, arrays["B"].shape[0]) @ arrays["B"].astype(np.float64) if "B" in arrays else a.sum(0)
        for result in (given, read):
            assert np.array_equal(result.astype(np.float64).reshape(-1), want.astype(given.dtype).astype(np.float64).reshape(-1))
