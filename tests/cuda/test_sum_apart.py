"""Products both of whose factors have rows of any length: the copy engine brings both by rows 8 apart, and threads bring
the first one to the products in registers.  The CUDA text, run here in each mode of lateness, and the interpreter agree,
in values and in traffic; seeded faults are found."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram
from rollergen.lower.matrix_ir import WaitFactors
from rollergen.lower.stage import lower
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import assert_traffic, assert_values, small_integers
from tests.cuda.beside import H200, MODES, NAMES, assert_agree, assert_refused_without, compiled, on_host, wrong
from tests.cuda.host import seeded
from tests.cuda.test_programs import executed
from tests.cuda.test_rows_apart import FEW, PLAN, STORING
from tests.matrices import T, gated, matmul, planned

CASES = {
    "threads store": (lambda: matmul(137, 265, 133), PLAN),
    "the engine stores": (lambda: matmul(137, 265, 135), STORING),
    "even rows of the first factor": (lambda: matmul(137, 264, 135), STORING),
    "two instructions each": (lambda: matmul(265, 137, 135), replace(STORING, fm=2, fn=16)),
    "instructions side by side": (lambda: matmul(71, 137, 263), replace(STORING, gm=1, gn=2, fn=16)),
    "two buffers": (lambda: matmul(137, 265, 135), replace(STORING, depth=2)),
    "no producer": (lambda: matmul(137, 265, 135), replace(STORING, producer=False)),
    "persistent": (lambda: matmul(393, 265, 135), replace(STORING, persistent=True, fn=16)),
    "persistent clusters": (lambda: matmul(509, 265, 263), replace(STORING, cluster=2, persistent=True, fn=16)),
    "bfloat16": (lambda: matmul(137, 265, 135, "bfloat16"), replace(STORING, instruction="wgmma_bf16", fn=16)),
    "two products of one factor": (lambda: gated(137, 265, 135), PLAN),
    "eight rows": (lambda: matmul(8, 265, 135), STORING),
    "added to what lies in odd rows": (lambda: rg.ops.add(matmul(137, 265, 135), T("C", (137, 135), "float16")), STORING),
    "a bias of an odd number": (
        lambda: rg.ops.add(matmul(137, 265, 135, "bfloat16"), T("bias", (135,), "bfloat16")),
        replace(STORING, instruction="wgmma_bf16", fn=16),
    ),
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
    assert all(copy.apart == 8 and copy.boxes for copy in stage.copies)
    source = emit(made, FEW, "cuda")
    assert "B_row_7, " in source.text and "multiply_rn_m64" in source.text
    assert bool(stage.block_order.cluster) == ("cluster" in name)
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
def test_random_products_of_odd_rows_agree_in_every_mode(number):
    random = np.random.default_rng(number)
    m, k, n = (int(random.integers(8, most)) for most in (420, 300, 320))
    dtype = ("float16", "bfloat16")[number % 2]
    tiles = ((1, 8, 2, 2), (2, 8, 1, 2), (1, 16, 2, 1), (1, 24, 1, 1))[number // 2 % 4]
    plan = replace(STORING, instruction=NAMES[dtype], depth=int(random.integers(3, 5)), box_stores=number % 3 > 0)
    plan = replace(plan, **dict(zip(("fm", "fn", "gm", "gn"), tiles, strict=True)))
    plan = replace(plan, persistent=number % 4 == 0, producer=number % 4 < 3, cluster=2 * (number % 4 == 1))
    expression = matmul(m, k + 65, n | 1, dtype)
    made = planned(expression, FEW, plan)
    assert all(copy.apart for copy in made.stages[0].copies)
    assert_agree(expression, made, emit(made, FEW, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("mode", MODES)
def test_what_lies_behind_a_row_reaches_no_other_row_and_column(mode):
    made = planned(matmul(75, 265, 71), FEW, STORING)
    arrays = small_integers(made)
    arrays["A"][[9, 64]] = np.nan
    arrays["B"][[3, 200], 0] = np.nan
    got = np.isnan(executed(made, emit(made, FEW, "cuda"), arrays, mode)["out"])
    wanted = np.zeros_like(got)
    wanted[[9, 64]] = wanted[:, 0] = True
    assert np.array_equal(got, wanted)


@on_host
def test_products_of_odd_extents_copy_nothing():
    expression = matmul(521, 265, 521)
    found = [one.program for one in construct(canonicalize(expression), H200, top_k=40)]
    made = next(one for one in found if one.stages[-1].copies and all(copy.apart for copy in one.stages[-1].copies))
    assert len(made.stages) == 1
    arrays = small_integers(made)
    for mode in MODES[:2]:
        got = executed(made, emit(made, H200, "cuda"), arrays, mode)
        assert_values(expression, made, got, arrays, None, 2.0**-11)


FAULTS = {
    "halves of a word exchanged": ("0x5410", "0x1054"),
    "one piece twice": (r"first \^ piece \* 8", "first"),
    "pieces as they were before the swizzle": (r"(const int column = \(\(thread % 4\)\*2\)) \^ [^;]*", r"\1"),
    "one row twice": (r"row \* far", "0"),
    "the step after": (r"multiply_(rn.*)acc, a\[k1\]", r"multiply_\1acc, a[k1 ^ 1]"),
    "rows of the other factor as they lie": (r"(B_row_1, [^;]*, )k0\*8\)", r"\1k0*64)"),
    "changed while products read them": (r"wait_factors\(\);", ""),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_fault_in_the_text_is_found(fault):
    made = planned(matmul(200, 265, 263), FEW, replace(STORING, fn=24, persistent=True))
    source = emit(made, FEW, "cuda")
    assert not wrong(made, source, MODES[:1])
    assert wrong(made, seeded(source, *FAULTS[fault], count=0), MODES)


def test_a_kernel_that_does_not_wait_for_factors_is_refused():
    assert_refused_without(WaitFactors, *lower(planned(matmul(137, 265, 135), FEW, STORING), FEW))


def changed(number, **fields):
    """A product with one of its copies changed."""
    made = planned(matmul(137, 265, 136), H200, PLAN) if number == 1 else planned(matmul(137, 265, 135), H200, PLAN)
    (stage,) = made.stages
    copies = [replace(copy, **fields) if at == number else copy for at, copy in enumerate(stage.copies)]
    return replace(made, stages=(replace(stage, copies=tuple(copies)),))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: changed(0, apart=0), "are no multiples of 16 bytes"),
        (lambda: changed(1, apart=4), "apart is 4, boxes True; expected 8"),
        (lambda: planned(matmul(137, 265, 135), H200, replace(PLAN, steps=8, depth=3)), "tiles of (128, 128)"),
    ],
)
def test_what_is_not_apart_along_the_sum_is_refused(made, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        check(made(), H200)


@pytest.mark.parametrize(
    ("extra", "most"), [((0, 1, 0), 1.1), ((1, 1, 1), 1.2)], ids=["one column more", "one of each more"]
)
def test_one_element_more_is_predicted_to_cost_little(extra, most):
    m, n, k = (extent + one for extent, one in zip((2880, 1344, 2560), extra, strict=True))
    seconds = lambda m, n, k: construct(canonicalize(matmul(m, k, n)), H200, top_k=1)[0].seconds
    assert seconds(m, n, k) <= most * seconds(2880, 1344, 2560)


def test_threads_read_as_much_of_the_block_s_layer_as_products_would():
    """They issue loads and permutations, and wait for what they read; what passes through the layer is the same."""
    plan = replace(STORING, fn=24, depth=4)
    held, read = (predict_stage(planned(matmul(4096, 640, n), H200, plan).stages[0], H200) for n in (2175, 2176))
    limits = [{one.name: one.seconds for one in each.limiters} for each in (read, held)]
    assert limits[0]["shared path"] == pytest.approx(limits[1]["shared path"])
    assert limits[0]["issue"] < limits[1]["issue"] and limits[0]["latency"] < limits[1]["latency"]
    assert held.registers == read.registers + 32  # of 16 elements of two rows, and as many as they are multiplied


@compiled
def test_it_compiles_with_a_bias_of_an_odd_number():
    bias = T("bias", (4097,), "float16")
    made = construct(canonicalize(rg.ops.add(matmul(4097, 4097, 4097), bias)), H200, top_k=1)[0].program
    assert made.stages[-1].store.boxes and all(copy.apart for copy in made.stages[-1].copies)
    assert nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch).kernels


def test_neighbours_that_are_not_written_together_are_refused():
    made = planned(matmul(137, 265, 135), FEW, STORING)
    (stage,) = made.stages
    alone = replace(stage, store=replace(stage.store, vector=1))
    with pytest.raises(ProgramError, match="written 1 at once, and threads have 2 neighbours"):
        check(replace(made, stages=(alone,)), FEW)


@compiled
@pytest.mark.parametrize("plan", [replace(STORING, fn=24), replace(STORING, fn=32, producer=False)], ids=["192", "256"])
def test_it_compiles_without_spills_and_its_products_run_beside_it(plan):
    made = planned(matmul(4097, 4097, 4097), H200, replace(plan, depth=4))
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    every = histogram(done.code)
    if every is not None:  # one after the other each would have its own wait
        counts = every["contraction"]
        assert counts["HGMMA"] == counts["WARPGROUP"] == counts["LDS.128"] == 4 and counts["PRMT"] == 16
