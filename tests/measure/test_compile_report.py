"""Kernels compiled by NVIDIA's compiler for the architecture that they are for, on a machine without a GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import pytest

import rollergen as rg
from rollergen.errors import BuildError, DeviceError, RuntimeUnavailableError
from rollergen.hal.compilers import nvrtc, nvrtc_library
from rollergen.hal.compilers.nvrtc import Usage, compile_cuda, is_installed, usage
from rollergen.hal.compilers.sass import counted, loops_counted
from rollergen.measure.compile_report import occupancy
from rollergen.program.model.occupancy import granted_registers, warps_by_registers

T = rg.tensor
needs_nvrtc = pytest.mark.skipif(not is_installed(), reason="rollergen[nvrtc] is not installed")

OPERATORS = {
    "matmul": lambda: rg.ops.matmul(T("A", (1024, 512)), T("B", (512, 1024))),
    "matmul, odd": lambda: rg.ops.matmul(T("A", (141, 37)), T("B", (37, 203))),
    "conv 3x3": lambda: rg.ops.conv2d(T("X", (2, 32, 28, 28)), T("W", (64, 32, 3, 3)), padding=1),
    "conv 1x1, many staged elements a thread": lambda: rg.ops.conv2d(
        T("X", (128, 96, 83, 83)), T("W", (42, 96, 1, 1))
    ),
    "softmax": lambda: rg.ops.softmax(T("X", (512, 1000)), axis=-1),
    "sum of rows": lambda: rg.ops.sum(T("X", (512, 1000)), axis=1),
    "half relu": lambda: rg.ops.relu(T("X", (513, 100), "float16")),
    "bfloat16 tanh": lambda: rg.ops.tanh(T("X", (513, 100), "bfloat16")),
    "int8 matmul": lambda: rg.ops.matmul(T("A", (41, 67), "int8"), T("B", (67, 53), "int8")),
    "float64 exp": lambda: rg.ops.exp(T("X", (64, 100), "float64")),
    "pow": lambda: rg.ops.pow(T("X", (64, 100)), T("Y", (64, 100))),
}

@lru_cache(maxsize=16)
def kernel(name, device="v100"):
    return rg.build(OPERATORS[name](), device, profile=False, cache=False, top_k=1)


@needs_nvrtc
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_compile_for_the_real_architecture_without_local_memory(name):
    report = kernel(name).compile_report()
    assert report.arch == "sm_70" and [k.entry for k in report.kernels] == [k.entry for k in kernel(name).launches]
    for one in report.kernels:
        assert 0 < one.registers <= 255 and one.spill_bytes == 0 and not one.uses_local_memory
        assert one.shared_bytes == one.predicted_shared_bytes
        assert one.registers <= 1.2 * one.predicted_registers
        assert one.predicted_occupancy <= one.occupancy + 1e-9 and one.occupancy <= 1


@needs_nvrtc
@pytest.mark.parametrize(("device", "arch"), [("a100", "sm_80"), ("h200", "sm_90a")])
def test_every_device_has_its_own_architecture(device, arch):
    report = kernel("matmul", device).compile_report()
    assert report.arch == arch and report.kernels[0].shared_bytes == report.kernels[0].predicted_shared_bytes
    counts = report.kernels[0].instructions
    if counts is not None:  # where a disassembler is
        assert counts["FFMA"] >= 512 and counts["LDS.128"] >= 32 and counts.get("LDG.128", 0) + counts.get("LDGSTS.128", 0) >= 2
        assert not any(name.startswith(("LDL", "STL")) for name in counts)


@needs_nvrtc
def test_the_report_reads_as_text():
    text = str(kernel("matmul").compile_report())
    assert text.startswith("compiled for sm_70 by NVRTC ") and "not run" in text
    assert "registers" in text and "(model " in text and "0 bytes" in text


@needs_nvrtc
def test_an_array_that_does_not_fit_registers_is_seen():
    text = """extern "C" __global__ void spilling(const float *X, float *Y, int n)
{ float r[100]; for (int i = 0; i < 100; ++i) r[i] = X[i*n]; Y[0] = r[n]; }"""
    (one,) = compile_cuda(text, "sm_70").kernels
    assert one.stack_bytes == 100 * 4


@needs_nvrtc
def test_text_that_is_wrong_is_refused_with_the_log():
    with pytest.raises(BuildError, match=r"refused the source for sm_70:(.|\n)*nonsense"):
        compile_cuda('extern "C" __global__ void k() { nonsense }', "sm_70")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_1", "compute_7x", ""])
def test_an_architecture_that_does_not_exist_is_refused(arch):
    with pytest.raises(BuildError, match=arch or "arch is ''"):
        compile_cuda('extern "C" __global__ void k() { }', arch)


@needs_nvrtc
def test_an_architecture_that_the_compiler_has_not_got_is_named_with_those_it_has():
    kernel = rg.build(OPERATORS["matmul, odd"](), "k80", profile=False, cache=False, top_k=1)
    assert kernel.language == "cuda"  # there is source all the same
    known = nvrtc.architectures()
    assert 70 in known and known[0] > 37
    listed = ", ".join(f"sm_{one}" for one in known)
    with pytest.raises(BuildError, match=rf"cannot compile for sm_37: it has dropped all earlier ones.*compiles for {listed}\."):
        kernel.compile_report()
    for unknown in ("sm_71", f"sm_{known[-1] + 1}"):
        with pytest.raises(BuildError, match=f"cannot compile for {unknown}: it does not know this one; it compiles for"):
            compile_cuda("", unknown)


def test_a_compiler_that_has_dropped_an_architecture_lately_says_which_has_it():
    cuda_13 = SimpleNamespace(getVersion=lambda: (13, 5), getSupportedArchs=lambda: (75, 80, 90))
    with pytest.raises(BuildError, match=r'dropped all earlier ones; .*an earlier one: pip install "rollergen\[nvrtc\]"'):
        nvrtc.require("sm_70", cuda_13)


def test_the_wheel_of_cuda_13_is_found_where_that_of_12_is_not(monkeypatch, tmp_path):
    (tmp_path / "of_13" / "lib").mkdir(parents=True)
    (tmp_path / "of_13" / "lib" / "libnvrtc.so.13").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(nvrtc_library, "_PACKAGES", ("of_12", "of_13"))
    nvrtc_library.library.cache_clear()
    try:
        with pytest.raises(RuntimeUnavailableError, match=r"of_13/lib/libnvrtc\.so\.13 cannot be loaded"):
            nvrtc_library.library()
    finally:
        nvrtc_library.library.cache_clear()


def test_a_device_without_cuda_is_named():
    with pytest.raises(DeviceError, match=r"mi50 is programmed in opencl: .* such as v100"):
        kernel("matmul, odd", "mi50").compile_report()


def test_a_missing_compiler_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(nvrtc_library, "_PACKAGES", ("nvidia.no_such_package",))
    nvrtc_library.library.cache_clear()
    try:
        with pytest.raises(RuntimeUnavailableError, match=r'NVRTC is not installed; pip install "rollergen\[nvrtc\]"'):
            kernel("matmul, odd").compile_report()
    finally:
        nvrtc_library.library.cache_clear()


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_70'
ptxas info    : Function properties for first
ptxas         .     48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 400 bytes smem, 372 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_70'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""


def test_the_assembler_s_log_is_read_for_every_kernel():
    assert usage(LOG) == (Usage("first", 128, 48, 40, 44, 400), Usage("second", 8, 0, 0, 0, 0))
    with pytest.raises(BuildError, match="names no kernel"):
        usage("ptxas info    : 0 bytes gmem\n")


def test_occupancy_by_each_limit():
    v100 = rg.load_device("v100")
    by = lambda threads, registers, shared: occupancy(Usage("k", registers, 0, 0, 0, shared), threads, v100)
    assert by(256, 32, 0) == 1  # 8 blocks of 8 warps
    assert by(256, 128, 0) == 2 * 256 / 2048  # 65,536 registers
    assert by(256, 65, 0) == 3 * 256 / 2048  # given in eights: 72
    assert by(32, 16, 0) == 32 * 32 / 2048  # 32 blocks at most
    assert by(256, 16, 40000) == 2 * 256 / 2048  # 98,304 bytes
    assert by(32, 16, 98304) == 32 / 2048  # all of it, asked for at launch
    a100 = rg.load_device("a100")
    assert occupancy(Usage("k", 16, 0, 0, 0, 83968 - 1024), 32, a100) == 2 * 32 / 2048  # of 167,936, and 1,024 each
    assert occupancy(Usage("k", 16, 0, 0, 0, 83968 - 1023), 32, a100) == 32 / 2048
    single = replace(v100, limits=replace(v100.limits, blocks_per_unit=1))
    assert occupancy(Usage("k", 16, 0, 0, 0, 0), 256, single) == 256 / 2048


def test_the_main_loop_is_the_one_with_the_most_multiply_adds():
    listing = """.section .text.k
