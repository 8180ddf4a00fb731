"""How many multiply-adds of a thread a compiler writes out, read from the code that it makes:
``python -m rollergen.hal.probes.unrolling gfx906 sm_80``.

A thread sums a window of 15 x 15 for 1 to 24 outputs; all loops ask to be unrolled.  A compiler leaves one as a loop
where there is too much: the most that it wrote out is what the target of a spec calls ``written_out`` in its dialect.
It is a fact of one compiler: clang 19 writes out 3,600 for gfx906, gfx90a and gfx1100, NVRTC 12.9 as many for sm_70 to
sm_90, and the hipcc of a measured space left loops beyond 1,800 (benches/devices/mi50-hip.json).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from rollergen.hal.compilers import amd_clang, nvrtc, sass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError

TAPS = 15 * 15
OUTPUTS = (1, 4, 8, 9, 12, 16, 20, 24)
_BODY = """
    float sums[OUTPUTS] = {0};
    #pragma unroll
    for (int ky = 0; ky < 15; ky++) {
        #pragma unroll
        for (int kx = 0; kx < 15; kx++) {
            #pragma unroll
            for (int n = 0; n < OUTPUTS; n++) sums[n] += x[at + (ky + n) * 4096 + kx] * w[ky * 15 + kx];
        }
    }
    #pragma unroll
    for (int n = 0; n < OUTPUTS; n++) y[at + n * 4096] = sums[n];
}
"""
_OPENCL = """kernel void probe(global const float *restrict x, constant float *w, global float *restrict y)
{
    const int at = get_global_id(1) * 4096 + get_global_id(0);"""
_CUDA = """extern "C" __global__ void probe(
    const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ y)
{
    const int at = blockIdx.y * 4096 + blockIdx.x * blockDim.x + threadIdx.x;"""


def written_out(arch: str) -> int:
    """Multiply-adds of a thread that the compiler for `arch` writes out at most, of those that are tried; 0: not the
    fewest.

    Raises RuntimeUnavailableError where compiler or disassembler is not installed, BuildError for an unknown name.
    """
    rolled = _rolled_by_clang if arch.startswith("gfx") else _rolled_by_nvrtc
    return most_written_out(lambda outputs: rolled(outputs, arch))


def most_written_out(is_rolled: Callable[[int], bool]) -> int:
    """`is_rolled`: of so many outputs, whether a loop is left."""
    found = 0
    for outputs in OUTPUTS:
        if is_rolled(outputs):
            break
        found = outputs * TAPS
    return found


def has_loop(assembly: str) -> bool:
    """Whether AMD's assembly jumps back.

    >>> has_loop(".LBB0_1:\\n v_fmac_f32 v0, v1, v2\\n s_cbranch_scc1 .LBB0_1")
    True
    """
    seen: set[str] = set()
    for line in assembly.splitlines():
        if label := re.match(r"(\.LBB\d+_\d+):", line):
            seen.add(label[1])
        jump = re.search(r"\bs_c?branch\w* (\.LBB\d+_\d+)", line)
        if jump and jump[1] in seen:
            return True
    return False


def _rolled_by_clang(outputs: int, arch: str) -> bool:
    text = (_OPENCL + _BODY).replace("OUTPUTS", str(outputs))
    return has_loop(amd_clang.compile_opencl(text, arch).assembly)


def _rolled_by_nvrtc(outputs: int, arch: str) -> bool:
    compiled = nvrtc.compile_cuda((_CUDA + _BODY).replace("OUTPUTS", str(outputs)), arch)
    loops = sass.main_loops(compiled.code)
    if loops is None:
        raise RuntimeUnavailableError(f"no disassembler here reads {arch}; benches/setup_nvdisasm.py fetches one")
    return bool(loops["probe"])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", nargs="+", help="sm_80, gfx906, ...")
    for arch in parser.parse_args(words).arch:
        try:
            print(f"{arch}: written_out {written_out(arch)}")
        except (RuntimeUnavailableError, BuildError) as error:
            raise SystemExit(f"{arch}: {error}") from None


if __name__ == "__main__":
    main()
