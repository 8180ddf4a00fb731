"""What no bulk-synchronous program may be is refused, with what would be accepted."""

from dataclasses import replace

import pytest

from rollergen.errors import ProgramError
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.supersteps import TileMapping
from tests.bulk.vectors import VECTORS, program_of

PROGRAM = program_of(VECTORS["matmul of float32"])


def with_step(number=0, **fields):
    stages = list(PROGRAM.stages)
    stages[number] = replace(stages[number], superstep=replace(stages[number].superstep, **fields))
    return replace(PROGRAM, stages=tuple(stages))


def without_step(number):
    stages = list(PROGRAM.stages)
    stages[number] = replace(stages[number], superstep=None)
    return replace(PROGRAM, stages=tuple(stages))


def with_tile_mapping(buffer, **fields):
    mappings = (replace(one, **fields) if one.buffer == buffer else one for one in PROGRAM.tile_mappings)
    return replace(PROGRAM, tile_mappings=tuple(mappings))


BROKEN = {
    "a stage without a superstep": (lambda: without_step(1), "stage sums: has no superstep"),
    "a copy of no load": (lambda: with_step(copied=(0, 2)), "names load 2; expected 0 to 1"),
    "a step of a grid loop": (lambda: with_step(steps=(0,)), "names loop 0; expected a serial loop of a reduce axis"),
    "outputs of both factors": (lambda: with_step(outputs="i"), "outputs is 'i'; expected a spatial axis of the weights"),
    "inputs that are not summed": (lambda: with_step(inputs="j"), "inputs is 'j'; expected a reduce axis of both"),
    "shares of an input": (lambda: with_step(1, shares="A"), "shares is 'A'; expected the temporary that it alone"),
    "a buffer with two tile mappings": (
        lambda: replace(PROGRAM, tile_mappings=(*PROGRAM.tile_mappings, TileMapping("A", "planned", "products", 0))),
        "A has 2 tile mappings"),
    "an input that is finished": (
        lambda: with_tile_mapping("A", rule="finished"), "mapping of A is finished in products"),
    "a mapping planned for another load": (
        lambda: with_tile_mapping("A", load=1), "planned for load 1; expected a load of it"),
    "a mapping of another stage": (
        lambda: with_tile_mapping("C", stage="products"), "where products ends; expected its writer"),
}  # fmt: skip


def test_the_program_itself_is_accepted():
    check(PROGRAM, load_device("ipu"))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_is_refused(name):
    make, message = BROKEN[name]
    with pytest.raises(ProgramError, match=message):
        check(make(), load_device("ipu"))


def test_more_blocks_than_tiles_are_refused():
    device = replace(load_device("ipu"), units=1215)
    with pytest.raises(ProgramError, match="has 1216 blocks; expected at most 1215, the tiles of ipu"):
        check(PROGRAM, device)
