"""Source text: deterministic, safe against names, in the dialect that compiles to fast code."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from platform import machine

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit, emit_all
from rollergen.emit.c_expressions import number
from rollergen.expr.index import Index
from rollergen.expr.values import Binary, Buffer, Const, Load
from rollergen.lower.ir import Names, identifier
from tests import programs
from tests.costs import calls_of
from tests.lower.builders import elementwise
from tests.lower.devices import DEVICES
from tests.lower.harness import difference, runtime

F32 = "float32"


def text_of(program):
    return emit(program, DEVICES[program.device]).text


@pytest.mark.parametrize("name", sorted(programs.ALL))
def test_the_same_program_gives_the_same_bytes(name):
    assert text_of(programs.ALL[name]) == text_of(programs.ALL[name])


@pytest.mark.parametrize("device", sorted({program.device for program in programs.ALL.values()}))
def test_programs_that_are_written_together_are_written_as_each_alone(device):
    together = [program for program in programs.ALL.values() if program.device == device]
    assert emit_all(together, DEVICES[device]) == [emit(program, DEVICES[device]) for program in together]
    assert emit_all([], DEVICES[device]) == []


@pytest.mark.parametrize("name", sorted(programs.ALL))
def test_every_kernel_opens_with_its_layout(name):
    program = programs.ALL[name]
    text = text_of(program)
    assert text.count("/* ") == len(program.stages)
    for stage in program.stages:
        assert f"{stage.blocks} blocks of {stage.threads} thread" in text
        assert " * tile of a block: " in text
        for copy in stage.copies:
            assert re.search(rf" \* {stage.load(copy).buffer.name} in {copy.to_layer}: \[", text)


def test_the_layout_names_the_bytes_that_each_layer_holds():
    expression = rg.ops.matmul(rg.tensor("A", (1024, 1024)), rg.tensor("B", (1024, 1024)))
    kernel = rg.build(expression, "v100", profile=False, cache=False, top_k=1)
    shared = re.findall(r"in shared: .* (\d+) bytes", kernel.source)
    assert f"{sum(map(int, shared))} bytes in shared (registers of a thread)" in kernel.source
    declared = re.findall(r"__shared__ __align__\(16\) float \w+\[(\d+)\];", kernel.source)
    assert sum(map(int, shared)) == 4 * sum(map(int, declared)) > 0


def test_launches_name_buffers_in_parameter_order():
    source = emit(programs.ALL["cpu_matmul_bias"], DEVICES["cpu"])
    pack, matmul = source.launches
    assert (pack.entry, pack.blocks, pack.threads, pack.arguments) == ("pack_B", 4, 1, ("B", "B_packed"))
    assert matmul.arguments == ("A", "B_packed", "D", "C")
    assert source.language == "opencl"
    once = replace(programs.ALL["cpu_matmul"].stages[0], once=True)
    program = replace(programs.ALL["cpu_matmul"], stages=(once, *programs.ALL["cpu_matmul"].stages[1:]))
    assert [launch.once for launch in emit(program, DEVICES["cpu"]).launches] == [True, False]


@pytest.mark.parametrize("name", sorted(n for n, p in programs.ALL.items() if p.device == "cpu"))
def test_cpu_kernels_call_no_builtin(name):
    """The library's functions may be compiled for another target: then they are not inlined.  They may stand in for
    instructions that a target lacks."""
    text = re.sub(r"/\*.*?\*/|#else.*?#endif", "", text_of(programs.ALL[name]), flags=re.S)
    called = set(re.findall(r"\b([a-z_]\w*)\(", text))
    syntax = {"if", "for", "defined", "aligned", "reqd_work_group_size", "min_vector_width", "__attribute__", "ext_vector_type"}
    masked = {"__builtin_ia32_loadups512_mask", "__builtin_ia32_storeups512_mask"}  # instructions of targets that have them
    powers = {"__builtin_ia32_reduceps512_mask", "__builtin_ia32_scalefps512_mask"}
    instructions = masked | powers | {"__builtin_ia32_cvtd2mask512"}
    compiled_inline = instructions | {"get_group_id", "__builtin_convertvector", "__builtin_nontemporal_store", "__builtin_shufflevector"}
    ours = set(re.findall(r"inline \w+ (\w+)\(", text)) | {stage.name for stage in programs.ALL[name].stages}
    assert {c for c in called if not c.startswith("as_")} <= syntax | compiled_inline | ours


def test_products_are_written_so_that_the_compiler_contracts_them():
    assert re.search(r"acc\[i2\]\[j2\] = acc\[i2\]\[j2\] \+ a\*b_packed\[j2\];", text_of(programs.ALL["cpu_matmul"]))


def test_the_device_s_attribute_is_on_every_kernel():
    text = text_of(programs.ALL["cpu_matmul"])
    assert text.count("kernel __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1)))") == 2
    bare = replace(DEVICES["cpu"], targets=(replace(DEVICES["cpu"].targets[0], dialect=()),))
    assert "min_vector_width" not in emit(programs.ALL["cpu_matmul"], bare).text


def test_streamed_stores_are_aligned_or_not_streamed():
    assert re.search(r"if \(\(\(size_t\)\(Y_at\) & 63\) == 0\) \{\n\s+__builtin_nontemporal_store", text_of(programs.ALL["relu"]))


HOSTILE = ["M_PI", "FLT_MAX", "INT_MIN", "MAXFLOAT", "CLK_LOCAL_MEM_FENCE", "cl_khr_fp64", "CL_VERSION_1_2", "float", "3d", "x*/ } kernel", "get_group_id", "as_int", "exp_f32x16", "acc", "block", "thread", "lane", "i0", "α", "a b", "_", "INFINITY", "float16u", "C\n#define x"]  # fmt: skip


def test_vectors_of_halves_at_any_address_are_read_and_written_as_integers():
    """PoCL's vload_half16 and vstore_half16 promise LLVM an alignment that rows of 18 halves do not have."""
    doubled = rg.ops.mul(rg.tensor("x", (9, 18), "float16"), 2)
    text = rg.build(doubled, "cpu", profile=False, cache=False).source
    assert re.search(r"\bload_halves\d+\(", text) and re.search(r"\bstore_halves\d+\(", text)
    assert not re.search(r"v(load|store)_half\d+\([^;]*\(global", text)


@pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="the conversions of x86")
def test_units_that_convert_vectors_of_halves_call_no_function_for_it():
    """PoCL's own are calls, around which all vector registers are stored and read again."""
    text = rg.build(rg.ops.linear(rg.tensor("x", (8, 64), "float16"), rg.tensor("w", (32, 64), "float16")), "cpu",
                    profile=False, cache=False).source  # fmt: skip
    read = text[text.index("load_halves") :]
    assert read.index("#ifdef __F16C__") < read.index("__builtin_convertvector") < read.index("vload_half")


def test_all_halves_keep_their_values_and_all_floats_round_as_numpy_rounds_them():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        for factor in (1.0, 0.3, 1e-4, 3.0):  # subnormal results, ties, and beyond the largest
            scaled = rg.build(rg.ops.mul(rg.tensor("x", halves.shape, "float16"), factor), "cpu", profile=False)
            want = (halves.astype(np.float32) * np.float32(factor)).astype(np.float16)
            np.testing.assert_array_equal(scaled(halves), want)


def test_any_name_is_made_a_c_name_and_changes_nothing():
    loads = [Load(Buffer(name, (100,)), (Index.axis("i"),)) for name in HOSTILE]
    value = reduce(lambda a, b: Binary("add", a, Binary("mul", b, Const(2.0, F32), F32), F32), loads)
    assert difference(elementwise(value, 100, lanes=8)) is None


