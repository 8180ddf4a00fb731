"""AMD's back end: what it uses of a GPU's resources, as its assembly says."""

import pytest

from rollergen.hal.compilers import amd_clang
from rollergen.hal.errors import BuildError, RuntimeUnavailableError

installed = pytest.mark.skipif(not amd_clang.is_installed(), reason=f"no clang for AMD: {amd_clang.INSTALL}")

SUM = """
kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void second(global const float *restrict x, global float *restrict y)
{
    local float shared_x[512];
    shared_x[get_local_id(0)] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[get_global_id(0)] = shared_x[255 - get_local_id(0)];
}
kernel __attribute__((reqd_work_group_size(1024, 1, 1)))
void first(global const float *restrict x, global float *restrict y)
{
    float held[128];
    #pragma unroll
    for (int i = 0; i < 128; ++i) held[i] = x[i * 1024 + get_local_id(0)];
    barrier(CLK_GLOBAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < 128; ++i) y[i * 1024 + get_local_id(0)] = held[i] * held[127 - i];
}
"""


@installed
def test_registers_spills_and_local_memory_are_read_of_each_kernel():
    made = amd_clang.compile_opencl(SUM, "gfx906")
    second, first = made.kernels
    assert made.compiler.startswith("clang ") and (second.entry, first.entry) == ("second", "first")
    assert second.lds_bytes == 512 * 4 and second.vgpr_spills == second.private_bytes == 0 and second.waves == 10
    assert first.vgprs <= 64  # all sixteen wavefronts of 1024 work-items: four on each SIMD of 256 registers
    assert first.vgpr_spills > 0 and first.private_bytes > 0 and first.lds_bytes == 0


@installed
def test_text_that_the_compiler_refuses_is_a_build_error():
    with pytest.raises(BuildError, match=r"clang .* refused the source for gfx906:(.|\n)*nonsense"):
        amd_clang.compile_opencl("kernel void f(global float *a) { nonsense; }", "gfx906")
    with pytest.raises(BuildError, match="refused the source for gfx9ff"):
        amd_clang.compile_opencl(SUM, "gfx9ff")


def test_an_architecture_of_another_vendor_is_refused():
    with pytest.raises(BuildError, match="arch is 'sm_70'; expected an architecture of AMD such as 'gfx906'"):
        amd_clang.compile_opencl(SUM, "sm_70")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(amd_clang, "_clang", lambda: "/bin/false")
    monkeypatch.setattr(amd_clang, "_libraries", lambda: None)
    with pytest.raises(RuntimeUnavailableError, match="ROCm's device libraries is not installed; apt-get install"):
        amd_clang.compile_opencl(SUM, "gfx906")
    monkeypatch.setattr(amd_clang, "_clang", lambda: None)
    assert not amd_clang.is_installed()
    with pytest.raises(RuntimeUnavailableError, match="clang 16 or later is not installed"):
        amd_clang.compile_opencl(SUM, "gfx906")


def test_assembly_without_figures_is_refused():
    with pytest.raises(BuildError, match="describes 0 kernels"):
        amd_clang.usage("nothing here")
    with pytest.raises(BuildError, match="metadata lack figures"):
        amd_clang.usage("amdhsa.kernels:\n  - .args:\n    .name:           f\n    .vgpr_count:     3\namdhsa.target: x\n")
