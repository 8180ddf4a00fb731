"""Threads that put their accumulators together: what the model counts is what the lowering writes."""

from __future__ import annotations

import pytest

from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.expr.canonical import canonicalize
from rollergen.lower import lower
from rollergen.lower.expressions import STORAGE_BYTES, Exchange
from rollergen.lower.features import Features
from rollergen.lower.ir import LOCAL, Allocate, Barrier, Let, walk
from rollergen.program.layers import combining_bytes
from rollergen.program.model import predict_stage
from rollergen.program.model.combining import combining_of
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.nest import nest_of
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import device, rg
from tests.cuda.test_exchanges import COMBINERS, SHAPES, program

V100 = device("v100")


def kernel_of(stage_program):
    return lower(stage_program, V100, Features(exchanges=True))[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COMBINERS)
def test_the_model_counts_the_exchanges_and_the_shared_words_that_are_written(name, shape):
    one = program(name, shape)
    (stage,), body = one.stages, kernel_of(one).body
    counted = combining_of(nest_of(stage, facts_of(stage.op), V100), V100, costs_of(V100), 1)
    written = list(walk(body))
    exchanges = sum(isinstance(s, Let) and isinstance(s.value, Exchange) for s in written)
    components = len(stage.op.reductions[0].bodies)
    through_memory = 2 * components if stage.accumulator.combine == "groups" else 0
    assert sum(access.count for access in counted.accesses) == exchanges + through_memory
    arrays = [s for s in written if isinstance(s, Allocate) and s.scope == LOCAL]
    bytes_ = sum(STORAGE_BYTES[a.dtype] * a.shape[0] for a in arrays)
    assert counted.bytes == bytes_ == sum(combining_bytes(stage, V100).values())
    assert sum(isinstance(s, Barrier) for s in written) == (stage.accumulator.combine == "groups")


def test_exchanges_cost_less_than_a_tree():
    for shape in ("one width", "eight widths"):
        one = program("sum", shape).stages[0]
        tree = one.__class__(**{f: getattr(one, f) for f in one.__slots__} | {"accumulator": tree_of(one.accumulator)})
        assert predict_stage(one, V100).seconds < predict_stage(tree, V100).seconds


def tree_of(accumulator):
    return accumulator.__class__(accumulator.at_loop, accumulator.dtype, combine="tree")


def combines(shapes, name="v100"):
    graph = canonicalize(rg.ops.softmax(rg.tensor("X", (512, 1024)), axis=-1))
    made = construct(graph, device(name), BuildOptions(shapes=shapes), top_k=6)
    return {one.program.stages[0].accumulator.combine for one in made}


def test_construction_exchanges_where_it_may():
    assert combines(CodeShapes()) <= {"shuffle", "groups"}
    assert combines(CodeShapes(shuffles=False)) == {"tree"}
    assert combines(CodeShapes(), "mi50") == {"tree"}, "its spec has no exchange"