.L_x_0:
    /*0000*/  IADD3 R1, R1, 1, RZ ;
    /*0010*/  @P0 BRA `(.L_x_0) ;
.L_x_1:
    /*0020*/  LDG.E.128.SYS R4, [R2] ;
.L_x_2:
    /*0030*/  FFMA R1, R4, R5, R1 ;
    /*0040*/  FFMA R2, R4, R5, R2 ;
    /*0050*/  @!P1 BRA `(.L_x_2) ;
    /*0060*/  @P2 BRA `(.L_x_3) ;
    /*0070*/  @P0 BRA `(.L_x_1) ;
.L_x_3:
    /*0080*/  EXIT ;
.section .text.straight
    /*0000*/  EXIT ;
"""
    assert loops_counted(listing) == {"k": {"BRA": 1, "FFMA": 2}, "straight": {}}


def test_instructions_are_counted_by_name_and_width():
    listing = """.section .text.k
    /*0000*/  LDG.E.128.SYS R4, [R2] ;
    /*0010*/  @!P0 FFMA R1, R4, R5, R1 ;
    /*0020*/  LDS.U.128 R8, [R3] ;
    /*0030*/  STS [R3], R1 ;
    /*0040*/  NOP ;
    /*0050*/              @!PT LDS RZ, [RZ] ;
