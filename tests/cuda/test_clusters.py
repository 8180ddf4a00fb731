"""Clusters of blocks that bring for each other what they read alike: the CUDA text, run here in each mode of lateness,
and the interpreter agree, in values and in traffic; seeded faults are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.lower.box_ir import MeetCluster
from rollergen.lower.products import check_products
from rollergen.lower.stage import lower
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, small_integers
from tests.cuda.beside import H200, MODES, assert_agree, compiled, drawn, on_host, without, wrong
from tests.cuda.host import seeded
from tests.matrices import matmul, planned

PLAN = MatrixPlan("wgmma", 1, 16, 2, 1, 4, 4, 2, boxes=True, producer=True, cluster=2)


def of_units(units, expression, plan):
    return planned(expression, replace(H200, units=units), plan)


def pairs(**how):
    """Four rows and two columns of blocks, each row of two a cluster."""
    return of_units(2, matmul(512, 712, 136), replace(PLAN, **how))


def in_whole_clusters(number: int):
    """(expression, plan, units) of a random product whose grid has a multiple of the cluster's blocks along m."""
    random = np.random.default_rng(number)
    cluster = int(random.choice([2, 4], p=[0.8, 0.2]))
    while True:
        expression, plan = drawn(int(random.integers(1000)))
        plan = replace(plan, producer=True, persistent=bool(number % 2), cluster=cluster)
        units = cluster * int(random.integers(1, 3))
        made = of_units(units, expression, plan)
        if made.stages[0].block_order.cluster:
            return expression, plan, units, made


@on_host
@pytest.mark.parametrize("number", range(24))
@pytest.mark.every(23)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, _, _, made = in_whole_clusters(number)
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.every(5)
def test_rows_along_k_are_shared_in_parts_too(turned, persistent):
    expression = matmul(256, 200, 136, transpose_b=turned)
    made = of_units(2, expression, replace(PLAN, persistent=persistent))
    assert made.stages[0].block_order.cluster == 2
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


FAULTS = {
    "no meeting before the first tile": (r"meet_cluster\(\);(\s+if \(thread)", r"__syncthreads();\1"),
    "a block brings its part for itself alone": (r"copy_shared_box_2<2>", "copy_box_2"),
    "a tile is free for its own block alone": (r"free_tile_of<2>", "free_tile"),
    "arrivals of one block": (r"start_barriers\(freed, 4, 16\)", "start_barriers(freed, 4, 8)"),
    "too many arrivals": (r"start_barriers\(freed, 4, 16\)", "start_barriers(freed, 4, 17)"),
    "both blocks bring the same part": (r"(j0\*128 \+ )[^,]*\*64, k0", r"\g<1>64, k0"),
    "parts exchanged": (r"(B_shared \+ )([^;]*)\*4096;", r"\g<1>(1 - \2)*4096;"),
    "bytes of its own part": (r"expect_bytes\(filled \+ k0 % 4, 32768\)", "expect_bytes(filled + k0 % 4, 24576)"),
    "the tiles of another output": (r"(const int number = output\*2 \+ block;)(\s[^{]*\{\s+wait_tile\(freed)", r"const int number = output*2 + 1 - block;\2"),
    "no wait for a free buffer": (r"wait_tile\(freed \+ k0 % 4, [^;]*\);", ""),
    "nothing is free": (r"if \(k0 >= 1\) \{\s+free_tile_of<2>\([^;]*;\s+\}", ""),
    "phases of each output from the start": (r"\(output\*3 \+ k0/4\) % 2", "(k0/4) % 2"),
}  # fmt: skip


@on_host
def test_the_text_without_faults_is_right():
    made = pairs(persistent=True)
    assert not wrong(made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(7)
def test_a_fault_in_the_text_is_found(fault):
    made = pairs(persistent=True)
    assert wrong(made, seeded(emit(made, H200, "cuda"), *FAULTS[fault], count=0), MODES)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_kernel_whose_blocks_do_not_meet_at_start_and_end_is_refused(kept):
    (kernel,) = lower(pairs(), H200)
    check_products(kernel)
    met = iter(range(9))
    bare = without(kernel.body, lambda one: isinstance(one, MeetCluster) and next(met) != kept)
    with pytest.raises(ProgramError, match="2 blocks a cluster; expected a MeetCluster behind StartBarriers, and one at"):
        check_products(replace(kernel, body=tuple(bare)))


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"cluster": 3}, "block_order.cluster is 3; expected 0, or with a producer a number from 2 on of which group_rows"),
        ({"cluster": 2, "group_rows": 3}, "block_order.cluster is 2; expected 0, or"),
        ({"cluster": 2, "group_rows": 0}, "block_order.cluster is 2; expected 0, or"),
        ({"cluster": 2, "launched": 3}, "block_order.cluster is 2; expected 0, or"),
        ({"cluster": 16, "group_rows": 16}, "block_order.cluster is 16; expected at most 8 on h200"),
    ],
)
def test_clusters_that_no_grid_has_or_no_device_are_refused(order, says):
    made = of_units(2, matmul(128 * 16, 200, 136), PLAN)
    stage = made.stages[0]
    changed = replace(stage, block_order=replace(stage.block_order, **order))
    with pytest.raises(ProgramError, match=says):
        check(replace(made, stages=(changed,)), H200)


def test_what_blocks_share_is_counted_once_by_all_readers():
    made, alone = pairs(), pairs(cluster=0)
    counted, apart = (interpret(one, small_integers(one), H200).traffic for one in (made, alone))
    assert_traffic(made, counted, H200, {})
    b = [next(record.transactions for record in records if record.tensor == "B") for records in (counted, apart)]
    assert b[1] == 2 * b[0]
    bytes_ = [dict(predict_stage(one.stages[0], H200).traffic_bytes)["l2"] for one in (made, alone)]
    tiles = 8 * 12 * 64 * 128 * 2  # blocks, tiles each, and what one has of B: half of it is saved
    assert bytes_[1] - bytes_[0] == pytest.approx(tiles / 2, rel=0.1)


def test_a_program_with_clusters_is_kept_as_it_is():
    made = pairs(persistent=True)
    assert from_text(to_text(made)) == made


@compiled
@pytest.mark.parametrize("persistent", [False, True])
def test_the_loop_of_a_cluster_is_small_and_nothing_spills(persistent):
    plan = MatrixPlan("wgmma_bf16", 1, 32, 2, 1, 4, 4, 16, boxes=True, producer=True, persistent=persistent, cluster=2)
    made = planned(matmul(4096, 4096, 4096, "bfloat16"), H200, plan)
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    loops = main_loops(done.code)
    if loops is not None:
        (loop,) = loops.values()
        assert loop["HGMMA"] == 4 and sum(loop.values()) <= 70
