"""What an access costs is kept by what it depends on: shapes of threads, not how many loops they are written as."""

from dataclasses import replace

from rollergen.hal.load import load_device
from rollergen.program.model import predict_stage
from rollergen.program.rprogram import Loop
from tests.programs import transpose

V100 = load_device("v100")


STAGE = transpose(96, 64).stages[0]


def unstaged(threads):
    """A transpose without a tile, by these thread loops; always of one definition, beside which services are kept."""
    loops = (*STAGE.loops[:2], *threads, *STAGE.loops[4:])
    at_loop = 2 + len(threads)
    return replace(STAGE, loops=loops, copies=(), accumulator=replace(STAGE.accumulator, at_loop=at_loop))


def path_clocks(stage):
    return {limiter.name: limiter.clocks for limiter in predict_stage(stage, V100).limiters}["shared path"]


ROWS, COLUMNS, ONE = Loop("j", 8, 1, "thread"), Loop("i", 32, 1, "thread"), Loop("j", 1, 8, "thread")


def test_a_loop_of_one_thread_changes_no_service():
    plain = path_clocks(unstaged((ROWS, COLUMNS)))
    assert path_clocks(unstaged((ONE, ROWS, COLUMNS))) == path_clocks(unstaged((ROWS, ONE, COLUMNS))) == plain


def test_the_order_of_the_threads_does():
    # X[i, j] is read by 32 lanes a row of 64 apart, or by 4 times 8 neighbours; Y[j, i] is written the other way.
    assert path_clocks(unstaged((ROWS, COLUMNS))) > 2 * path_clocks(unstaged((COLUMNS, ROWS)))
