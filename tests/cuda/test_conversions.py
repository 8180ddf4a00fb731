"""Factors that threads convert on the way to matrix instructions, executed from the CUDA text on a host: equal to the
interpreter bit for bit, whatever the weights, scales, zero points and sizes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.errors import DeviceError
from rollergen.expr.dtypes import bounds, numpy_dtype
from rollergen.hal.compilers import nvrtc
from rollergen.hal.dtypes import FLOAT8
from rollergen.hal.load import load_device
from rollergen.program.conversions import neighbours_of
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.model import predict_stage
from tests.cuda.host import compiler, seeded
from tests.cuda.test_programs import executed
from tests.narrow_products import Narrow, drawn, program

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")

# Device, case, and of its plan: tiles along m and n of a warp, warps, steps of k, buffers, chains, warps along k.
CASES = {
    "cast": ("a100", Narrow(16, 64, 48, turned=True), (1, 2, 1, 2, 2, 1)),
    "cast, remainders, two buffers": ("h200", Narrow(13, 128, 51, turned=True), (1, 2, 1, 2, 2, 2)),
    "scale of a column, a ring": ("a100", Narrow(5, 256, 75, group=0, turned=True), (1, 1, 1, 2, 4, 3)),
    "scale of a group": ("a100", Narrow(33, 256, 80, group=64), (2, 3, 1, 2, 2, 3)),
    "groups shorter than a tile": ("h200", Narrow(5, 256, 72, group=32, turned=True), (1, 1, 1, 2, 4, 4)),
    "zero point": ("a100", Narrow(9, 256, 75, "uint8", 64, "uint8", turned=True), (1, 2, 2, 1, 2, 2)),
    "zero point of a column": ("a100", Narrow(9, 128, 40, "int8", 0, "int8", turned=True), (1, 2, 1, 1, 2, 3)),
    "nibbles": ("a100", Narrow(9, 256, 80, "int4", 64), (1, 2, 1, 2, 4, 3)),
    "nibbles in rows, zero points in nibbles": (
        "h200", Narrow(9, 256, 80, "int4", 128, "int4", turned=True), (1, 2, 1, 2, 2, 2),
    ),
    "unsigned nibbles, zero points in nibbles": ("a100", Narrow(9, 256, 80, "uint4", 64, "uint4"), (1, 2, 1, 2, 2, 2)),
    "nibbles, each step by itself": ("a100", Narrow(9, 256, 80, "int4", 16), (1, 2, 1, 2, 4, 3)),
    "one row": ("a100", Narrow(1, 256, 80, "int4", 64), (1, 3, 1, 1, 4, 4)),
    "chains": ("a100", Narrow(13, 256, 75, "int8", 64, turned=True), (1, 2, 1, 2, 4, 3, 2)),
    "chains, results exchanged": ("h200", Narrow(9, 512, 96, "int4", 64), (1, 4, 1, 1, 8, 3, 4)),
    "warps share sums": ("a100", Narrow(13, 256, 75, "int8", 64, turned=True), (1, 2, 1, 2, 4, 3, 1, 2)),
    "four warps share sums, with chains": ("h200", Narrow(1, 512, 96, "int4", 128), (1, 4, 1, 1, 8, 3, 2, 4)),
    "bfloat16": ("a100", Narrow(7, 256, 40, "int8", 64, turned=True, dtype="bfloat16"), (1, 2, 1, 1, 4, 3)),
    "bfloat16, zero point": ("h200", Narrow(9, 256, 80, "uint8", 64, "uint8", True, "bfloat16"), (1, 2, 1, 2, 2, 2)),
    "float8": ("h200", Narrow(13, 128, 51, "float8_e4m3fn", turned=True), (1, 2, 1, 2, 2, 2)),
    "float8, scale of a group": ("a100", Narrow(33, 256, 80, "float8_e5m2", 64), (2, 3, 1, 2, 2, 3)),
    "float8 as bfloat16": ("a100", Narrow(7, 256, 40, "float8_e4m3fn", 64, turned=True, dtype="bfloat16"), (1, 2, 1, 1, 4, 3)),
    "bfloat16, nibbles": ("a100", Narrow(1, 256, 80, "int4", 64, dtype="bfloat16"), (1, 2, 1, 2, 2, 3)),
}  # fmt: skip


@lru_cache(maxsize=32)
def made(name, weights_first=False):
    device_name, case, plan = CASES[name]
    device, (chains, gk) = load_device(device_name), (*plan[6:], 1, 1)[:2]
    return program(case, device, *plan[:6], weights_first=weights_first, chains=chains, gk=gk), device


def same_bits(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


@on_host
@pytest.mark.parametrize("weights_first", [False, True])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(11)
def test_cuda_text_computes_what_the_interpreter_computes(name, weights_first):
    program, device = made(name, weights_first)
    arrays = drawn(program)
    reverse = list(CASES).index(name) % 2 == 1
    got = executed(program, emit(program, device, "cuda"), arrays, reverse)
    wanted = interpret(program, arrays, device).outputs
    assert same_bits(got["C"], wanted["C"])


@pytest.mark.every(5)
@on_host
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "uint4"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("steps", [1, 2])
def test_every_number_of_a_narrow_dtype_becomes_itself(kind, dtype, steps):
    case = Narrow(16, 256, 64, kind, turned=True, dtype=dtype)
    device = load_device("a100")
    program_ = program(case, device, 1, 2, 1, 1, steps)
    assert neighbours_of(program_.stages[-1].compute.factors) == (8 if steps == 2 and kind.endswith("int4") else 4)
    arrays = dict(drawn(program_))
    rows, columns = np.indices(arrays["W"].shape)
    arrays["W"] = ((4 * rows + columns) % 256).astype(np.uint8).view(arrays["W"].dtype)  # 64 others in each row
    arrays["A"] = np.zeros_like(arrays["A"])
    arrays["A"][range(8), range(8)] = 1  # row r has the weights of place r
    got = executed(program_, emit(program_, device, "cuda"), arrays)["C"]
    assert same_bits(got, interpret(program_, arrays, device).outputs["C"])
    low, high = bounds(kind)
    assert sorted(set(got.astype(np.float32).flat)) == list(range(low, high + 1))


@on_host
@pytest.mark.parametrize("kind", FLOAT8)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_float8_becomes_itself_infinities_and_nan_included(kind, dtype):
    program_ = program(Narrow(16, 64, 256, kind, turned=True, dtype=dtype), load_device("a100"), 1, 2, 1, 1, 2)
    arrays = {name: np.zeros_like(array) for name, array in drawn(program_).items()}
    every, row = np.arange(256, dtype=np.uint8).view(numpy_dtype(kind)), np.arange(256)
    arrays["W"][row, row % 8] = every
    arrays["A"][range(8), range(8)] = 1
    got = executed(program_, emit(program_, load_device("a100"), "cuda"), arrays)["C"]
    np.testing.assert_array_equal(got[row % 8, row].astype(np.float32), every.astype(np.float32))


FAULTS = {
    "one chain is not added": ("chains", "(?<=\\+ )acc\\[1\\]", "0.0f*acc[1]"),
    "one warp's sums are left out": ("warps share sums", "part \\+ part_2", "part"),
    "a wrong number is subtracted": (
        "nibbles, each step by itself", "_float16\\(pairs, 0x64086408u\\)", "_float16(pairs, 0x64006400u)",
    ),
    "a wrong number is subtracted of eight": ("nibbles", "0xd480d480u", "0xd400d400u"),
    "both steps have one half of the word": ("nibbles", "word >> half \\* 8", "word"),
    "both steps have one half of the activations": ("nibbles", "half \\? near.y : near.x", "near.x"),
    "the sign is forgotten": ("cast", "word \\^ 0x80808080u", "word"),
    "halves of a word change places": ("cast", "0x4140", "0x4041"),
    "the second pair is the first": ("nibbles, each step by itself", "apart >> 8", "apart >> 0"),
    "a step is left out": ("scale of a group", "\n *mul_pairs_float16\\(w_rows.*;", ""),
    "weights are taken from the zero point": ("zero point", "sub_pairs_float16\\(w\\[", "sub_from_pairs_float16(w["),
    "neighbours of a row are taken as usual": ("cast", "fragment\\[1\\] = away.x; fragment\\[2\\] = near.y",
                                               "fragment[2] = away.x; fragment[1] = near.y"),
    "a scale of another group": ("groups shorter than a tile", "(column\\w* = \\(unsigned int\\)\\w+\\[)", "\\g<1>8 + "),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(3)
def test_a_fault_in_the_text_is_found(fault):
    name, pattern, replacement = FAULTS[fault]
    program, device = made(name)
    arrays = drawn(program)
    broken = seeded(emit(program, device, "cuda"), pattern, replacement, count=0)
    wanted = interpret(program, arrays, device).outputs
    assert not same_bits(executed(program, broken, arrays)["C"], wanted["C"])


@compiled
@pytest.mark.parametrize("weights_first", [False, True])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(11)
def test_it_compiles_without_spills_and_holds_what_the_model_says(name, weights_first):
    program, device = made(name, weights_first)
    stage = program.stages[-1]
    used = nvrtc.compile_cuda(emit(program, device, "cuda").text, device.targets[0].arch).kernels
    kernel = next(one for one in used if one.entry == stage.name)
    assert kernel.shared_bytes == managed_bytes(stage, device)["shared"]
    assert managed_bytes(stage, device)["shared"] == predict_stage(stage, device).shared_bytes
    assert kernel.stack_bytes == kernel.spill_store_bytes == kernel.spill_load_bytes == 0


def test_opencl_c_has_no_conversions_and_says_so():
    program, device = made("cast")
    with pytest.raises(DeviceError, match="opencl has no spelling for LoadNeighbours; expected a CUDA target"):
        emit(program, device, "opencl")
