"""Tuples reduced along short rows: with the rows in the lanes where the number of rows is whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.rows_in_lanes import lane_rows_candidates, rows_in_lanes
from rollergen.expr.canonical import canonicalize
from rollergen.tile.rules import AlignmentRules
from tests.agreement import readers
from tests.program.hand_devices import AVX512


def graph_of(shape, how="argmax"):
    return canonicalize(getattr(rg.ops, how)(rg.tensor("X", shape), -1, name="Y"))


def turned(shape, how):
    """Programs whose lanes lie along the results, best first."""
    graph = graph_of(shape, how)
    (op,) = graph.tensor_ops
    found = lane_rows_candidates(op, AVX512, AlignmentRules(), 10, Ledger())
    return [program_of(graph, AVX512, [one]).program for one in found]


@pytest.mark.parametrize(
    ("shape", "how"),
    [((64, 16), "argmax"), ((48, 32), "argmin"), ((3, 16, 16), "argmax"), ((16, 80), "argmax"), ((64, 10), "argmax"),
     ((32, 4), "argmin"), ((16, 37), "argmax")],
)
def test_all_readers_of_rows_in_lanes_agree(shape, how):
    """Of ties the first one is told, and NaN wins."""
    found = turned(shape, how)
    assert found
    X = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    X.reshape(-1)[[5, 77, 78]] = np.nan
    for program in found[:2]:
        result, blocks = readers.interpreted(program, {"X": X}, AVX512, most_blocks=1000)
        np.testing.assert_array_equal(result.outputs["Y"], getattr(np, how)(X, -1))
        readers.assert_traffic(program, result.traffic, AVX512, blocks)
        np.testing.assert_array_equal(readers.run_opencl(program, {"X": X}, AVX512)["Y"], result.outputs["Y"])


def test_rows_in_lanes_are_the_first_choice_where_rows_are_short():
    """A row of 16 is a vector, at whose end 16 tuples would be put together; of 1024 that is little."""
    first = lambda columns: construct(graph_of((4096, columns)), AVX512)[0].variants[0]
    assert all(first(columns).startswith("rows in the lanes") for columns in (4, 7, 10, 16, 24))
    assert not first(1024).startswith("rows in the lanes")


@pytest.mark.parametrize(
    ("shape", "how"),
    [((64, 3), "argmax"), ((40, 16), "argmax"), ((64, 16), "amax"), ((64, 16), "sum")],
    ids=["rows below the smallest square", "vectors of rows and a half", "no tuple", "nor this"],
)
def test_rows_stay_along_the_lanes(shape, how):
    assert rows_in_lanes(graph_of(shape, how).tensor_ops[0], AVX512.execution_width) is None
