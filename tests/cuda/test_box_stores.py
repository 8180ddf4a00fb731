"""Results that a copy engine stores in boxes (TMA): the CUDA text, run here in each mode of lateness, and the interpreter
agree; each fault that is seeded is found; what cannot be stored so is refused; NVIDIA's compiler makes few of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram, main_loops
from rollergen.lower.box_ir import FreeResults, ShowResults, WaitStores
from rollergen.lower.products import check_products
from rollergen.lower.stage import lower
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.layers import managed_bytes
from rollergen.program.model import predict_stage
from rollergen.program.serial import from_text, to_text
from rollergen.tile.rules import CodeShapes
from tests.cuda.beside import H200, MODES, NAMES, assert_agree, compiled, drawn, on_host, without, wrong
from tests.cuda.host import seeded
from tests.cuda.test_boxes import seeded_map
from tests.cuda.test_read_beside import biased, residual
from tests.matrices import T, matmul, planned

PLAN = MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3, boxes=True, producer=True, box_stores=True)
FEW = replace(H200, units=2)
CASES = {
    "one round": (lambda: matmul(136, 264, 136), PLAN),
    "rounds of two panels": (lambda: matmul(136, 264, 264), replace(PLAN, fn=32)),
    "rounds of one panel": (lambda: matmul(136, 264, 200), replace(PLAN, fn=24)),
    "two instructions each": (lambda: matmul(264, 136, 136), replace(PLAN, fm=2, fn=16)),
    "instructions side by side": (lambda: matmul(72, 136, 264), replace(PLAN, gm=1, gn=2, fn=16)),
    "no producer": (lambda: matmul(136, 264, 136), replace(PLAN, producer=False)),
    "persistent": (lambda: matmul(392, 264, 136), replace(PLAN, persistent=True, fn=16)),
    "clusters": (lambda: matmul(512, 264, 136), replace(PLAN, cluster=2)),
    "persistent clusters": (lambda: matmul(512, 264, 264), replace(PLAN, cluster=2, persistent=True, fn=16)),
    "bfloat16": (lambda: matmul(136, 264, 136, "bfloat16"), replace(PLAN, instruction="wgmma_bf16", fn=16)),
    "float32": (
        lambda: matmul(136, 132, 132, "float32", transpose_b=True), replace(PLAN, instruction="wgmma_tf32"),
    ),
    "int32": (lambda: matmul(136, 272, 132, "int8", transpose_b=True), replace(PLAN, instruction="wgmma_s8")),
    "batches": (lambda: rg.einsum("bmk,bkn->mbn", T("A", (3, 40, 264), "float16"), T("B", (3, 264, 72), "float16")), PLAN),
    "bias and residual": (lambda: biased(136, 264, 136), PLAN),
    "rows and columns within one box": (lambda: matmul(8, 264, 8), PLAN),
}  # fmt: skip


def made_of(name):
    expression, plan = CASES[name]
    expression = expression()
    return expression, planned(expression, FEW, plan)


def test_every_case_stores_in_boxes_as_it_says():
    stores = {name: made_of(name)[1].stages[0] for name in CASES}
    assert all(stage.store.boxes for stage in stores.values())
    assert {stage.store.boxes for stage in stores.values()} == {1, 2}
    assert stores["bias and residual"].store.vector == 8 and stores["one round"].store.vector == 2
    assert stores["persistent"].block_order.launched and stores["persistent clusters"].block_order.cluster


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(7)
def test_results_in_boxes_are_those_of_the_interpreter_in_every_mode(name):
    expression, made = made_of(name)
    source = emit(made, FEW, "cuda")
    assert "store_box_" in source.text and len(source.launches[0].maps[-1]) == 16
    assert_agree(expression, made, source, MODES)


@on_host
@pytest.mark.parametrize("number", range(100, 124))
@pytest.mark.every(17)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, plan = drawn(number, (280, 260, 280), box_stores=True)
    made = planned(expression, FEW, replace(plan, persistent=number % 2 == 0 and plan.producer))
    assert made.stages[0].store.boxes
    assert_agree(expression, made, emit(made, FEW, "cuda"), MODES)


def plain():
    """A product of several rounds, whose last rows and columns are no whole boxes, in a persistent grid."""
    return planned(matmul(200, 264, 264), FEW, replace(PLAN, fn=32, persistent=True))


FAULTS = {
    "no wait for the buffer": (r"free_results\(\);", "meet_group();"),
    "no barrier before the boxes": (r"show_results\(\);", ""),
    "no barrier before threads write": (r"free_results\(\);", "if (is_storing()) wait_stores();"),
    "no wait at the end": (r"wait_stores\(\);(\s+\})", r"\1"),
    "no end of a group": (r"end_stores\(\);", ""),
    "all threads store": (r"if \(is_storing\(\)\)", "if (thread % 32 == 0)"),
    "the next panel": (r"(store_box_2\(out, \w+), ([^,]+), ", r"\1, \2 + 64, "),
    "coordinates exchanged": (r"(store_box_2\(out, \w+), ([^,]+), ([^)]+)\)", r"\1, \3, \2)"),
    "the other panel of the buffer": (r"results_at_2 \+ 4096", "results_at_2"),
    "rows not swizzled": (r"const int column = \(j2 % 8\) \^ \w+;", "const int column = j2 % 8;"),
    "rows too near": (r"(results_at = results .*)i3\*64", r"\1i2*56"),
}


def test_the_text_without_faults_is_right():
    made = plain()
    assert not wrong(made, emit(made, FEW, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_fault_in_the_text_is_found(fault):
    made = plain()
    assert wrong(made, seeded(emit(made, FEW, "cuda"), *FAULTS[fault], count=0), MODES)


MAPS = {
    "a row too few": lambda one: replace(one, extents=(one.extents[0], one.extents[1] - 1)),
    "columns too few": lambda one: replace(one, extents=(one.extents[0] - 8, one.extents[1])),
    "a row too many": lambda one: replace(one, extents=(one.extents[0], one.extents[1] + 1)),
    "rows too near": lambda one: replace(one, strides=(one.strides[0] - 16,)),
    "a side too short": lambda one: replace(one, box=(one.box[0], one.box[1] // 2)),
    "wider elements": lambda one: replace(one, itemsize=4),
}


@on_host
@pytest.mark.parametrize("fault", MAPS)
@pytest.mark.every(3)
def test_a_fault_in_the_map_of_the_output_is_found(fault):
    made = plain()
    source, (kernel,) = emit(made, FEW, "cuda"), lower(made, FEW)
    changed = seeded_map(source, 2, MAPS[fault](kernel.maps[2][1]).words)
    try:
        assert wrong(made, changed, MODES)
    except AssertionError as error:  # what lies behind the output was written to
        assert "tobytes" in str(error)


@pytest.mark.parametrize("node", [FreeResults, ShowResults, WaitStores])
def test_a_kernel_without_a_wait_or_a_fence_is_refused(node):
    (kernel,) = lower(plain(), FEW)
    check_products(kernel)
    with pytest.raises(ProgramError, match=f"expected {node.__name__} (before|behind) it"):
        check_products(replace(kernel, body=tuple(without(kernel.body, lambda one: isinstance(one, node)))))


def storing(made, **fields):
    (stage,) = made.stages
    return replace(made, stages=(replace(stage, store=replace(stage.store, **fields)),))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: storing(planned(matmul(136, 264, 136), H200, replace(PLAN, boxes=False)), boxes=1), "do not come in boxes"),
        (lambda: storing(planned(matmul(136, 264, 136), H200, PLAN), boxes=2), "64 columns, written 2 at once"),
        (lambda: storing(planned(matmul(136, 264, 100, transpose_b=True), H200, PLAN), boxes=1), r"strides \[200\] are no multiples of 16"),
        (lambda: storing(planned(matmul(136, 264, 136), H200, PLAN), across_rows=True), "across_rows|across rows"),
        (
            lambda: storing(planned(rg.ops.cast(matmul(136, 272, 128, "int8", transpose_b=True), "int8"), H200,
                                    replace(PLAN, instruction="wgmma_s8")), boxes=1), "rows of int8 are no panels",
        ),
    ],
)  # fmt: skip
def test_what_no_copy_engine_can_store_is_refused(made, says):
    with pytest.raises(ProgramError, match=says):
        check(made(), H200)


def test_a_residual_over_the_output_s_own_rows_is_no_reason_not_to_store_in_boxes():
    made = planned(residual(matmul(136, 264, 136)), H200, PLAN)
    assert made.stages[0].store.boxes and made.stages[0].store.vector_loads


def test_stores_in_boxes_are_chosen_where_they_are_faster_and_never_where_they_are_switched_off():
    graph = canonicalize(matmul(8192, 8192, 8192, "bfloat16", transpose_b=True))
    found = [
        construct(graph, H200, BuildOptions(shapes=CodeShapes(box_copies=boxes, box_stores=stores)), 1)[0].program
        for boxes, stores in ((True, True), (True, False), (False, True))
    ]  # fmt: skip
    assert [bool(one.stages[0].store.boxes) for one in found] == [True, False, False]
    seconds = [predict_stage(one.stages[0], H200).seconds for one in found]
    assert seconds == sorted(seconds)
    assert from_text(to_text(found[0])) == found[0]


def results_clocks(made):
    return {one.name: one.clocks for one in predict_stage(made.stages[0], H200).limiters}.get("results", 0)


def test_storing_is_on_top_where_a_block_has_its_unit_for_itself_and_less_where_the_engine_stores():
    wide, k = replace(PLAN, fn=32, depth=4), 512
    by_threads, by_engine, crowded = (
        results_clocks(planned(matmul(4096, k, 4096), H200, plan))
        for plan in (replace(wide, box_stores=False), wide, replace(PLAN, fm=1, fn=8, depth=3, box_stores=False))
    )
    assert crowded == 0 < by_engine < by_threads / 2
    assert results_clocks(planned(matmul(4096, 2 * k, 4096), H200, replace(wide, box_stores=False))) == by_threads


def test_threads_are_predicted_to_run_fewer_instructions_and_blocks_to_hold_the_buffer():
    made = planned(matmul(4096, 512, 4096), H200, replace(PLAN, fn=32, depth=4))
    apart = planned(matmul(4096, 512, 4096), H200, replace(PLAN, fn=32, depth=4, box_stores=False))
    boxed, plain_ = (predict_stage(one.stages[0], H200) for one in (made, apart))
    seconds = [{one.name: one.seconds for one in each.limiters} for each in (boxed, plain_)]
    assert seconds[0]["issue"] < seconds[1]["issue"] and seconds[0]["shared path"] < seconds[1]["shared path"]
    assert boxed.shared_bytes - plain_.shared_bytes == 2 * 64 * 2 * 128  # warpgroups, rows, panels, bytes
    assert emit(made, H200, "cuda").launches[0].dynamic_bytes == boxed.shared_bytes
    assert managed_bytes(made.stages[0], H200)["shared"] == boxed.shared_bytes


def test_writes_of_pairs_to_swizzled_rows_are_predicted_to_meet_no_bank_twice():
    made = planned(matmul(4096, 512, 4096), H200, replace(PLAN, fn=32, depth=4))
    rows, columns = np.divmod(np.arange(32), 4)
    for tile in range(8):  # of a panel
        banks = (rows * 128 + (tile ^ rows) * 16 + columns * 4) // 4 % 32
        assert len(set(banks.tolist())) == 32
    assert made.stages[0].store.vector == 2


@compiled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("way", [{}, {"persistent": True, "cluster": 2}])
def test_results_leave_by_few_instructions_of_one_thread_and_nothing_spills(dtype, way):
    plan = replace(PLAN, instruction=NAMES[dtype], fn=32, depth=4, **way)
    made = planned(matmul(4096, 4096, 4096, dtype), H200, plan)
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    every, loops = histogram(done.code), main_loops(done.code)
    if every is not None and loops is not None:
        counts = every["contraction"]
        assert counts["UTMASTG"] == 4 and not any(name.startswith(("STG", "SHFL.BFLY")) for name in counts)
        assert sum(loops["contraction"].values()) <= 70
