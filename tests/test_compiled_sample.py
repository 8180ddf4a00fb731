"""A sample of the list of operators through NVIDIA's compiler, for three architectures: every fifth operator, on the
three devices in turn.  `benches/bench_cuda_compile.py` does all operators, devices and candidates."""

from __future__ import annotations

from itertools import cycle

import pytest

import rollergen as rg
from benches.operators_beside import entries
from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import is_installed
from rollergen.measure.compile_report import compile_report

pytestmark = pytest.mark.skipif(not is_installed(), reason="rollergen[nvrtc] is not installed")

ENTRIES = {one.id: one for one in suite("roller").entries}
SAMPLE = list(zip(list(ENTRIES)[::5], cycle(("v100", "a100", "h200"))))
MOST_REGISTERS = 1.2
"""Of what the model predicts."""


def test_the_sample_has_every_kind_of_operator_and_device():
    assert len(SAMPLE) == 24
    assert {ENTRIES[id_].kind for id_, _ in SAMPLE} == {one.kind for one in ENTRIES.values()}
    assert {device for _, device in SAMPLE} == {"v100", "a100", "h200"}


@pytest.mark.parametrize(("operator", "device"), SAMPLE)
@pytest.mark.every(3)
def test_a_first_choice_compiles_to_what_the_model_says(operator, device):
    on = rg.load_device(device)
    (first,) = construct(canonicalize(ENTRIES[operator].make()), on, top_k=1)
    report = compile_report(first.program, on, instructions=False)
    assert report.arch == {"v100": "sm_70", "a100": "sm_80", "h200": "sm_90a"}[device]
    for one in report.kernels:
        assert one.stack_bytes == one.spill_bytes == 0
        assert one.registers <= MOST_REGISTERS * one.predicted_registers
        assert one.shared_bytes == one.predicted_shared_bytes
        assert one.occupancy >= one.predicted_occupancy - 1e-9


OTHERS = ("matmul", "conv2d", "avg_pool2d", "depthwise_conv2d", "reduce_sum")
"""One operator each of these kinds for the devices that benches/bench_cuda_compile.py does not compile for."""


@pytest.mark.parametrize("device", ["t4", "l4", "rtx4090"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_first_choice_compiles_for_other_cards(kind, device):
    on = rg.load_device(device)
    entry = next(one for one in ENTRIES.values() if one.kind == kind)
    (first,) = construct(canonicalize(entry.make()), on, top_k=1)
    report = compile_report(first.program, on, instructions=False)
    assert report.arch == {"t4": "sm_75", "l4": "sm_89", "rtx4090": "sm_89"}[device]
    assert all(one.stack_bytes == one.spill_bytes == 0 for one in report.kernels)
    assert all(one.shared_bytes == one.predicted_shared_bytes for one in report.kernels)


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_a_convolution_by_matrix_instructions_keeps_out_of_local_memory(device):
    on = rg.load_device(device)
    image = rg.tensor("X", (16, 64, 56, 56), "float16")
    weights = rg.tensor("W", (64, 64, 3, 3), "float16")
    (first,) = construct(canonicalize(rg.ops.conv2d(image, weights, padding=1)), on, top_k=1)
    report = compile_report(first.program, on, instructions=False)
    # 264 and 416 bytes where each thread fetched pixels of one tap, whose places all stay live.
    assert not any(one.stack_bytes for one in report.kernels)


# Not of the list; by what they were before: bytes of local memory, or registers beyond the model's figure.
BESIDE = [
    ("conv nhwc 3x3/1 16x56x56x64 to 64 float16", "v100"),  # 628 bytes, each channel fetched by itself
    ("conv nhwc 3x3/1 16x58x58x64 to 64 bfloat16", "a100"),  # 416 bytes; 16, places of asynchronous groups uncounted
    ("conv nhwc 3x3/1 32x28x28x128 to 128 float16", "h200"),  # 88 bytes
    ("conv nhwc 3x3/1 16x58x58x64 to 64 int8", "v100"),  # 16 bytes, bytes taken apart for arithmetic
    ("conv nchw 3x3/1 16x58x58x64 to 64 bfloat16", "v100"),  # 416 bytes, weights stored across their order
    ("conv nchw 3x3/1 32x28x28x128 to 128 float16", "h200"),  # 120 bytes, where a spill was too cheap to matter
    ("matmul 2048x2048x2048 int8", "a100"),  # 48 bytes
    ("conv nhwc 3x3/1 3x31x29x37 to 41 float16", "a100"),  # 133 registers, model 80
    ("conv nhwc 7x7/2 5x56x56x96 to 48 bfloat16", "h200"),  # 146, model 68
    ("matmul 96x80x64 float32", "v100"),  # 213, model 116
    ("depthwise 11x11/1 4x32x19x19 float32", "a100"),  # 96, model 76
]  # fmt: skip


@pytest.mark.parametrize(("id_", "device"), BESIDE)
@pytest.mark.every(3)
def test_operators_that_are_not_of_the_list_hold_it_too(id_, device):
    (entry,) = (one for one in entries() if one.id == id_)
    on = rg.load_device(device)
    (first,) = construct(canonicalize(entry.make()), on, entry.options, top_k=1)
    for one in compile_report(first.program, on, instructions=False).kernels:
        assert one.stack_bytes == one.spill_bytes == 0
        assert one.registers <= MOST_REGISTERS * one.predicted_registers
        assert one.occupancy >= one.predicted_occupancy - 1e-9


@pytest.mark.parametrize(("columns", "dtype", "device"), [(3000, "float32", "v100"), (3000, "bfloat16", "h200")])
def test_rows_that_end_within_a_step_keep_out_of_local_memory(columns, dtype, device):
    on = rg.load_device(device)
    row = rg.ops.softmax(rg.tensor("X", (2048, columns), dtype), axis=-1)
    (first,) = construct(canonicalize(row), on, top_k=1)
    (one,) = compile_report(first.program, on, instructions=False).kernels
    # 48 and 16 bytes where every element's bound was tested, of all steps but the last for nothing.
    assert one.stack_bytes == one.spill_bytes == 0
