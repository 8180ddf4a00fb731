"""Factors and results whose rows have any length, by a copy engine (TMA) that brings and stores rows 8 apart: the CUDA
text, run here in each mode of lateness, and the interpreter agree, in values and in traffic; seeded faults are found."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr import aligned_rows
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram
from rollergen.lower.stage import lower
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict, predict_stage
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, assert_values, small_integers
from tests.cuda.beside import H200, MODES, NAMES, assert_agree, compiled, on_host, wrong
from tests.cuda.host import seeded
from tests.cuda.test_boxes import seeded_map
from tests.cuda.test_programs import executed
from tests.matrices import matmul, planned

PLAN = MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3, boxes=True, producer=True, apart=True)
STORING = replace(PLAN, box_stores=True)
FEW = replace(H200, units=2)
CASES = {
    "threads store": (lambda: matmul(137, 265, 136), PLAN),
    "the engine stores": (lambda: matmul(137, 265, 136), STORING),
    "odd rows of results": (lambda: matmul(137, 264, 135, transpose_b=True), STORING),
    "odd rows of results that threads store": (lambda: matmul(137, 261, 136), replace(PLAN, fn=16, gm=1, gn=2)),
    "even rows": (lambda: matmul(139, 266, 136), STORING),
    "two instructions each": (lambda: matmul(265, 137, 136), replace(STORING, fm=2, fn=16)),
    "instructions side by side": (lambda: matmul(71, 137, 264), replace(STORING, gm=1, gn=2, fn=16)),
    "no producer": (lambda: matmul(137, 265, 136), replace(STORING, producer=False)),
    "persistent": (lambda: matmul(393, 265, 136), replace(STORING, persistent=True, fn=16)),
    "persistent clusters": (lambda: matmul(509, 265, 264), replace(STORING, cluster=2, persistent=True, fn=16)),
    "bfloat16": (lambda: matmul(137, 265, 136, "bfloat16"), replace(STORING, instruction="wgmma_bf16", fn=16)),
    "float32": (lambda: matmul(137, 132, 133, "float32", transpose_b=True), replace(STORING, instruction="wgmma_tf32")),
    "eight rows": (lambda: matmul(8, 265, 136), STORING),
    "results cast": (lambda: rg.ops.cast(matmul(137, 265, 136), "float32"), STORING),
}  # fmt: skip


def made_of(name):
    expression, plan = CASES[name]
    expression = expression()
    return expression, planned(expression, FEW, plan)


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(5)
def test_the_text_computes_what_the_interpreter_does_in_every_mode(name):
    expression, made = made_of(name)
    (stage,) = made.stages
    assert [copy.apart for copy in stage.copies] == [8, 0] and all(copy.boxes for copy in stage.copies)
    source = emit(made, FEW, "cuda")
    assert bool(stage.store.boxes) == CASES[name][1].box_stores == ("store_box_2(out_row_7" in source.text)
    assert "copy_box_2(" in source.text and "A_row_7, " in source.text
    assert_agree(expression, made, source, MODES)
    assert from_text(to_text(made)) == made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(5)
def test_counted_traffic_is_the_closed_form(name):
    _, made = made_of(name)
    assert_traffic(made, interpret(made, small_integers(made), FEW).traffic, FEW, {})


@on_host
@pytest.mark.parametrize("number", range(12))
@pytest.mark.every(5)
def test_random_products_agree_in_every_mode(number):
    random = np.random.default_rng(number)
    m, k = (int(random.integers(8, 420)) for _ in range(2))
    n = int(random.integers(1, 40)) * 8
    dtype = ("float16", "bfloat16")[number % 2]
    tiles = ((1, 8, 2, 2), (2, 8, 1, 2), (1, 16, 2, 1), (1, 24, 1, 1))[number // 2 % 4]
    plan = MatrixPlan(NAMES[dtype], *tiles, 4, int(random.integers(3, 5)), boxes=True, apart=True)
    plan = replace(plan, box_stores=number % 3 > 0)
    expression = matmul(m, k + 128, n, dtype)
    made = planned(expression, FEW, replace(plan, persistent=number % 4 == 0, producer=number % 4 < 3))
    assert made.stages[0].copies[0].apart
    assert_agree(expression, made, emit(made, FEW, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("mode", MODES)
def test_what_lies_behind_a_row_reaches_no_other_row(mode):
    """Boxes end with their rows: of what follows, zeros times NaN would be NaN."""
    made = planned(matmul(75, 265, 72), FEW, STORING)
    arrays = small_integers(made)
    arrays["A"][[9, 64]] = np.nan
    got = executed(made, emit(made, FEW, "cuda"), arrays, mode)["out"]
    assert np.flatnonzero(np.isnan(got).any(axis=1)).tolist() == [9, 64] and np.isnan(got[[9, 64]]).all()


def test_each_map_knows_every_eighth_row_up_to_its_end():
    (kernel,) = lower(planned(matmul(137, 265, 136), FEW, STORING), FEW)
    maps = dict(kernel.maps)
    assert len(maps) == 8 + 1 + 8  # of A, B and the results
    for which in range(8):
        one = maps[f"A_row_{which}" if which else "A"]
        assert one.extents == ((which + 1) * 265, len(range(which, 137, 8)))
        assert one.strides == (8 * 265 * 2,) and one.box == (64, 8)
    assert kernel.arguments.count("A") == kernel.arguments.count("out") == 8 and kernel.arguments.count("B") == 1


@on_host
@pytest.mark.parametrize("on", [H200])
def test_products_of_odd_extents_may_copy_the_other_factor_alone(on, monkeypatch):
    monkeypatch.setattr(aligned_rows, "REUSE", 1)
    expression = matmul(521, 265, 521)
    found = [one.program for one in construct(canonicalize(expression), on, top_k=200)]
    kinds = {one: [copy.apart for copy in one.stages[-1].copies] for one in found if one.stages[-1].store.boxes}
    made = next(one for one, kind in kinds.items() if kind == [8, 0])
    assert len(made.stages) == 2 and made.stages[-1].op.where  # no results behind the rows
    assert_traffic(made, interpret(made, small_integers(made), on).traffic, on, {})
    arrays = small_integers(made)
    for mode in MODES[:2]:
        got = executed(made, emit(made, on, "cuda"), arrays, mode)
        assert_values(expression, made, got, arrays, None, 2.0**-11)


FAULTS = {
    "the row after": (r"k0\*64 \+ 530", "k0*64 + 795"),
    "the first map for all": (r"A_row_\d, filled", "A, filled"),
    "no row further": (r"k0\*64 \+ 265, ", "k0*64, "),
    "rows that are neighbours": (r"(A_row_1, [^;]*, )i0\*16\)", r"\1i0*128)"),
    "the second half where the first one lies": (r"(A_row_1, [^;]*, i0\*16) \+ 8\)", r"\1)"),
    "results of the row after": (r"store_box_2\(out_row_4", "store_box_2(out_row_5"),
    "results in the order of rows": (r"(results_at = results .*)i2\*1024", r"\1i2*128"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_fault_in_the_text_is_found(fault):
    made = planned(matmul(200, 265, 264), FEW, replace(STORING, fn=32, persistent=True))
    source = emit(made, FEW, "cuda")
    assert not wrong(made, source, MODES[:1])
    assert wrong(made, seeded(source, *FAULTS[fault], count=0), MODES)


@on_host
@pytest.mark.parametrize("which", ["A_row_1", "out_row_1"])
def test_a_map_that_goes_on_behind_its_row_is_found(which):
    """Of a factor what follows would be multiplied, of results it would be written."""
    sizes = (137, 201, 136) if which == "A_row_1" else (137, 200, 135)
    made = planned(matmul(*sizes, transpose_b=which == "out_row_1"), FEW, STORING)
    source, (kernel,) = emit(made, FEW, "cuda"), lower(made, FEW)
    at = [pointer.name for pointer in kernel.parameters].index(which)
    one, arrays = dict(kernel.maps)[which], small_integers(made)
    longer = replace(one, extents=(one.extents[0] + 64, one.extents[1]))
    arrays["A"][2] = np.nan
    got = executed(made, seeded_map(source, at, longer.words), arrays, MODES[0])["out"]
    wanted = interpret(made, arrays, FEW).outputs["out"]
    assert not np.array_equal(got, wanted, equal_nan=True)


def changed(**fields):
    """The product with its first copy changed."""
    made = planned(matmul(137, 265, 136), H200, PLAN)
    (stage,) = made.stages
    return replace(made, stages=(replace(stage, copies=(replace(stage.copies[0], **fields), *stage.copies[1:])),))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: changed(apart=0), "are no multiples of 16 bytes"),
        (lambda: changed(apart=4), "apart is 4, boxes True; expected 8"),
        (lambda: changed(boxes=False), "boxes is"),
    ],
)
def test_what_is_no_row_apart_is_refused(made, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        check(made(), H200)


def frames(count, hop, window, columns):
    """Windows of a signal that overlap, times a matrix."""
    x, w = rg.tensor("A", (count * hop + window,), "float16"), rg.tensor("B", (window, columns), "float16")
    k = rg.reduce_axis("k", window)
    return rg.compute((count, columns), lambda i, j: rg.sum(x[i * hop + k] * w[k, j], k))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (lambda: matmul(7, 265, 136), "fewer rows than boxes have"),
        (lambda: frames(137, 101, 264, 136), "rows that overlap do not end where the next one begins"),
        (lambda: frames(137, 1, 264, 136), "rows an element apart"),
        (lambda: matmul(137, 265, 135, transpose_b=True), "the other factor's rows along the sum are no multiples"),
        (lambda: matmul(137, 265, 136, transpose_a=True), "rows along the sum"),
    ],
)
def test_other_products_are_as_they_are_without(expression, why):
    made = planned(expression(), H200, STORING)
    assert made == planned(expression(), H200, replace(STORING, apart=False)), why
    assert not any(copy.apart for copy in made.stages[0].copies)


def test_the_names_of_axes_decide_nothing():
    a, b, u = rg.tensor("A", (137, 265), "float16"), rg.tensor("B", (265, 136), "float16"), rg.reduce_axis("a", 265)
    product = rg.compute((137, 136), lambda z, y: rg.sum(a[z, u] * b[u, y], u), name="out")
    (stage,) = planned(product, H200, STORING).stages
    assert [copy.apart for copy in stage.copies] == [8, 0] and stage.store.boxes


@pytest.mark.parametrize(("extra", "most"), [((0, 0, 1), 1.1), ((0, 1, 0), 1.25)])
def test_one_element_more_is_predicted_to_cost_little(extra, most):
    m, n, k = (extent + one for extent, one in zip((4096, 2176, 640), extra, strict=True))
    seconds = lambda m, n, k: construct(canonicalize(matmul(m, k, n)), H200, top_k=1)[0].seconds
    assert seconds(m, n, k) <= most * seconds(4096, 2176, 640)


def test_boxes_are_more_and_the_engine_s_traffic_in_the_block_s_layer_as_much():
    """Eight rows a box: threads issue more of them; what they write and read is the same."""
    even, odd = (
        planned(matmul(4096, 640, 2176), H200, replace(STORING, fn=32, depth=4, apart=apart)) for apart in (False, True)
    )
    limits = [{one.name: one.seconds for one in predict_stage(made.stages[0], H200).limiters} for made in (even, odd)]
    assert limits[0]["shared path"] == pytest.approx(limits[1]["shared path"])
    assert limits[0]["issue"] < limits[1]["issue"] < 2 * limits[0]["issue"]
    assert predict(odd, H200).seconds == pytest.approx(predict(even, H200).seconds, rel=0.02)


@compiled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_compiles_without_spills_to_as_many_copies_as_boxes(dtype):
    plan = replace(STORING, instruction=NAMES[dtype], fn=32, depth=4)
    made = planned(matmul(4097, 4097, 4096, dtype), H200, plan)
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    every = histogram(done.code)
    if every is not None:
        counts = every["contraction"]
        assert counts["UTMALDG"] == 16 + 4 and counts["UTMASTG"] == 4 * 8  # of A, B; four panels of results