@pytest.mark.parametrize("axis", ["float", "x*/ } kernel", "i0", "C\n#define x"])
def test_any_axis_name_is_made_a_c_name(axis):
    program = programs.row_sum()
    stage = program.stages[0]
    rename = lambda a: axis if a == "k" else a
    op = stage.op
    load = Load(Buffer("X", (10, 100)), (Index.axis("i"), Index.axis(axis)))
    axes = tuple(replace(a, name=rename(a.name)) for a in op.axes)
    reduction = replace(op.reductions[0], axes=(axis,), bodies=(load,))
    op = replace(op, axes=axes, reductions=(reduction,))
    loops = tuple(replace(loop, axis=rename(loop.axis)) for loop in stage.loops)
    stage = replace(stage, op=op, loops=loops, guards=((axis, "mask"),), name=axis)
    assert difference(replace(program, stages=(stage,))) is None


def test_entries_of_stages_with_one_name_differ():
    program = programs.ALL["cpu_matmul"]
    twins = tuple(replace(stage, name="same") for stage in program.stages)
    source = emit(replace(program, stages=twins), DEVICES["cpu"])
    assert [launch.entry for launch in source.launches] == ["same", "same_2"]
    runtime().compile(source.text)


def test_names_of_closed_scopes_are_given_again():
    names = Names()
    names.fresh("a")
    names.scopes.append([])
    assert (names.fresh("a"), names.fresh("b")) == ("a_2", "b")
    names.release(names.scopes.pop())
    assert names.fresh("b") == "b"


def test_identifiers_are_ascii_and_no_words_of_the_language():
    assert identifier("int") == "int_" and identifier("float16") == "float16_" and identifier("9") == "v9"
    assert identifier("é/ñ").isascii() and identifier("").isidentifier()


TYPES = ["image1d_t", "image1d_buffer_t", "image1d_array_t", "image2d_t", "image2d_array_t", "image2d_depth_t", "image2d_array_depth_t", "image2d_msaa_t", "image2d_array_msaa_t", "image2d_msaa_depth_t", "image2d_array_msaa_depth_t", "image3d_t", "sampler_t", "queue_t", "ndrange_t", "clk_event_t", "reserve_id_t", "event_t", "cl_mem_fence_flags", "clk_profiling_info", "memory_order_relaxed", "memory_scope_device", "size_t", "atomic_int", "atomic_flag", "quad4", "longlong2", "ulonglong4", "double4x4", "expf", "fmaxf", "typeid", "explicit", "reinterpret_cast", "static_assert", "thread_local", "co_await", "char8_t", "linux", "IMG_RO_AQ"]
"""Of OpenCL C 3.0 and C++20, of CUDA and of compilers: what a tensor may be called and C may not."""


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_either_language_is_no_identifier(name):
    assert identifier(name) != name


def test_tensors_named_like_types_are_compiled():
    tensors = [rg.tensor(name, (16,)) for name in TYPES]
    total = rg.compute((16,), lambda i: sum((one[i] for one in tensors), rg.cast(0.0, "float32")))
    kernel = rg.build(total, "cpu", profile=False, cache=False, top_k=1)
    assert (kernel(*[np.ones(16, np.float32)] * len(TYPES)) == len(TYPES)).all()


@pytest.mark.parametrize("value", [0.1, 1.0, 3e38, 1e-45, 16777217.0, -2.5e-7, 1 / 3, 0.0])
def test_float_literals_read_back_as_the_same_number(value):
    text = number(value, "float32")
    assert text.endswith("f") and np.float32(text[:-1]) == np.float32(value)
    assert float(number(value, "float64")) == value


def test_literals_at_the_limits():
    assert number(float("nan"), F32) == "NAN" and number(-float("inf"), "float64") == "-INFINITY"
    assert number(-(2**31), "int32") == "(-2147483647 - 1)"
    assert number(-(2**63), "int64") == "(-9223372036854775807L - 1)"
    assert number(True, "bool") == "1"


def test_a_matmul_is_lowered_and_printed_in_few_calls():
    """2461 calls take 0.8 ms."""
    assert calls_of(lambda: text_of(programs.ALL["gpu_matmul_exact"])) < 6000
