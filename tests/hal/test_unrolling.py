"""What a compiler writes out of loops that ask to be unrolled, read from the code that it makes."""

import pytest

from rollergen.hal.compilers import amd_clang, nvrtc, sass
from rollergen.hal.probes.unrolling import OUTPUTS, TAPS, _rolled_by_clang, _rolled_by_nvrtc, has_loop, most_written_out


def test_the_most_that_leaves_no_loop_is_found():
    assert most_written_out(lambda outputs: outputs > 8) == 8 * TAPS
    assert most_written_out(lambda outputs: False) == OUTPUTS[-1] * TAPS
    assert most_written_out(lambda outputs: True) == 0


def test_only_a_jump_back_is_a_loop():
    body = " v_fmac_f32_e32 v0, v1, v2\n"
    assert has_loop(f".LBB0_1:\n{body} s_cbranch_scc1 .LBB0_1\n")
    assert not has_loop(f" s_cbranch_vccz .LBB0_2\n{body}.LBB0_2:\n s_endpgm\n")


@pytest.mark.skipif(not amd_clang.is_installed(), reason=f"no clang for AMD: {amd_clang.INSTALL}")
@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx1100"])
def test_clang_writes_out_few_outputs_of_a_window_and_leaves_loops_of_many(arch):
    assert not _rolled_by_clang(4, arch)
    assert _rolled_by_clang(24, arch)


@pytest.mark.skipif(not (nvrtc.is_installed() and sass.disassemblers()), reason="no NVRTC, or no disassembler")
def test_nvrtc_writes_out_few_outputs_of_a_window():
    assert not _rolled_by_nvrtc(4, "sm_80")
