"""CUDA C++ and OpenCL C, as everything but their printers knows them: these are loaded by the first program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import histogram
from rollergen.hal.languages import Compiler, Language
from rollergen.hal.runtime import (
    cuda_mismatch,
    cuda_runtime_for,
    opencl_device_present,
    opencl_mismatch,
    opencl_runtime_for,
)
from rollergen.hal.runtimes.cuda_devices import cuda_device_present
from rollergen.hal.spec import Device
from rollergen.program.matrix import WAVEFRONT

if TYPE_CHECKING:
    from rollergen.emit.cuda import Cuda
    from rollergen.emit.opencl import OpenCL


def _cuda(device: Device) -> Cuda:
    from rollergen.emit.cuda import Cuda

    return Cuda()


def _opencl(device: Device) -> OpenCL:
    from rollergen.emit.opencl import printer

    return printer(device)


CUDA = Language(
    name="cuda",
    printer=_cuda,
    suffix="cu",
    runtime=cuda_runtime_for,
    present=cuda_device_present,
    mismatch=cuda_mismatch,
    calls_take_device_arrays=True,
    arch=r"(sm_[1-9]\d{1,2}[af]?)?",
    arch_expected="sm_ and the compute capability's digits, such as sm_89, or nothing",
    compiler=Compiler(nvrtc.compile_cuda, nvrtc.named, histogram),
    matrix_layouts=frozenset({"quads", "quad_pairs", "opaque", "warpgroup"}),
    dot_products=True,
    asynchronous_copies=True,
    box_copies=True,
    bounds_registers=True,
)

_SWEEP = """kernel void sweep(global int *memory)
{
    const size_t block = get_group_id(0);
    for (int at = 0; at < BLOCK; at += LINE) {
        memory[block * BLOCK + at] += 1;
    }
}
"""

OPENCL = Language(
    name="opencl", printer=_opencl, suffix="cl", runtime=opencl_runtime_for,
    present=opencl_device_present, mismatch=opencl_mismatch, launchers=True, sweep=_SWEEP, dot_products=True,
    matrix_layouts=frozenset({WAVEFRONT}),
)  # fmt: skip
