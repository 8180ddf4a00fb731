"""Residuals and biases of matrix products, read in vectors as wide as results are stored in: all readers agree, faults
are found, and the machine code reads 16 bytes at once."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.serial import from_text, to_text
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import assert_traffic, assert_values, small_integers
from tests.cuda.beside import MODES, compiled, on_host
from tests.cuda.host import HostError, seeded
from tests.cuda.test_programs import executed
from tests.matrices import T, gated, matmul, planned

ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-7}


def residual(product, dtype="float16", name="R"):
    return rg.ops.add(product, T(name, product.shape, dtype))


def biased(m, k, n, dtype="float16"):
    product = rg.ops.bias_add(matmul(m, k, n, dtype), T("bias", (n,), dtype), axis=-1)
    return rg.ops.relu(residual(product, dtype))


def of_batches(dtype="float16"):
    a, b = T("A", (3, 40, 48), dtype), T("B", (3, 48, 64), dtype)
    return rg.ops.mul(residual(rg.ops.batch_matmul(a, b), dtype), T("scale", (3, 1, 64), dtype))


def turned(m, k, n, dtype="float16"):
    """A residual along the rows and one that lies turned, of which no vector of results has neighbours."""
    other = rg.ops.permute(T("turned", (n, m), dtype), (1, 0))
    return rg.ops.add(residual(matmul(m, k, n, dtype), dtype), other)


BOXED = MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3, boxes=True, producer=True)
CASES = {
    "mma": ("a100", biased(72, 48, 64), MatrixPlan("mma", 1, 4, 1, 2, 2), 8),
    "mma, bfloat16": ("h200", biased(75, 37, 72, "bfloat16"), MatrixPlan("mma_bf16", 2, 8, 1, 1, 2, 2), 8),
    "mma, few tiles": ("a100", biased(72, 48, 64), MatrixPlan("mma", 1, 2, 1, 2, 2), 2),
    "mma, pairs across rows": ("a100", biased(40, 64, 130), MatrixPlan("mma", 2, 8, 1, 2, 2, 2), 2),
    "mma, batches": ("a100", of_batches(), MatrixPlan("mma", 1, 4, 1, 2, 2), 8),
    "mma, gated": ("a100", residual(gated(40, 48, 64)), MatrixPlan("mma", 1, 4, 1, 1, 2), 8),
    "mma, int8": (
        "a100", rg.ops.cast(rg.ops.add(matmul(75, 32, 64, "int8"), T("R", (75, 64), "int8")), "int8"),
        MatrixPlan("mma_s8", 1, 4, 2, 1, 1), 8,
    ),
    "tf32": ("a100", biased(72, 48, 64, "float32"), MatrixPlan("mma_tf32", 1, 4, 1, 2, 2), 2),
    "wmma": ("v100", biased(72, 48, 64), MatrixPlan("wmma", 1, 2, 2, 1, 1), 4),
    "wgmma": ("h200", biased(136, 64, 136), MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3), 8),
    "wgmma, bfloat16": ("h200", biased(72, 48, 64, "bfloat16"), MatrixPlan("wgmma_bf16", 1, 8, 1, 1, 4, 3), 8),
    "wgmma, boxes": ("h200", biased(136, 264, 136), BOXED, 8),
    "wgmma, persistent": ("h200", biased(392, 264, 136), replace(BOXED, persistent=True), 8),
}  # fmt: skip


def made_of(name):
    device_name, expression, plan, width = CASES[name]
    device = load_device(device_name)
    if plan.persistent:
        device = replace(device, units=2)
    return device, expression, planned(expression, device, plan), width


def agree(device, expression, made, mode=0):
    arrays, source = small_integers(made), emit(made, device, "cuda")
    done = interpret(made, arrays, device)
    got = executed(made, source, arrays, mode)
    assert all(np.array_equal(got[key], done.outputs[key]) for key in done.outputs)
    assert_values(expression, made, got, arrays, None, ROUNDED.get(made.outputs[0].dtype, 0.0))
    return source, done


@pytest.mark.every(7)
@on_host
@pytest.mark.parametrize("name", CASES)
def test_all_readers_agree_on_what_is_read_in_vectors(name):
    device, expression, made, width = made_of(name)
    (stage,) = made.stages
    assert stage.store.vector_loads and stage.store.vector == width
    source, done = agree(device, expression, made, MODES[1])
    assert "r_beside[e" in source.text
    assert_traffic(made, done.traffic, device, {})
    apart = replace(made, stages=(replace(stage, store=replace(stage.store, vector_loads=False)),))
    check(apart, device)
    source, same = agree(device, expression, apart)
    assert "beside" not in source.text and same.traffic == done.traffic


@on_host
def test_a_residual_that_lies_turned_is_read_element_by_element_beside_one_that_does_not():
    expression, device = turned(72, 48, 64), load_device("a100")
    made = planned(expression, device, MatrixPlan("mma", 1, 4, 1, 2, 2))
    agree(device, expression, made)
    assert made.stages[0].store.vector == 1 and not made.stages[0].store.vector_loads


@on_host
def test_results_of_multiply_adds_can_read_in_vectors_too():
    device, expression = load_device("v100"), biased(75, 37, 64, "float32")
    made = next(
        one for one in rg.construct(expression, "v100", top_k=5) if one.stages[0].store.vector > 1
    )  # fmt: skip
    (stage,) = made.stages
    wide = replace(made, stages=(replace(stage, store=replace(stage.store, vector_loads=True)),))
    check(wide, device)
    source, _ = agree(device, expression, wide)
    assert f"*(const float{stage.store.vector} *)(R_at" in source.text


FAULTS = {
    "another element": (r"r_beside\[e\]", "r_beside[e ^ 1]"),
    "the residual of the next group": (r"(r_beside = .*\(R_at \+ .*)\*32\)\)", r"\1*32 + 8))"),
    "the bias of other columns": (r"\(bias_at \+ i(\d+)\*32\)", r"(bias_at + i\1*24)"),
    "a row too few": (r"(r_beside = [^?]*)< 75", r"\1< 74"),
    "the fragment's place": (r"(R_at = R \+ .*)\*8;", r"\1*2;"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_seeded_fault_is_found(fault):
    device, _, made, _ = made_of("mma, bfloat16")
    arrays = small_integers(made)
    wanted = interpret(made, arrays, device).outputs["out"]
    changed = seeded(emit(made, device, "cuda"), *FAULTS[fault])
    try:
        got = executed(made, changed, arrays)["out"]
    except (HostError, AssertionError):  # of an access that is not aligned, or beyond an array
        return
    assert not np.array_equal(got, wanted)


def read_at_once(made, **store):
    (stage,) = made.stages
    return replace(made, stages=(replace(stage, store=replace(stage.store, **store)),))


@pytest.mark.parametrize(
    "expression",
    [
        lambda: matmul(72, 48, 64),
        lambda: residual(matmul(72, 48, 60), "float16"),
        lambda: rg.ops.add(matmul(72, 48, 64), rg.ops.permute(T("turned", (64, 72), "float16"), (1, 0))),
        lambda: rg.ops.add(matmul(72, 48, 64), T("of_rows", (72, 1), "float16")),
    ],
    ids=["nothing to read", "vectors of 4 at most", "a turned one", "one of rows"],
)
def test_vectors_that_cannot_be_read_are_refused(expression):
    device = load_device("a100")
    made = planned(expression(), device, MatrixPlan("mma", 1, 4, 1, 2, 2))
    wide = read_at_once(made, vector=8 if made.stages[0].store.vector == 8 else 1, vector_loads=True)
    with pytest.raises(ProgramError, match=re.escape("store.vector_loads with vectors of")):
        check(wide, device)


@pytest.mark.parametrize("device_name, instruction", [("a100", "mma"), ("h200", "wgmma")])
def test_vectors_are_predicted_to_take_fewer_wavefronts_and_instructions(device_name, instruction):
    device = load_device(device_name)
    made = planned(residual(matmul(4096, 64, 4096)), device, MatrixPlan(instruction, 1, 16, 2, 2, 4, 3))
    wide, apart = (
        {one.name: one.seconds for one in predict_stage(each.stages[0], device).limiters}
        for each in (made, read_at_once(made, vector_loads=False))
    )  # fmt: skip
    assert wide["shared path"] < apart["shared path"] and wide["issue"] < apart["issue"]


def test_the_switch_leaves_them_out_and_programs_are_kept_as_they_are():
    graph = canonicalize(biased(512, 256, 512))
    shapes = CodeShapes(vector_loads=False)
    stages = [
        rg.construct(biased(512, 256, 512), "a100", top_k=1, options=options)[0]
        for options in (rg.BuildOptions(), rg.BuildOptions(shapes=shapes))
    ]  # fmt: skip
    assert graph.tensor_ops and [one.stages[0].store.vector_loads for one in stages] == [True, False]
    assert from_text(to_text(stages[0])) == stages[0]


@compiled
@pytest.mark.parametrize("device_name, instruction", [("a100", "mma"), ("a100", "mma_bf16"), ("h200", "wgmma")])
def test_residuals_are_loaded_by_16_bytes_and_nothing_spills(device_name, instruction):
    device, dtype = load_device(device_name), "bfloat16" if "bf16" in instruction else "float16"
    made = planned(residual(matmul(4096, 512, 4096, dtype), dtype), device, MatrixPlan(instruction, 1, 16, 2, 2, 4, 3))
    loads = []
    for one in (made, read_at_once(made, vector_loads=False)):
        done = nvrtc.compile_cuda(emit(one, device, "cuda").text, device.targets[0].arch)
        assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
        loads.append(histogram(done.code))
    if loads[0] is not None:
        wide, apart = (one["contraction"] for one in loads)
        assert wide["LDG.128"] == wide["STG.128"] == apart["STG.128"] and "LDG" not in wide
        assert apart["LDG"] == 8 * wide["LDG.128"] and "LDG.128" not in apart
