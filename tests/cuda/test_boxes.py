"""Tiles that a copy engine brings in boxes (TMA): the CUDA text, run here in each mode of lateness, and the interpreter
agree; each fault that is seeded into text, map or program is found; NVIDIA's compiler makes of it what is aimed at."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.bundle.manifest import launches, launches_of
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import DeviceError, ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.hal.tensor_maps import WORDS
from rollergen.lower.box_ir import StartBarriers, WaitTile
from rollergen.lower.ir import Barrier, For
from rollergen.lower.matrix_ir import BeginProducts, EndProducts, WaitProducts
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
from tests.matrices import T, gated, matmul, nhwc_convolution, planned

BOXES, COPIES = BuildOptions(), BuildOptions(shapes=CodeShapes(box_copies=False))
RING = MatrixPlan("wgmma", 1, 16, 2, 1, 4, 4, boxes=True)


def in_boxes(program):
    return all(copy.boxes for copy in program.stages[-1].copies)


@on_host
@pytest.mark.parametrize("number", range(32))
@pytest.mark.every(17)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, plan = drawn(number)
    made = planned(expression, H200, plan)
    assert in_boxes(made)
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("factor", ["a batch between rows", "parts of a long sum", "sharing a matrix"])
def test_views_and_parts_come_in_boxes_of_more_dimensions(factor):
    a, b = T("A", (72, 2, 200), "float16"), T("B", (2, 200, 80), "float16")
    expression = {
        "a batch between rows": lambda: rg.einsum("mbk,bkn->bmn", a, b),
        "parts of a long sum": lambda: rg.einsum("mpk,pkn->pmn", T("A", (72, 3, 192), "float16"), T("B", (3, 192, 80), "float16")),
        "sharing a matrix": lambda: rg.einsum("mbk,kn->bmn", a, T("B", (200, 80), "float16")),
    }[factor]()
    made = planned(expression, H200, RING)
    assert in_boxes(made) and len(emit(made, H200, "cuda").launches[0].maps) == 3
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (lambda: matmul(136, 460, 76, transpose_b=True), "rows along the sum that are no multiples of 16 bytes"),
        (lambda: nhwc_convolution(2, 9, 7, 64, 64, 3), "gathers"),
        (lambda: rg.einsum("mk,nk->mn", *2 * (T("A", (136, 456), "float16"),)), "one tensor as both factors"),
    ],
)
def test_what_no_box_can_bring_is_copied_by_threads(expression, why):
    made = construct(canonicalize(expression()), H200, BOXES, 10)
    beside = [one.program for one in made if "wgmma" in one.program.stages[-1].compute.instruction]
    assert beside and not any(copy.boxes for one in beside for copy in one.stages[-1].copies), why


def ring(dtype="float16", producer=False):
    """A product with more tiles than buffers, its last one ragged, and two panels a tile of B."""
    return planned(matmul(136, 712, 136, dtype), H200, replace(RING, instruction=NAMES[dtype], producer=producer))


@on_host
@pytest.mark.parametrize("producer", [False, True])
def test_the_text_without_faults_is_right(producer):
    made = ring(producer=producer)
    assert not wrong(made, emit(made, H200, "cuda"), MODES)


FAULTS = {
    "no wait for a tile": (r"wait_tile\(filled \+ k0 % 4, \(k0/4\) % 2\);", ""),
    "a wait for the tile before": (r"wait_tile\(filled \+ k0 % 4, \(k0/4\) % 2\)", "wait_tile(filled + (k0 + 3) % 4, (k0 + 3) / 4 % 2 ^ 1)"),
    "the wrong phase": (r"\(k0/4\) % 2\);", "1 - (k0/4) % 2);"),
    "a phase that never turns": (r"\(k0/4\) % 2\);", "0);"),
    "no arrival": (r"expect_bytes\(filled \+ \(k0 \+ 2\) % 4, \d+\);", ""),
    "two arrivals": (r"(expect_bytes\(filled \+ \(k0 \+ 2\) % 4, \d+\);)", r"\1 \1"),
    "an arrival of all threads": (r"is_issuer<0>\(\)", "is_issuer<0>() || thread > 0"),
    "bytes too few": (r"expect_bytes\(filled \+ \(k0 \+ 2\) % 4, 32768\)", "expect_bytes(filled + (k0 + 2) % 4, 16384)"),
    "bytes of what lies within the tensor": (r"32768\)", "26624)"),
    "another barrier": (r"(copy_box_2\(B_shared \+ \(\(k0 \+ 2\) % 4\)\S*, B, filled \+ )\(k0 \+ 2\)", r"\1(k0 + 1)"),
    "barriers not started": (r"start_barriers\(filled, 4, 1\);", ""),
    "a barrier too few": (r"start_barriers\(filled, 4, 1\)", "start_barriers(filled, 3, 1)"),
    "a barrier of two arrivals": (r"start_barriers\(filled, 4, 1\)", "start_barriers(filled, 4, 2)"),
    "no barrier before a buffer is filled again": (r"__syncthreads\(\);(\s+if \(k0)", r"\1"),
    "a buffer filled one iteration early": (r"k0 \+ 2", "k0 + 3"),
    "products of two iterations left": (r"end_products<1>", "end_products<2>"),
    "a tile fewer": (r"k0 \+ 2 < 12", "k0 + 2 < 11"),
    "a tile more": (r"k0 \+ 2 < 12", "k0 + 2 < 13"),
    "a box at other columns": (r"j0\*128 \+ 64", "j0*128 + 56"),
    "coordinates exchanged": (r"(, A, \S+ \+ \(k0 \+ 2\) % 4), (\S+ \+ 128), (\S+)\)", r"\1, \3, \2)"),
    "a box in another buffer": (r"A_shared \+ \(\(k0 \+ 2\) % 4\)", "A_shared + ((k0 + 3) % 4)"),
    "maps exchanged": (r"copy_box_2\((A_shared[^,]*), A,", r"copy_box_2(\1, B,"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(17)
def test_a_fault_in_the_text_is_found(fault):
    pattern, replacement = FAULTS[fault]
    made = ring()
    assert wrong(made, seeded(emit(made, H200, "cuda"), pattern, replacement, count=0), MODES)


PRODUCER_FAULTS = {
    "no wait for a free buffer": (r"wait_tile\(freed \+ k0 % 4, 1 - \(k0/4\) % 2\);", ""),
    "a wait for the wrong phase of a free buffer": (r"1 - \(k0/4\) % 2", "(k0/4) % 2"),
    "a wait for another free buffer": (r"wait_tile\(freed \+ k0 % 4", "wait_tile(freed + (k0 + 1) % 4"),
    "nothing is free": (r"free_tile\(freed \+ \(k0 \+ 3\) % 4\);", ""),
    "a tile free while products read it": (
        r"if \(k0 >= 1\) \{\s+free_tile\(freed \+ \(k0 \+ 3\) % 4\);\s+\}", "free_tile(freed + k0 % 4);"
    ),
    "a tile free before its products": (
        r"(begin_products\(\);)([\s\S]*)if \(k0 >= 1\) \{\s+free_tile\(freed \+ \(k0 \+ 3\) % 4\);\s+\}",
        r"free_tile(freed + k0 % 4); \1\2",
    ),
    "another buffer is free": (r"free_tile\(freed \+ \(k0 \+ 3\) % 4\)", "free_tile(freed + (k0 + 2) % 4)"),
    "too few arrivals are waited for": (r"start_barriers\(freed, 4, 8\)", "start_barriers(freed, 4, 4)"),
    "too many arrivals are waited for": (r"start_barriers\(freed, 4, 8\)", "start_barriers(freed, 4, 9)"),
    "free buffers whose barriers are not started": (r"start_barriers\(freed, 4, 8\);", ""),
    "no wait for a tile": (r"wait_tile\(filled \+ k0 % 4, \(k0/4\) % 2\);", ""),
    "the wrong phase": (r"wait_tile\(filled \+ k0 % 4, \(k0/4\) % 2\);", "wait_tile(filled + k0 % 4, 1 - (k0/4) % 2);"),
    "no arrival": (r"expect_bytes\(filled \+ k0 % 4, \d+\);", ""),
    "bytes too few": (r"expect_bytes\(filled \+ k0 % 4, 32768\)", "expect_bytes(filled + k0 % 4, 16384)"),
    "the producer is a thread with products": (r"is_issuer<8>", "is_issuer<7>"),
    "the producer goes on": (r"return;", ""),
    "the producer begins too early": (r"if \(thread >= 256\)", "if (thread >= 224)"),
    "a tile fewer": (r"k0 < 12; \+\+k0\) \{(\s+wait_tile\(freed)", r"k0 < 11; ++k0) {\1"),
    "products of two iterations left": (r"end_products<1>", "end_products<2>"),
}


@on_host
@pytest.mark.parametrize("fault", PRODUCER_FAULTS)
@pytest.mark.every(17)
def test_a_fault_in_the_text_with_a_producer_is_found(fault):
    pattern, replacement = PRODUCER_FAULTS[fault]
    made = ring(producer=True)
    assert wrong(made, seeded(emit(made, H200, "cuda"), pattern, replacement, count=0), MODES)


MAPS = {
    "a side too short": lambda one: replace(one, box=(one.box[0], one.box[1] // 2)),
    "columns too few": lambda one: replace(one, extents=(one.extents[0] - 8, one.extents[1])),
    "a row too few": lambda one: replace(one, extents=(one.extents[0], one.extents[1] - 1)),
    "rows too near": lambda one: replace(one, strides=(one.strides[0] - 16,)),
    "wider elements": lambda one: replace(one, itemsize=4),
    "narrow columns": lambda one: replace(one, box=(32, one.box[1])),
}


def seeded_map(source, which, words):
    """The source launched with these words as a map of its only kernel."""
    (launch,) = source.launches
    maps = tuple(words if at == which else own for at, own in enumerate(launch.maps))
    return replace(source, launches=(replace(launch, maps=maps),))


@on_host
@pytest.mark.parametrize("fault", MAPS)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.every(7)
def test_a_fault_in_a_tensor_map_is_found(fault, which):
    made = ring()
    source, (kernel,) = emit(made, H200, "cuda"), lower(made, H200)
    assert wrong(made, seeded_map(source, which, MAPS[fault](kernel.maps[which][1]).words), MODES)


@on_host
def test_a_map_without_swizzle_is_found():
    made = ring()
    source = emit(made, H200, "cuda")
    own = source.launches[0].maps[0]
    assert wrong(made, seeded_map(source, 0, (own[0], own[1] & ~(3 << 13), *own[2:])), MODES)


def lacking(kernel, dropped):
    """The kernel without the statements of which ``dropped`` is true."""
    return replace(kernel, body=tuple(without(kernel.body, dropped)))


@pytest.mark.parametrize("node", [BeginProducts, EndProducts, WaitProducts, Barrier, StartBarriers, WaitTile])
@pytest.mark.parametrize("depth", [3, 4])
def test_a_kernel_without_a_wait_or_a_fence_is_refused(node, depth):
    made = planned(matmul(136, 456, 72), H200, replace(RING, depth=depth))
    (kernel,) = lower(made, H200)
    check_products(kernel)
    with pytest.raises(ProgramError, match="expected"):
        check_products(lacking(kernel, lambda one: isinstance(one, node)))


def test_a_kernel_without_the_barrier_behind_the_start_of_barriers_is_refused():
    (kernel,) = lower(ring(), H200)
    bare = [one for one in kernel.body if not isinstance(one, Barrier)]
    with pytest.raises(ProgramError, match=r"FillTile .* expected StartBarriers and a Barrier before it"):
        check_products(replace(kernel, body=tuple(bare)))


def test_a_kernel_without_the_barrier_before_a_buffer_is_filled_again_is_refused():
    (kernel,) = lower(ring(), H200)
    bare = [lacking(one, lambda one: isinstance(one, Barrier)) if isinstance(one, For) else one for one in kernel.body]
    with pytest.raises(ProgramError, match=r"FillTile .* expected a wait for products and a Barrier before it"):
        check_products(replace(kernel, body=tuple(bare)))


@pytest.mark.parametrize("node", [BeginProducts, EndProducts, WaitProducts, Barrier, StartBarriers, WaitTile])
def test_a_kernel_with_a_producer_that_lacks_a_wait_or_a_fence_is_refused(node):
    (kernel,) = lower(ring(producer=True), H200)
    check_products(kernel)
    with pytest.raises(ProgramError, match="expected"):
        check_products(lacking(kernel, lambda one: isinstance(one, node)))


@pytest.mark.parametrize("name, says", [("freed", "a wait for a free buffer before it"), ("filled", "WaitTile before it")])
def test_a_kernel_with_a_producer_waits_for_free_buffers_and_for_tiles(name, says):
    (kernel,) = lower(ring(producer=True), H200)
    with pytest.raises(ProgramError, match=f"expected {says}"):
        check_products(lacking(kernel, lambda one: isinstance(one, WaitTile) and one.pointer.name == name))


def changed(made, number=0, **fields):
    stage = made.stages[0]
    copies = tuple(replace(copy, **fields) if at == number else copy for at, copy in enumerate(stage.copies))
    return replace(made, stages=(replace(stage, copies=copies),))


def all_in_boxes(expression, plan):
    made = planned(expression, H200, replace(plan, boxes=False))
    stage = made.stages[0]
    return replace(made, stages=(replace(stage, copies=tuple(replace(one, boxes=True) for one in stage.copies)),))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: changed(ring(), boxes=False), "boxes is False, but not of every copy; expected the same of all"),
        (lambda: all_in_boxes(matmul(136, 460, 72), RING), r"its strides \[920\] are no multiples of 16 bytes; expected False"),
        (lambda: all_in_boxes(rg.einsum("mk,nk->mn", *2 * (T("A", (136, 456), "float16"),)), RING), "A has another use, too"),
        (lambda: all_in_boxes(matmul(136, 456, 72), replace(RING, depth=1)), "asynchronous False; expected False"),
        (
            lambda: all_in_boxes(matmul(136, 456, 72), MatrixPlan("mma", 2, 2, 2, 1, 2, 4)),
            "boxes is True, but mma multiplies them; expected False",
        ),
    ],
)
def test_what_no_copy_engine_can_do_is_refused(made, says):
    with pytest.raises(ProgramError, match=says):
        check(made(), H200)


def test_a_producer_without_boxes_is_refused():
    made = planned(matmul(136, 456, 72), H200, replace(RING, boxes=False))
    stage = made.stages[0]
    alone = replace(stage, compute=replace(stage.compute, producer=True))
    with pytest.raises(ProgramError, match=r"compute\.producer is True with 288 threads a block; expected copies in boxes"):
        check(replace(made, stages=(alone,)), H200)


def test_a_device_without_a_copy_engine_refuses_boxes():
    layers = tuple(replace(layer, box_extent=0) for layer in H200.layers)
    with pytest.raises(ProgramError, match="boxes is True, but h200 has no copy engine; expected False"):
        check(ring(), replace(H200, layers=layers))


def test_boxes_are_chosen_where_they_are_allowed_and_never_else():
    graph = canonicalize(matmul(4096, 4096, 4096, "bfloat16"))
    alone = BuildOptions(shapes=CodeShapes(producers=False))
    every = [construct(graph, H200, options, 1)[0].program.stages[0] for options in (BOXES, alone, COPIES)]
    assert [all(copy.boxes for copy in one.copies) for one in every] == [True, True, False]
    assert [one.compute.producer for one in every] == [True, False, False]
    seconds = [predict_stage(one, H200).seconds for one in every]
    assert seconds == sorted(seconds)


def test_a_program_with_boxes_and_its_launch_are_kept_as_they_are():
    made = ring()
    assert from_text(to_text(made)) == made
    launches_ = emit(made, H200, "cuda").launches
    assert launches_of(launches(emit(made, H200, "cuda"))) == launches_ and len(launches_[0].maps[0]) == WORDS


def test_opencl_c_has_no_copy_engine_and_says_so():
    with pytest.raises(DeviceError, match="opencl has no spelling for StartBarriers; expected a CUDA target"):
        emit(ring(), H200, "opencl")


@compiled
@pytest.mark.parametrize("dtype, turned", [("float16", False), ("bfloat16", False), ("bfloat16", True), ("int8", True)])
def test_first_choices_are_small_and_spill_nothing(dtype, turned):
    graph = canonicalize(matmul(4096, 4096, 4096, dtype, transpose_b=turned))
    made = construct(graph, H200, BOXES, 1)[0].program
    assert in_boxes(made)
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    loops = main_loops(done.code)
    if loops is not None:
        (loop,) = loops.values()
        products = loop.get("HGMMA", 0) + loop.get("IGMMA", 0)
        assert loop["WARPGROUP"] == 2 and products in (4, 8) and not {"LDGSTS.128", "UTMALDG"} & set(loop)
        assert sum(loop.values()) <= 70 * products / 4


@compiled
@pytest.mark.parametrize("producer", [False, True])
def test_one_thread_starts_copies_without_a_loop_over_lanes(producer):
    loops = main_loops(nvrtc.compile_cuda(emit(ring(producer=producer), H200, "cuda").text, "sm_90a").code, ("UTMALDG",))
    if loops is not None:
        loop = loops["contraction"]
        assert loop["UTMALDG"] == 3 * loop["ELECT"]


@compiled
def test_what_a_block_holds_is_what_the_model_says():
    made = planned(gated(136, 264, 200), H200, replace(RING, depth=3))
    source = emit(made, H200, "cuda")
    assert source.launches[0].dynamic_bytes == managed_bytes(made.stages[0], H200)["shared"]
    assert source.launches[0].dynamic_bytes == predict_stage(made.stages[0], H200).shared_bytes
