"""Vectors of which some lanes are stored: at once where the processor can, with no other place touched."""

from dataclasses import replace

import numpy as np
import pytest

from rollergen.emit import emit
from tests import programs
from tests.lower.devices import DEVICES
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

GUARD = "#if defined(__AVX512F__) && defined(__AVX512DQ__)"


def compiled(way):
    """A matrix product whose columns are no whole vectors, with the processor's masked stores or without."""
    program = programs.ALL["cpu_matmul"]
    source = emit(program, DEVICES["cpu"])
    assert GUARD in source.text and source.text.count("store_lanes16(") > 1
    return program, source if way == "at once" else replace(source, text=source.text.replace(GUARD, "#if 0"))


@pytest.mark.parametrize("way", ["at once", "lane by lane"])
def test_the_lanes_inside_are_written_and_nothing_else(way):
    program, source = compiled(way)
    inputs = random_inputs(program)
    found, (output,) = execute(source, program, inputs), program.outputs
    assert all(buffer.zones_intact() for buffer in found.values())
    np.testing.assert_array_equal(found[output.name].array, run_program(program, inputs)[output.name])


def test_processors_of_narrower_vectors_get_no_such_text():
    narrow = replace(DEVICES["cpu"].targets[0], dialect=(("kernel_attribute", "__attribute__((min_vector_width(256)))"),))
    text = emit(programs.ALL["cpu_matmul"], replace(DEVICES["cpu"], targets=(narrow,))).text
    assert "store_lanes16" not in text
