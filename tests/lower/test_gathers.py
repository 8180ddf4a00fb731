"""Vectors whose lanes lie apart in memory are read element by element; what all lanes pass together is tested once."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.rprogram import LANE, SERIAL
from tests.lower.devices import AVX512
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program


def transposing(columns: int):
    """A copy into another order whose lanes' axis has no loop within a block that could be split at its end."""
    x = rg.tensor("X", (columns, 5))
    for one in construct(canonicalize(rg.ops.permute(x, (1, 0), name="Y")), AVX512, top_k=50):
        stage = one.program.stages[-1]
        lane = next((loop.axis for loop in stage.loops if loop.kind == LANE), None)
        if lane and not stage.copies and not any(x.kind == SERIAL and x.axis == lane for x in stage.loops):
            return one.program
    raise AssertionError("no program puts all columns of a row on blocks and lanes")


@pytest.mark.parametrize(("columns", "paths"), [(64, 1), (67, 2)])
def test_blocks_of_whole_vectors_test_no_lane(columns, paths):
    program = transposing(columns)
    text = emit(program, AVX512).text
    reads = [line for line in text.splitlines() if "x_lanes[lane] =" in line]
    assert len(reads) == paths and "?" not in reads[0] and all("?" in line for line in reads[1:])


def test_the_elements_within_the_array_are_read_and_no_other():
    program = transposing(67)
    inputs = random_inputs(program)
    found = execute(emit(program, AVX512), program, inputs)
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found["Y"].array[0], run_program(program, inputs)["Y"][0])
