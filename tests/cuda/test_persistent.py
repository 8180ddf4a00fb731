"""Persistent grids: launched blocks compute one output after the other, and a producer is ahead of the threads that
multiply: the CUDA text, run here in each mode of lateness, and the interpreter agree; seeded faults are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.lower.matrix_ir import WaitProducts
from rollergen.lower.products import check_products
from rollergen.lower.stage import lower
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.model import predict_stage
from rollergen.program.model.costs import costs_of
from rollergen.program.serial import from_text, to_text
from rollergen.tile.rules import CodeShapes
from tests.cuda.beside import H200, MODES, assert_agree, compiled, drawn, on_host, without, wrong
from tests.cuda.host import seeded
from tests.matrices import matmul, planned

PLAN = MatrixPlan("wgmma", 1, 16, 2, 1, 4, 4, 2, boxes=True, producer=True, persistent=True)


def of_units(units, expression, plan):
    """The program for a device of so few units that each has several outputs."""
    return planned(expression, replace(H200, units=units), plan)


def walking():
    """Three or four outputs of 12 tiles for each of two blocks, in groups of two rows, the last of them of one."""
    return of_units(2, matmul(136 * 3 + 128, 712, 136), PLAN)


@on_host
@pytest.mark.parametrize("number", range(24))
@pytest.mark.every(23)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, plan = drawn(100 + number)
    random = np.random.default_rng(number)
    made = of_units(int(random.integers(1, 5)), expression, replace(plan, producer=True, persistent=True))
    assert made.stages[0].block_order.launched or made.stages[0].blocks <= 4
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("launched", [1, 2, 7, 10])
@pytest.mark.every(5)
def test_any_number_of_blocks_computes_all_outputs(launched):
    expression = matmul(136 * 3 + 128, 200, 136)
    made = of_units(launched, expression, replace(PLAN, depth=3, group_rows=0))
    assert made.stages[0].launched_blocks == launched
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("columns", [136, 72], ids=["several columns of blocks", "one"])
@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("box_stores", [False, True])
@pytest.mark.every(3)
def test_outputs_of_one_tile_each_come_ahead_too(columns, depth, box_stores):
    expression = matmul(136 * 3 + 128, 40, columns)
    made = of_units(2, expression, replace(PLAN, fn=8, depth=depth, group_rows=0, box_stores=box_stores))
    assert made.stages[0].launched_blocks == 2 and all(copy.boxes for copy in made.stages[0].copies)
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


FAULTS = {
    "the last tile is never free": (r"free_tile\(freed \+ 3\);", ""),
    "the last tile is free while products read it": (
        r"(wait_products<64>\(\(float \*\)acc\);)\s+(free_tile\(freed \+ 3\);)", r"\2 \1",
    ),
    "another tile is free at the end": (r"free_tile\(freed \+ 3\);", "free_tile(freed + 2);"),
    "phases of each output from the start": (r"\(output\*3 \+ k0/4\) % 2", "(k0/4) % 2"),
    "phases of the producer from the start": (r"1 - \(output\*3 \+ k0/4\) % 2", "1 - (k0/4) % 2"),
    "phases of the others from the start": (r"k0 % 4, \(output\*3 \+ k0/4\) % 2", "k0 % 4, (k0/4) % 2"),
    "the producer brings another output": (r"(const int number = output\*2 \+ block;)(\s[^{]*\{\s+wait_tile\(freed)", r"const int number = output + block;\2"),
    "the others compute another output": (r"(wait_products[\s\S]*)i0\*17408", r"\1(i0 + 1)*17408"),
    "an output fewer": (r"output < (\([^)]*\)/2|\d+)", r"output < \1 - 1"),
    "all blocks compute the same outputs": (r"output\*2 \+ block", "output*2"),
    "an output fewer of the producer": (r"output < (\([^)]*\)/2|\d+)(; \+\+output\) \{[^{]*\{\s+wait_tile\(freed)", r"output < \1 - 1\2"),
}  # fmt: skip


@on_host
def test_the_text_without_faults_is_right():
    made = walking()
    assert not wrong(made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(7)
def test_a_fault_in_the_text_is_found(fault):
    made = walking()
    assert wrong(made, seeded(emit(made, H200, "cuda"), *FAULTS[fault], count=0), MODES)


def test_a_kernel_that_frees_the_last_tile_before_its_products_ended_is_refused():
    (kernel,) = lower(walking(), H200)
    check_products(kernel)
    bare = replace(kernel, body=tuple(without(kernel.body, lambda one: isinstance(one, WaitProducts))))
    with pytest.raises(ProgramError, match=r"FreeTile .* expected products that ended, and a wait for them, before it"):
        check_products(bare)


@pytest.mark.parametrize("launched, producer", [(11, True), (2, False)])
def test_a_persistent_grid_has_a_producer_and_no_more_blocks_than_outputs(launched, producer):
    stage = walking().stages[0]
    order, compute = replace(stage.block_order, launched=launched), replace(stage.compute, producer=producer)
    most = stage.blocks if producer else 0
    with pytest.raises(ProgramError, match=rf"block_order\.launched is {launched}; expected 0 to {most}"):
        check(replace(walking(), stages=(replace(stage, block_order=order, compute=compute),)), H200)


def test_a_persistent_program_and_its_launch_are_kept_as_they_are():
    made = walking()
    assert from_text(to_text(made)) == made
    assert emit(made, H200, "cuda").launches[0].blocks == 2 < made.stages[0].blocks


def first_choice(**shapes):
    graph = canonicalize(matmul(4096, 4096, 4096, "bfloat16"))
    options = BuildOptions(shapes=CodeShapes(clusters=False, **shapes))
    return construct(graph, H200, options, 1)[0].program


def test_persistent_grids_are_chosen_where_they_are_allowed_and_save_the_wait_between_blocks():
    stages = [first_choice(persistent_grids=allowed).stages[0] for allowed in (True, False)]
    assert [stage.launched_blocks for stage in stages] == [H200.units, stages[1].blocks]
    persistent = stages[0]
    without_it = replace(persistent, block_order=replace(persistent.block_order, launched=0))
    with_it, bare = (predict_stage(one, H200) for one in (persistent, without_it))
    between = {one.name: one.seconds for one in bare.limiters}["next blocks"]
    starts = -(-persistent.blocks // H200.units) - 1
    tile = sum(2 * np.prod(persistent.buffer_shape(copy, block=True)) for copy in persistent.copies)
    costs = costs_of(H200)
    clocks = costs.next_block_clocks + costs.exposed_staging_clocks + tile / H200.layer("l2").bytes_per_clock
    assert between == pytest.approx(starts * clocks / (H200.clock_mhz * 1e6), rel=1e-3)
    assert bare.seconds - with_it.seconds == pytest.approx(between, rel=0.05)


def test_the_blocks_of_a_cluster_wait_for_each_other_s_start():
    plans = [replace(PLAN, fn=32, persistent=False, cluster=cluster) for cluster in (0, 2)]
    stages = [planned(matmul(4096, 512, 4096), H200, plan).stages[0] for plan in plans]
    alone, clustered = ({one.name: one.clocks for one in predict_stage(one, H200).limiters} for one in stages)
    starts = -(-stages[0].blocks // H200.units) - 1
    more = clustered["next blocks"] - alone["next blocks"]
    halved = 2 * 256 * 64 / 2 / H200.layer("l2").bytes_per_clock  # of the tile that both read
    assert more == pytest.approx(starts * (costs_of(H200).next_block_clocks - halved), rel=1e-3)


@compiled
def test_the_loop_of_a_persistent_grid_is_as_small_as_of_any_other_and_nothing_spills():
    made = first_choice()
    assert made.stages[0].block_order.launched
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    loops = main_loops(done.code)
    if loops is not None:
        (loop,) = loops.values()
        assert sum(loop.values()) <= 70 * loop["HGMMA"] / 4


@pytest.mark.parametrize(
    ("fn", "depth", "resident", "late"), [(32, 3, 1, True), (32, 4, 1, False), (16, 3, 2, False)]
)
def test_only_a_block_that_has_its_unit_for_itself_is_on_top_late(fn, depth, resident, late):
    plan = MatrixPlan("wgmma", 1, fn, 2, 1, 4, depth, boxes=True, producer=True)
    found = predict_stage(planned(matmul(4096, 4096, 4096), H200, plan).stages[0], H200)
    assert found.resident_blocks == resident
    assert any(one.name == "late tiles" and one.how == "adds" and one.seconds > 0 for one in found.limiters) == late