"""
    assert counted(listing) == {"k": {"FFMA": 1, "LDG.128": 1, "LDS.128": 1, "STS": 1}}


GRANTED = {  # (threads of a block, blocks of a unit at once): registers a thread, as sm_70's assembler grants them
    (32, 9): 168, (32, 10): 168, (64, 5): 168, (96, 3): 168, (96, 4): 168, (96, 5): 128, (160, 2): 168, (288, 1): 168,
    (544, 1): 96, (736, 1): 80,
}  # fmt: skip


@pytest.mark.parametrize(("threads", "blocks"), GRANTED)
def test_warps_share_the_register_file_by_schedulers(threads, blocks):
    v100, granted = rg.load_device("v100"), GRANTED[threads, blocks]
    warps = -(-threads // 32)
    stage = SimpleNamespace(compute=SimpleNamespace(producer=False, instruction="fma"))
    nest = SimpleNamespace(lockstep=32, warps=warps, stage=stage)
    assert granted_registers(nest, v100, blocks) == granted
    assert warps_by_registers(v100, granted, 32) // warps >= blocks > warps_by_registers(v100, granted + 8, 32) // warps


@needs_nvrtc
def test_the_assembler_grants_what_the_model_grants():
    text = _hungry(threads=32, blocks=9, values=220)
    (one,) = compile_cuda(text, "sm_70").kernels
    assert one.registers == GRANTED[32, 9] and one.spill_store_bytes > 0


def _hungry(threads, blocks, values):
    """A kernel in which so many values live at once."""
    every = range(values)
    loads = "".join(f"float r{i} = X[threadIdx.x*{values} + {i}];" for i in every)
    steps = "".join(f"r{i} = r{i}*r{(i + 7) % values} + r{(i + 31) % values};" for i in every)
    stores = "".join(f"Y[threadIdx.x*{values} + {i}] = r{i};" for i in every)
    head = f'extern "C" __global__ void __launch_bounds__({threads}, {blocks}) k(const float *X, float *Y, int n)'
    return f"{head} {{ {loads} for (int j = 0; j < n; ++j) {{ {steps} }} {stores} }}"
