"""Products of bytes by dot products: definition, interpreter and source agree on all that bytes hold, edges included."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.options import BuildOptions
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.thread_space import ThreadSpace
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import bounds
from rollergen.hal.spec import Instruction
from rollergen.program.check import check
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.program.hand_devices import AVX512

T = rg.tensor
BYTES = Instruction("vpdpbusd", "int8", "int32", 1, 16, 4, 16, 2, 5)
PAIRS = Instruction("vpmaddwd", "int16", "int32", 1, 16, 2, 16, 1.5, 1, issued=2)
CPU, OF_PAIRS, OF_BOTH = (
    replace(AVX512, instructions=(*AVX512.instructions, *dots)) for dots in ([BYTES], [PAIRS], [BYTES, PAIRS])
)


def matmul(a, b):
    return rg.ops.matmul(T("A", (19, 64), a), T("B", (64, 50), b))


def with_a_tail(a, b):
    return rg.ops.matmul(T("A", (9, 31), a), T("B", (31, 33), b))


def constant(a, b):
    return rg.ops.matmul(T("A", (20, 40), a), T("B", (40, 70), b, constant=True))


def batched(a, b):
    return rg.ops.matmul(T("A", (3, 10, 20), a), T("B", (3, 20, 17), b))


def weights_by_rows(a, b):
    return rg.ops.matmul(T("A", (6, 48), a), T("W", (40, 48), b), transpose_b=True)


def convolution(a, b):
    return rg.ops.conv2d(T("X", (1, 8, 9, 11), a), T("W", (12, 8, 3, 3), b), padding=1)


def pixel_by_pixel(a, b):
    return rg.ops.conv2d(T("X", (1, 8, 7, 9), a), T("W", (11, 8, 1, 1), b))


def strided(a, b):
    return rg.ops.conv2d(T("X", (2, 3, 11, 12), a), T("W", (5, 3, 3, 3), b), stride=2, padding=1)


def zero_points(a, b):
    return rg.ops.quantized_matmul(
        T("A", (19, 30), a), T("B", (30, 41), b), 0.5, 0.25, a_zero_point=3, b_zero_point=bounds(b)[0], dtype="float64"
    )


def image_with_a_zero_point(a, b):
    x, w = T("X", (1, 6, 9, 11), a), T("W", (12, 6, 3, 3), b)
    return rg.ops.quantized_conv2d(x, w, 0.5, 0.25, padding=1, x_zero_point=bounds(a)[1], dtype="float64")


def padded_behind(a, b):
    """What lies beyond the image is found by a copy of a copy, which takes the zero point off."""
    x, w = T("X", (1, 6, 8, 9), a), T("W", (12, 6, 2, 2), b)
    return rg.ops.quantized_conv2d(x, w, 0.5, 0.25, padding="same", x_zero_point=bounds(a)[1], dtype="float64")


def both_with_zero_points(a, b):
    x, w = T("X", (1, 8, 5, 6), a), T("W", (7, 8, 3, 3), b)
    return rg.ops.quantized_conv2d(x, w, 0.5, 0.25, padding=1, x_zero_point=2, w_zero_point=-100, dtype="float64")


CASES = [
    (matmul, "int8", "int8"), (matmul, "uint8", "int8"), (matmul, "int8", "uint8"), (matmul, "uint8", "uint8"),
    (with_a_tail, "int8", "int8"), (with_a_tail, "uint8", "int8"), (constant, "uint8", "uint8"),
    (batched, "int8", "int8"), (weights_by_rows, "int8", "int8"), (weights_by_rows, "int8", "uint8"),
    (convolution, "int8", "int8"), (convolution, "uint8", "uint8"), (strided, "int8", "int8"),
    (pixel_by_pixel, "int8", "int8"),
    (zero_points, "int8", "int8"), (zero_points, "uint8", "int8"), (zero_points, "uint8", "uint8"),
    (image_with_a_zero_point, "uint8", "int8"), (image_with_a_zero_point, "int8", "int8"),
    (padded_behind, "uint8", "int8"), (both_with_zero_points, "int8", "int8"), (both_with_zero_points, "uint8", "int8"),
]  # fmt: skip
WIDE = [
    (matmul, "int16", "int16"), (with_a_tail, "int16", "int16"), (constant, "uint8", "int16"), (weights_by_rows, "int16", "int8"),
    (convolution, "int16", "int16"),
]  # fmt: skip


DEVICES = {"cpu": CPU, "cpu of pairs": OF_PAIRS, **{name: device(name) for name in ("v100", "mi50")}}
"""Whose dot products are of bytes of two kinds, of numbers of 16 bits, of any bytes, of bytes of one kind."""


def programs(expression, of=CPU):
    """The best ones that add up dot products, one of each variant."""
    graph, found = canonicalize(expression), {}
    (op,) = graph.tensor_ops
    for variant in variants(op, of):
        if variant.op.has_dot_products:
            space = partial(serial_candidates, variant, of, AlignmentRules())
            drawn = ThreadSpace(variant, of, AlignmentRules()).candidates if of.kind.threads else space
            for one in drawn(1, Ledger()):
                found.setdefault(one.variant, program_of(graph, of, [one]).program)
    return list(found.values())


def any_bytes(program):
    """All that the dtypes hold, their ends more often."""
    random = np.random.default_rng(0)
    made = {}
    for buffer in program.inputs:
        low, high = bounds(buffer.dtype)
        made[buffer.name] = random.integers(low, high, buffer.shape, buffer.dtype, endpoint=True)
        ends = random.integers(0, 4, buffer.shape)
        made[buffer.name][ends == 0], made[buffer.name][ends == 1] = low, high
    return made


def require_agreement(expression, program, of, arrays=None):
    arrays = any_bytes(program) if arrays is None else arrays
    want = expression.evaluate(*(arrays[buffer.name] for buffer in program.inputs))
    result, blocks = interpreted(program, arrays, of, most_blocks=10_000)
    out = program.outputs[0].name
    assert result.written[out].all()
    np.testing.assert_array_equal(result.outputs[out], want)
    assert_traffic(program, result.traffic, of, blocks)
    np.testing.assert_array_equal(run_opencl(program, arrays, of)[out], want)
    if of.kind.language == "cuda" and compiler() is not None:
        np.testing.assert_array_equal(executed(program, emit(program, of, "cuda"), arrays)[out], want)


@pytest.mark.every(7)
@pytest.mark.parametrize(("make", "a", "b"), CASES, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("name", DEVICES)
def test_all_readers_agree_on_dot_products(name, make, a, b):
    expression = make(a, b)
    found = programs(expression, DEVICES[name])
    assert found
    for program in found:
        require_agreement(expression, program, DEVICES[name])


@pytest.mark.every(7)
@pytest.mark.parametrize("seed", (*range(12), 87))
@pytest.mark.parametrize("name", DEVICES)
def test_all_readers_agree_on_random_shapes_dtypes_and_zero_points(name, seed):
    random = np.random.default_rng(seed)
    a, b = random.choice(["int8", "uint8"], 2)
    sizes = random.integers(3, 40, 3)
    if seed % 3:
        m, n, k = (int(size) for size in sizes)
        transposed = bool(random.integers(2))
        zeros = [int(random.integers(*bounds(dtype))) * int(random.integers(2)) for dtype in (a, b)]
        expression = rg.ops.quantized_matmul(
            T("A", (m, k), a), T("B", (n, k) if transposed else (k, n), b, constant=bool(random.integers(2))), 1.0, 1.0,
            a_zero_point=zeros[0], b_zero_point=zeros[1], transpose_b=transposed, dtype="float64",
        )  # fmt: skip
    else:
        channels, side, filters = (int(size) for size in sizes % 12 + 3)
        size, stride, padding = int(random.integers(1, 4)), int(random.integers(1, 3)), int(random.integers(2))
        expression = rg.ops.quantized_conv2d(
            T("X", (1, channels, side, side + 1), a), T("W", (filters, channels, size, size), b), 1.0, 1.0,
            stride=stride, padding=padding, x_zero_point=int(random.integers(*bounds(a))), dtype="float64",
        )  # fmt: skip
    found = programs(expression, DEVICES[name])
    assert found
    require_agreement(expression, found[int(random.integers(len(found)))], DEVICES[name])


def test_what_is_made_of_constant_weights_is_made_once():
    weights = T("B", (64, 50), "uint8", constant=True)
    expression = rg.ops.quantized_matmul(T("A", (19, 64), "uint8"), weights, 0.5, 0.25, a_zero_point=3)
    for program in programs(expression):
        *before, last = program.stages
        weights = {"B", "B_words", "B_words_packed"}
        assert [stage.once for stage in before] == [stage.op.loads()[0].buffer.name in weights for stage in before]
        assert sum(stage.once for stage in before) >= 2 and not last.once


def test_programs_of_a_space_make_what_is_constant_once():
    weights = T("B", (64, 50), "uint8", constant=True)
    product = rg.ops.quantized_matmul(T("A", (19, 64), "uint8"), weights, 0.5, 0.25, a_zero_point=3)
    (program,) = rg.space(product, device=CPU).sample(1)
    *before, last = program.stages
    names = {"B", "B_words", "B_words_packed"}
    assert [stage.once for stage in before] == [stage.op.loads()[0].buffer.name in names for stage in before]
    assert sum(stage.once for stage in before) >= 2 and not last.once


def test_the_model_prefers_dot_products():
    (best,) = construct(canonicalize(rg.ops.matmul(T("A", (512, 512), "int8"), T("B", (512, 512), "int8"))), CPU, top_k=1)
    assert best.variants[0].startswith("dot products") and best.program.stages[-1].compute.instruction == "vpdpbusd"
    none = BuildOptions(shapes=CodeShapes(dot_products=False))
    (plain,) = construct(canonicalize(matmul("int8", "int8")), CPU, none, top_k=1)
    assert not any(stage.op.has_dot_products for stage in plain.program.stages)


@pytest.mark.parametrize(("name", "instruction", "shifts"), [("v100", "dp4a", 0), ("t4", "dp4a", 0), ("mi50", "dot4", 1)])
def test_gpus_add_dot_products_of_bytes_as_they_lie(name, instruction, shifts):
    """Factors of two kinds are shifted where the instruction takes two of one kind alone."""
    for a, b in (("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8")):
        product = rg.ops.matmul(T("A", (2048, 2048), a), T("B", (2048, 2048), b), transpose_b=True)
        kernel = rg.build(product, name, profile=False, cache=False)
        *before, last = kernel.program.stages
        assert last.compute.instruction == instruction and kernel.source.count("_product(") >= 2
        assert len(before) == (shifts if a != b else 0)
    plain = BuildOptions(shapes=CodeShapes(dot_products=False))
    assert kernel.predicted_time < 0.5 * rg.build(product, name, profile=False, cache=False, options=plain).predicted_time


@pytest.mark.parametrize(("make", "a", "b"), WIDE, ids=lambda part: getattr(part, "__name__", part))
def test_all_readers_agree_on_products_of_16_bits_and_pairs_of_their_ends_wrap_around(make, a, b):
    expression = make(a, b)
    found = programs(expression, OF_BOTH)
    assert found and all(one.stages[-1].compute.instruction == "vpmaddwd" for one in found)
    for program in found:
        require_agreement(expression, program, OF_BOTH)


@pytest.mark.parametrize(("of", "a", "instruction"), [
    (OF_PAIRS, "int8", "vpmaddwd"), (OF_PAIRS, "int16", "vpmaddwd"), (OF_BOTH, "int8", "vpdpbusd"), (OF_BOTH, "int16", "vpmaddwd"),
    (CPU, "int16", "vfma"),
])  # fmt: skip
def test_bytes_are_widened_only_where_there_is_no_instruction_for_them(of, a, instruction):
    product = canonicalize(rg.ops.matmul(T("A", (512, 512), a), T("B", (512, 512), a)))
    (best,) = construct(product, of, top_k=1)
    assert best.program.stages[-1].compute.instruction == instruction


def test_zero_points_are_taken_off_where_bytes_are_widened():
    """So that no sums of factors are needed; on this CPU's instruction for bytes there are."""
    sums = lambda of: {stage.op.output.name for one in programs(zero_points("uint8", "int8"), of) for stage in one.stages}
    assert not any(name.endswith("_sums") for name in sums(OF_PAIRS)) and "A_sums" in sums(CPU)


def test_devices_without_the_instruction_have_no_dot_products():
    (best,) = construct(canonicalize(matmul("int8", "int8")), AVX512, top_k=1)
    assert not any(stage.op.has_dot_products for stage in best.program.stages)


def test_the_instruction_belongs_to_sums_of_dot_products():
    program = programs(matmul("uint8", "int8"))[0]
    *others, last = program.stages
    for stages in (
        (*others, replace(last, compute=replace(last.compute, instruction="vfma"))),
        (replace(others[0], compute=replace(others[0].compute, instruction="vpdpbusd")), *others[1:], last),
    ):
        with pytest.raises(ProgramError, match="expected one for dot products"):
            check(replace(program, stages=stages), CPU)
