"""Asynchronous copies: the CUDA text, run here, and the interpreter agree; each fault seeded into the text is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.emit.cuda import STATIC_BYTES
from rollergen.errors import ProgramError
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram
from rollergen.measure.compile_report import compile_report
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from tests.agreement.readers import device, small_integers
from tests.cuda.host import HostError, compiler, run, seeded
from tests.programs import gpu_matmul

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
A100 = device("a100")


def matmul(m=70, n=68, k=37, depth=3):
    return gpu_matmul(m, n, k, depth=depth, asynchronous=True)


def product(program, source, reverse=False):
    arrays = small_integers(program)
    whole = {b.name: np.full(b.elements, np.nan, np.float32) for b in program.buffers()}
    whole |= {name: array.reshape(-1) for name, array in arrays.items()}
    output = program.outputs[0]
    return run(source, whole, reverse).arrays[output.name].reshape(output.shape), arrays["A"] @ arrays["B"]


def with_copies(program, *changes):
    """The program with its first copies changed."""
    stage = program.stages[0]
    copies = (*(replace(c, **change) for c, change in zip(stage.copies, changes, strict=False)),)
    return replace(program, stages=(replace(stage, copies=(*copies, *stage.copies[len(copies) :])),))


@needs_compiler
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@pytest.mark.parametrize("k", [5, 37])  # fewer tiles than buffers, and more; the last one ragged
@pytest.mark.every(11)
def test_the_text_and_the_interpreter_compute_the_definition_at_any_depth(depth, k):
    program = matmul(k=k, depth=depth)
    check(program, A100)
    got, wanted = product(program, emit(program, A100, "cuda"), reverse=depth % 2 == 1)
    assert np.array_equal(got, wanted)
    arrays = small_integers(program)
    assert np.array_equal(interpret(program, arrays, A100).outputs["C"], arrays["A"] @ arrays["B"])


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("fault", "with_"),
    [
        (r"wait_copies<1>\(\);", ""),
        (r"wait_copies<1>\(\);", "wait_copies<2>();"),
        (r"(        )end_copies\(\);", r"\1"),  # in the loop: one group then holds two tiles
        (r"(wait_copies<1>\(\);\n *)__syncthreads\(\);", r"\1"),
        (r" \? 16 : 0", " ? 12 : 0"),
    ],
)
@pytest.mark.every(11)
def test_a_fault_in_the_text_is_found(fault, with_, reverse):
    program = matmul(k=61)
    broken = seeded(emit(program, A100, "cuda"), fault, with_)
    got, wanted = product(program, broken, reverse)
    assert not np.array_equal(got, wanted)


@needs_compiler
def test_a_misaligned_copy_ends_the_run():
    program = matmul(n=64, k=32)
    broken = seeded(emit(program, A100, "cuda"), r"copy_async_16\((\w*shared\w*)", r"copy_async_16(\1 + 1")
    with pytest.raises(HostError, match="misaligned"):
        product(program, broken)


def test_the_same_program_in_opencl_copies_through_registers():
    text = emit(matmul(), A100, "opencl").text
    assert "copy_async" not in text and "wait_copies" not in text


@pytest.mark.skipif(not nvrtc.is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_compiler_makes_copies_past_the_registers(arch):
    program = matmul(128, 128, 512)
    compiled = nvrtc.compile_cuda(emit(program, A100, "cuda").text, arch)
    assert compiled.kernels[0].stack_bytes == 0
    assert compiled.kernels[0].shared_bytes == predict_stage(program.stages[0], A100).shared_bytes
    counts = histogram(compiled.code)
    if counts is not None:
        found = counts["matmul"]
        assert found.get("LDGSTS", 0) + found.get("LDGSTS.128", 0) > 0 and not any(
            name.startswith("LDG") and not name.startswith(("LDGSTS", "LDGDEPBAR")) for name in found
        )


def limiter(program, name, spec=A100):
    return {x.name: x for x in predict_stage(program.stages[0], spec).limiters}[name].clocks


def late(program, spec=A100):
    """Clocks of what a block that has its unit for itself waits for tiles that are late; no limiter where there are none."""
    found = predict_stage(program.stages[0], spec).limiters
    return sum(one.clocks for one in found if one.name == "late tiles")


def test_depth_hides_latency_and_takes_room():
    """Where a copy takes as long as several steps, it arrives late unless as many are under way."""
    far = replace(A100, costs=tuple((n, 2000.0 if n == "exposed_staging_clocks" else c) for n, c in A100.costs))
    shallow, deep = matmul(64, 64, 4096, depth=2), matmul(64, 64, 4096, depth=5)
    assert late(deep, far) < 0.2 * late(shallow, far)
    assert late(deep) < late(shallow)  # a tile comes in for longer than a step takes
    assert late(deep) == late(matmul(64, 64, 4096, depth=4)) == 0  # three steps hide it all
    shared = [int(predict_stage(p.stages[0], A100).shared_bytes) for p in (shallow, deep)]
    assert shared[1] * 2 == shared[0] * 5


def test_asynchronous_copies_save_instructions_in_the_model():
    past, staged = matmul(512, 512, 512, depth=2), gpu_matmul(512, 512, 512, depth=2)
    assert limiter(past, "issue") < limiter(staged, "issue")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (with_copies(matmul(), {"depth": 1}), "asynchronous with depth 1 .* expected at least 2"),
        (with_copies(matmul(), {"depth": 4}), "of depths \\[3, 4\\] in one loop; expected one depth"),
        (with_copies(matmul(64, 64, 40), {"vector": 4}), "asynchronous with vector 4; expected 1, as it is stored across k"),
        (with_copies(matmul(64, 64, 40), {}, {"vector": 8}), "asynchronous copies of 32 bytes; expected 4 to 16 on a100"),
    ],
)
def test_what_no_such_copy_can_do_is_refused(program, says):
    with pytest.raises(ProgramError, match=says):
        check(program, A100)


def test_a_device_without_asynchronous_copies_refuses_them():
    program = replace(matmul(), device="v100")
    with pytest.raises(ProgramError, match="asynchronous from dram into shared; v100 has none"):
        check(program, device("v100"))


def test_a_ring_beyond_the_block_s_memory_is_refused():
    with pytest.raises(ProgramError, match="bytes of shared; expected at most"):
        interpret(matmul(depth=64), small_integers(matmul()), A100)


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
def test_memory_beyond_what_a_kernel_declares_is_asked_for_at_launch(reverse):
    """15 buffers of 4,224 bytes each: more than CUDA lets a kernel declare."""
    program = matmul(k=120, depth=15)
    check(program, A100)
    source = emit(program, A100, "cuda")
    (launch,) = source.launches
    assert launch.dynamic_bytes == launch.local_bytes == 15 * 4224
    assert launch.dynamic_bytes == predict_stage(program.stages[0], A100).shared_bytes
    got, wanted = product(program, source, reverse)
    assert np.array_equal(got, wanted)
    short = replace(source, launches=(replace(launch, dynamic_bytes=launch.dynamic_bytes - 2048),))
    with pytest.raises(HostError, match="out of bounds"):
        product(program, short, reverse)
    if nvrtc.is_installed():
        (report,) = compile_report(program, A100, source).kernels
        assert report.shared_bytes == report.predicted_shared_bytes and not report.uses_local_memory


def test_a_block_may_have_what_its_architecture_gives_at_launch():
    for name, bytes_ in (("v100", 96 << 10), ("a100", 163 << 10), ("h200", 227 << 10)):
        assert device(name).limits.block_memory_bytes == bytes_ > STATIC_BYTES


def test_what_a_kernel_may_declare_is_declared():
    source = emit(matmul(depth=11), A100, "cuda")
    assert source.launches[0].dynamic_bytes == 0 and "extern __shared__" not in source.text
