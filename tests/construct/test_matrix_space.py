"""Construction of programs with matrix instructions: where there are any, which one, and the switch."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import ArgumentError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model import predict_stage
from rollergen.program.model.roofline import multiply_add_seconds
from rollergen.tile.rules import CodeShapes
from tests.matrices import T, matmul, nhwc_convolution

PLAIN = rg.BuildOptions(shapes=CodeShapes(matrix_instructions=False))


DEFAULT = rg.BuildOptions()


def used(expression, device, options=DEFAULT, top_k=4):
    """Names of the matrix instructions of each program, best first."""
    graph = canonicalize(expression)
    ranked = construct(graph, device, options, top_k)
    found = [[matrix_instruction(stage, device) for stage in one.program.stages] for one in ranked]
    return ["".join(one.name for one in stages if one) for stages in found]


@pytest.mark.parametrize(
    "name, dtype, instruction",
    [
        ("v100", "float16", "wmma"),
        ("v100-sxm2", "float16", "wmma"),
        ("a100", "float16", "mma"),
        ("a100", "bfloat16", "mma_bf16"),
        ("a100", "int8", "mma_s8"),
        ("h200", "float16", "wgmma"),
        ("h200", "int8", "mma_s8"),
        ("v100", "bfloat16", ""),
        ("v100", "int8", ""),
        ("a100", "float32", ""),
        ("k80", "float16", ""),
        ("mi50", "float16", ""),
    ],
)
def test_the_first_choice_uses_the_instruction_of_its_dtype_where_the_device_has_one(name, dtype, instruction):
    assert used(matmul(1024, 512, 768, dtype), load_device(name))[0] == instruction


@pytest.mark.parametrize("name, dtype, instruction", [
    ("v100", "float16", "wmma"), ("a100", "bfloat16", "mma_bf16"), ("h200", "float16", "mma"),
])  # fmt: skip
def test_both_products_of_attention_are_of_matrix_instructions(name, dtype, instruction):
    query, key, value = (T(letter, (2, 512, 64), dtype) for letter in "qkv")
    assert used(rg.ops.attention(query, key, value), load_device(name), top_k=1) == [2 * instruction]


def test_float32_goes_through_tf32_only_where_the_user_allows_it():
    device, product = load_device("a100"), matmul(1024, 512, 768, "float32")
    assert set(used(product, device)) == {""}
    assert used(product, device, rg.BuildOptions(allow_tf32=True))[0] == "mma_tf32"
    assert set(used(product, load_device("v100"), rg.BuildOptions(allow_tf32=True))) == {""}
    with pytest.raises(ArgumentError, match="allow_tf32 is 'yes'; expected True or False"):
        rg.BuildOptions(allow_tf32="yes")


def test_switched_off_there_are_only_plain_instructions_and_they_are_slower():
    device, graph = load_device("a100"), canonicalize(matmul(2048, 2048, 2048))
    assert set(used(matmul(2048, 2048, 2048), device, PLAIN)) == {""}
    plain, matrices = (construct(graph, device, options, 1)[0].seconds for options in (PLAIN, rg.BuildOptions()))
    assert plain > 4 * matrices  # 16 times the multiply-adds a clock


def test_a_device_whose_first_language_is_not_cuda_gets_none():
    device = load_device("v100")
    opencl = replace(device, targets=tuple(t for t in device.targets if t.language == "opencl"))
    assert set(used(matmul(256, 256, 256), opencl)) == {""}


CASES = {
    "batched": rg.ops.batch_matmul(T("A", (12, 256, 64), "float16"), T("B", (12, 64, 256), "float16")),
    "convolution, NCHW": rg.ops.conv2d(T("X", (8, 64, 28, 28), "float16"), T("W", (64, 64, 3, 3), "float16"), padding=1),
    "convolution, NHWC": nhwc_convolution(8, 28, 28, 64, 64, 3),
    "with bias and relu": rg.ops.relu(rg.ops.bias_add(matmul(512, 512, 512), T("bias", (512,), "float16"), axis=-1)),
    "one long sum": matmul(64, 16384, 64),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["v100", "a100"])
@pytest.mark.every(3)
def test_every_contraction_has_such_programs_and_none_beats_the_matrix_units(case, name):
    device = load_device(name)
    ranked = construct(canonicalize(CASES[case]), device, top_k=4)
    stages = [stage for one in ranked for stage in one.program.stages]
    assert any(matrix_instruction(stage, device) is not None for stage in ranked[0].program.stages)
    assert all(predict_stage(stage, device).seconds >= multiply_add_seconds(stage, device) for stage in stages)
    assert case != "one long sum" or "split" in ranked[0].variants[0]


def test_products_of_sums_and_maxima_are_left_to_plain_instructions():
    a, b, k = T("A", (256, 256), "float16"), T("B", (256, 256), "float16"), rg.reduce_axis("k", 256)
    largest = rg.compute((256, 256), lambda i, j: rg.max(a[i, k] * b[k, j], axis=k))
    shifted = rg.compute((256, 256), lambda i, j: rg.sum((a[i, k] + 1.0) * b[k, j], axis=k))
    for expression in (largest, shifted):
        assert set(used(expression, load_device("v100"))) == {""}


def test_the_explanation_names_the_instruction_and_its_shape():
    kernel = rg.build(matmul(512, 512, 512), "a100", profile=False, cache=False, top_k=1)
    assert "mma, 16 x 8 x 16 (m x n x k) by 32 threads together, in float16" in kernel.explain()


def test_devices_with_asynchronous_copies_keep_several_tiles_under_way():
    for name, depths in (("a100", {3, 4}), ("h200", {3, 4}), ("v100", {1, 2})):
        device = load_device(name)
        stage = construct(canonicalize(matmul(4096, 4096, 4096)), device, top_k=1)[0].program.stages[0]
        assert {copy.depth for copy in stage.copies} <= depths
        assert all(copy.asynchronous == (copy.depth > 2) for copy in stage.copies)


@pytest.mark.parametrize("name", ["v100", "a100", "h200"])
@pytest.mark.every(2)
def test_a_gathered_image_is_fetched_along_its_pixels_and_one_whose_channels_lie_inside_along_these(name):
    for case, role in (("convolution, NCHW", "spatial"), ("convolution, NHWC", "reduce")):
        ranked = construct(canonicalize(CASES[case]), load_device(name), top_k=200)  # the fastest turn it first
        (stage,) = next(one.program.stages for one in ranked if len(one.program.stages) == 1)
        (image,) = (copy for copy in stage.copies if stage.load(copy).buffer.name == "X")
        assert image.along == image.order[-1] and stage.op.axis(image.along).role == role
