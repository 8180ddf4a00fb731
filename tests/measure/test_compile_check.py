"""Candidates that spill registers are dropped by the compiler's word, where no clock can tell."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, BuildError, DeviceError, RuntimeUnavailableError
from rollergen.hal.compilers import nvrtc, nvrtc_library
from rollergen.measure.compile_check import check_notes, compile_checked
from rollergen.measure.profiler import first_kept

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_installed(), reason="rollergen[nvrtc] is not installed")
CHECKED = rg.BuildOptions(compile_check=True)
V100 = rg.load_device("v100")
MODULE = import_module("rollergen.measure.candidates")
"""Its name in the package is the function."""


def product():
    return rg.ops.matmul(rg.tensor("A", (256, 64)), rg.tensor("B", (64, 256)))


def candidates(count=3):
    return rg.build(product(), "v100", profile=False, cache=False, top_k=count).candidates


def starved(candidate, registers=32):
    """The same kernel with as many blocks on a unit as leave a thread so many registers: it spills."""
    blocks = lambda match: f"__launch_bounds__({match[1]}, {65536 // registers // int(match[1])})"
    text = re.sub(r"__launch_bounds__\((\d+), \d+\)", blocks, candidate.source.text)
    assert text != candidate.source.text
    return replace(candidate, source=replace(candidate.source, text=text))


def nonsense(candidate):
    return replace(candidate, source=replace(candidate.source, text="nonsense"))


@needs_nvrtc
def test_a_candidate_that_spills_fails_and_says_how_much():
    first, second, third = candidates()
    checked = compile_checked((first, starved(second), third), V100)
    assert [one.state for one in checked] == ["not run", "failed", "not run"] and first_kept(checked) == first
    (note,) = check_notes(checked)
    assert re.fullmatch(
        r"compile check: number 2 dropped: [1-9]\d* bytes of local memory a thread in contraction "
        r"\([1-9]\d* bytes of spilled registers written and read\) by NVRTC [\d.]+ for sm_70", note
    )  # fmt: skip


@needs_nvrtc
def test_the_best_that_does_not_spill_is_built_and_explained(monkeypatch, tmp_path):
    monkeypatch.setattr(MODULE, "written", proposing(lambda number, one: starved(one) if number == 0 else one))
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(tmp_path))
    for kernel in (rg.build(product(), "v100", profile=False, top_k=2, options=CHECKED) for _ in range(2)):
        assert kernel.program is kernel.candidates[1].program  # made, and found in the cache
        assert "construction: compile check: number 1 dropped: " in kernel.explain()
        assert not any(one.uses_local_memory for one in kernel.compile_report().kernels)


@needs_nvrtc
def test_where_all_spill_the_least_is_kept_and_said_so(monkeypatch):
    written = proposing(lambda number, one: starved(one, registers=40 if number == 1 else 32))
    monkeypatch.setattr(MODULE, "written", written)
    kernel = rg.build(product(), "v100", profile=False, cache=False, top_k=3, options=CHECKED)
    spilled = [local_bytes(one) for one in kernel.candidates]
    assert all(spilled) and kernel.program is kernel.candidates[spilled.index(min(spilled))].program
    notes = [note for note in kernel.explain(as_dict=True)["construction"] if "compile check" in note]
    kept = [note for note in notes if " kept: " in note and "all candidates use it, none less" in note]
    assert len(notes) == 3 and len(kept) == 1


@needs_nvrtc
def test_where_none_spills_that_is_said():
    kernel = rg.build(product(), "v100", profile=False, cache=False, top_k=2, options=CHECKED)
    assert kernel.program is kernel.candidates[0].program
    assert "compile check: of 2 candidates, none uses local memory" in kernel.explain()


@needs_nvrtc
def test_refused_sources_are_dropped_and_none_left_is_an_error(drops_allowed):
    first, second = candidates(2)
    checked = compile_checked((nonsense(first), second), V100)
    assert "refused the source for sm_70" in checked[0].problems[0] and first_kept(checked) == second
    with pytest.raises(BuildError, match=r"all 2 candidates are refused; the first: NVRTC .* refused"):
        compile_checked((nonsense(first), nonsense(second)), V100)


@needs_nvrtc
def test_an_architecture_that_the_compiler_has_not_got_is_an_error_of_its_own():
    with pytest.raises(BuildError, match=r"^compile_check=True: NVRTC \S+ cannot compile for sm_37: "):
        rg.build(product(), "k80", profile=False, cache=False, top_k=1, options=CHECKED)


def test_without_the_compiler_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(nvrtc_library, "_PACKAGES", ("nvidia.no_such_package",))
    nvrtc_library.library.cache_clear()
    try:
        with pytest.raises(RuntimeUnavailableError, match=r'compile_check=True: .* pip install "rollergen\[nvrtc\]"'):
            rg.build(product(), "v100", profile=False, cache=False, top_k=1, options=CHECKED)
    finally:
        nvrtc_library.library.cache_clear()


def test_a_device_without_cuda_is_refused():
    with pytest.raises(DeviceError, match=r"compile_check=True: mi50 is programmed in opencl: .* such as v100"):
        rg.build(product(), "mi50", profile=False, cache=False, top_k=1, options=CHECKED)


def test_where_candidates_are_timed_the_check_is_left_out():
    kernel = rg.build(product(), "cpu", cache=False, top_k=1, options=CHECKED)
    assert "compile check: left out, as the device is present and candidates are timed" in kernel.explain()


def test_the_option_is_true_or_false():
    with pytest.raises(ArgumentError, match="compile_check is 1; expected True or False"):
        rg.BuildOptions(compile_check=1)


def proposing(change):
    """What writes candidates, each changed by its number."""
    written = MODULE.written

    def changed(*given):
        outcomes, dropped = written(*given)
        return tuple(change(number, one) for number, one in enumerate(outcomes)), dropped

    return changed


def local_bytes(candidate):
    return sum(one.stack_bytes for one in nvrtc.compile_cuda(candidate.source.text, "sm_70").kernels)
