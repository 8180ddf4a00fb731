"""CUDA C++ text: what differs from OpenCL C, and which accesses are whole vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.emit.cuda import Cuda
from rollergen.emit.index_code import Alignment, factor
from rollergen.emit.opencl import OpenCL
from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.errors import DeviceError
from rollergen.expr.index import Index
from rollergen.lower.expressions import (
    Convert,
    Element,
    Name,
    Number,
    Operation,
    Pick,
    Pointer,
    Position,
    Read,
    Shuffle,
)
from rollergen.lower.ir import GLOBAL, Assign, For, Kernel, Let, Point, Write
from tests import programs
from tests.lower.devices import DEVICES

X, Y = Pointer("X", "float32", GLOBAL), Pointer("Y", "float32", GLOBAL, True)
i, j = Index.axis("i"), Index.axis("j")
a, b = Name("a", "float32", 4), Name("b", "float32", 4)


def printer():
    one = Cuda()
    one.kernel(Kernel("k", (X, Y), ("X", "Y"), (), 1, 1, "block", "thread", {}))
    one._ranges = {"i": (0, 9), "j": (0, 9), "r": (0, 18)}
    return one


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (i * 4, "*(const float4 *)(X + i*4)"),
        (i * 8 + j * 12 + 4, "*(const float4 *)(X + j*12 + i*8 + 4)"),
        (i * 4 + 2, "load_float4_by2(X + i*4 + 2)"),
        (i * 7, "load_float4(X + i*7)"),
    ],
)
def test_vectors_are_read_whole_where_their_place_is_proven(offset, text):
    assert printer().expression(Read(X, offset, "float32", 4)) == text


def test_what_a_pointer_and_an_integer_are_known_to_be_multiples_of_is_used():
    one = printer()
    one.block((Let("r", Position(i * 2)),), 0)
    one.block((Point(Pointer("X_at", "float32", GLOBAL), X, Index.axis("r") * 2),), 0)
    assert one.expression(Read(Pointer("X_at", "float32", GLOBAL), j * 4, "float32", 4)).startswith("*(const float4 *)")
    one.block((Let("r", Position(i)),), 0)  # the name of a closed scope, given again
    one.block((Point(Pointer("X_at", "float32", GLOBAL), X, Index.axis("r")),), 0)
    assert one.expression(Read(Pointer("X_at", "float32", GLOBAL), j * 4, "float32", 4)).startswith("load_float4(")


def test_vectors_are_written_in_parts_where_their_place_is_not_proven():
    one = printer()
    assert one.block((Write(Y, i * 4, a),), 0) == ["*(float4 *)(Y + i*4) = a;"]
    assert one.block((Write(Y, i * 3, a),), 0) == ["store_float4(Y + i*3, a);"]
    assert "p[3] = v.w;" in one.types["store_float4"]


def test_the_largest_known_factor_of_an_index():
    assert factor(i * 6 + 9) == 3 and factor(Index()) == 0 and factor((i * 8) // 4 * 3) == 6 and factor(i // 2) == 1
    assert Alignment().of(X, i * 4, {}) == 4 and ARGUMENT_BYTES == 16


def test_vectors_are_calculated_with_by_functions_that_the_text_brings():
    one, mask = printer(), Name("m", "mask32", 4)
    assert one.expression(Operation("add", (a, Operation("mul", (a, b), "float32", 4)), "float32", 4)) == "a + a*b"
    assert one.expression(Operation("select", (mask, a, b), "float32", 4)) == "select(m, a, b)"
    assert one.expression(Operation("lt", (a, b), "mask32", 4)) == "a < b"
    assert "-(a.x < b.x)" in "".join(one.types.values())
    assert one.expression(Convert(a, "int32", bits=True)) == "as_int4(a)"
    assert one.expression(Pick(a, 2)) == "a.z" and one.expression(Pick(a, "odd")) == "odd_lanes(a)"
    assert one.expression(Shuffle(a, b, (0, 4, 1, 5))) == "shuffle_0_4_1_5(a, b)"
    assert one.expression(Number(0.0, "float32", 4)) == "spread_float4(0.0f)"


def test_long_copies_are_unrolled_in_part_and_register_arrays_whole():
    row = Read(X, Index.axis("s"), "float32")
    copy = For("s", 0, 64, (Write(Y, Index.axis("s"), row),), unroll=True)
    held = For("s", 0, 64, (Assign(Element("r", (Index.axis("s"),), "float32"), row),), unroll=True)
    short = replace(copy, stop=16)
    one = printer()
    one._ranges["s"] = (0, 63)
    pragmas = [one.block((loop,), 0)[0] for loop in (copy, held, short)]
    assert pragmas == ["#pragma unroll 8", "#pragma unroll", "#pragma unroll"]


def test_opencl_c_is_unrolled_whole_where_the_device_does_not_say_otherwise():
    row = Read(X, Index.axis("s"), "float32")
    copy = For("s", 0, 16, (Write(Y, Index.axis("s"), row),), unroll=True)
    held = For("s", 0, 16, (Assign(Element("r", (Index.axis("s"),), "float32"), row),), unroll=True)
    lines = lambda steps: [OpenCL(steps=steps).unrolled(loop) for loop in (copy, held, replace(copy, stop=4))]
    assert lines(0) == ["#pragma unroll"] * 3
    assert lines(4) == ["#pragma unroll 4", "#pragma unroll", "#pragma unroll"]


def test_infinities_need_no_header():
    assert Cuda().literal(float("-inf"), "float32") == "__int_as_float(0xff800000)"
    assert Cuda().literal(float("inf"), "float64") == "__longlong_as_double(0x7ff0000000000000LL)"
    assert Cuda().literal(float("nan"), "float32") == "__int_as_float(0x7fffffff)"
    assert Cuda().literal(0.5, "float32") == "0.5f"


@pytest.mark.parametrize("name", sorted(programs.ALL))
def test_any_program_is_written_in_cuda_the_same_way_twice(name):
    program = programs.ALL[name]
    source = emit(program, DEVICES[program.device], "cuda")
    assert source == emit(program, DEVICES[program.device], "cuda") and source.language == "cuda"
    assert source.text.count('extern "C" __global__ void __launch_bounds__(') == len(program.stages)
    for foreign in ("get_group_id", "barrier(CLK", "global float", "INFINITY", " restrict "):
        assert foreign not in source.text


def test_the_device_s_spec_says_which_language_is_written():
    relu = rg.ops.relu(rg.tensor("X", (100,)))
    languages = {d: rg.build(relu, d, profile=False, cache=False, top_k=1).language for d in ("v100", "mi50", "ipu")}
    assert languages == {"v100": "cuda", "mi50": "opencl", "ipu": "bsp"}


def test_a_language_that_is_not_printed_is_refused():
    with pytest.raises(DeviceError, match='dialect is "metal"; expected one of "bsp", "cuda", "opencl"'):
        emit(programs.ALL["relu"], DEVICES["cpu"], "metal")
