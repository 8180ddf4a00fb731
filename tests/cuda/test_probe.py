"""The probe of a CUDA GPU: its kernels compile for real GPUs, and run, through a stand-in for CuPy, on the CPU."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from rollergen.hal import runtime as runtimes
from rollergen.hal.compilers import nvrtc
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.load import load_device, save_device
from rollergen.hal.probes import cuda_probe
from rollergen.hal.probes.cuda_microbench import (
    DISTANCES,
    STRIDES,
    Effort,
    WorkingSets,
    banks,
    kernels_text,
    sector_bytes,
)
from rollergen.hal.probes.cuda_microbench_text import peak_text
from rollergen.hal.probes.microbench import Figure
from tests.cli.test_cli import run
from tests.cuda.host import compiler

QUICK = Effort(steps=4, rounds=2, bytes=1 << 16, launches=2)
SETS = WorkingSets(16 << 10, 8 << 10, 1 << 20, 1 << 28)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_installed(), reason=nvrtc.INSTALL)
needs_cpp = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def fake():
    """Environment with the stand-in: a GPU of two units and 64 MiB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).with_name("fake")))
        patch.syspath_prepend(str(Path(__file__).parents[2]))
        patch.setenv("FAKE_GPU", f"Tesla V100-PCIE-16GB|7|0|{64 << 20}")
        _forget()
        yield patch
    _forget()


def _forget():
    runtimes._cuda_runtime.cache_clear()
    for name in [name for name in sys.modules if name == "cupy" or name.startswith("cupy.")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def probed(fake):
    return cuda_probe.probe_cuda("mine", QUICK)


@needs_nvrtc
@pytest.mark.parametrize(("arch", "name"), [("sm_70", "v100"), ("sm_80", "a100"), ("sm_90", "h200")])
def test_every_kernel_compiles_and_none_spills(arch, name):
    device = load_device(name)
    kernels = nvrtc.compile_cuda(kernels_text(device.units, SETS, Effort()), arch).kernels
    peaks = [one for one in device.instructions if one.layout in ("", "quads")]
    kernels += tuple(nvrtc.compile_cuda(peak_text("peak", one, 4096), arch).kernels[0] for one in peaks)
    assert len(kernels) >= 25 + 4 and all(one.spill_store_bytes == 0 for one in kernels)


def test_an_instruction_without_a_text_is_named():
    with pytest.raises(BuildError, match="no micro-benchmark for opaque fragments of float16"):
        peak_text("peak", load_device("v100").instruction("wmma"), 1)


@needs_cpp
def test_the_spec_is_what_the_driver_says_and_what_was_measured(probed, tmp_path):
    save_device(probed.device, tmp_path / "mine.json")
    device = load_device(tmp_path / "mine.json")
    assert (device.name, device.units, device.title) == ("mine", 2, "Tesla V100-PCIE-16GB")
    assert device.layer("dram").capacity_bytes == 64 << 20 and device.layer("l2").capacity_bytes == 1 << 20
    figures = {one.path: one for one in probed.measured}
    assert {"clock_mhz", "launch_us", "fma.per_clock", "fma_f64.per_clock", "dram.bandwidth_gb_s"} <= set(figures)
    assert all(one.value > 0 and one.spread >= 0 for one in probed.measured)
    assert device.clock_mhz == figures["clock_mhz"].value and device.launch_us == figures["launch_us"].value
    origins = dict(probed.device.provenance)
    assert origins["clock_mhz"][0] == "measured" and "median" in origins["clock_mhz"][1]
    assert origins["units"] == ("measured", origins["units"][1]) and "multiProcessorCount" in origins["units"][1]


@needs_cpp
def test_what_cannot_be_measured_there_is_marked_and_kept(probed):
    missing, v100 = dict(probed.not_measured), load_device("v100")
    assert "opaque fragments" in missing["wmma.per_clock"]
    assert {"costs", "instructions.latency_clocks", "hfma2.per_clock"} <= set(missing)
    # a CPU has no banks to collide on
    assert "kept as v100 has it: 32" in missing["shared.banks"]
    assert probed.device.layer("shared").banks == 32
    assert probed.device.instruction("wmma") == v100.instruction("wmma")
    assert "clock after" in dict(probed.state) and dict(probed.state)["temperature"].startswith("not readable")


@needs_cpp
def test_another_card_starts_from_the_nearest_and_carries_as_assumed(fake):
    from rollergen.hal.runtimes.cuda_runtime import Gpu

    ada = Gpu(0, "NVIDIA L40S", (8, 9), 24 << 30, 101376, 1024, 48 << 20)
    base = cuda_probe.base_of(ada)
    assert base.name == "rtx4090"
    found = cuda_probe._Findings()
    found.told("units", 142, "the driver")
    device = cuda_probe._assembled(base, ada, "l40s", found)
    origins = dict(device.provenance)
    assert device.units == 142 and origins["units"] == ("measured", "the driver")
    assert {kind for path, (kind, _) in origins.items() if path != "units"} == {"assumed"}
    assert device.targets[0].arch == "sm_89" and not any(one.peak_dense_tflop_s for one in device.instructions)
    with pytest.raises(RuntimeUnavailableError, match="older than every CUDA spec"):
        cuda_probe.base_of(Gpu(0, "Tesla C2050", (2, 0), 3 << 30, 49152, 1024, 768 << 10))


@pytest.mark.parametrize(("number", "width"), [(32, 4), (16, 4), (32, 8)])
def test_banks_follow_from_what_strides_cost(number, width):
    def waves(stride):
        words = {lane * stride * 4 // width for lane in range(32)}
        return max(Counter(word % number for word in words).values())

    assert banks({stride: Figure(128 / waves(stride), 0.0) for stride in STRIDES}) == (number, width)


def test_without_a_step_no_banks_and_no_sectors_are_seen():
    assert banks({stride: Figure(128, 0.0) for stride in STRIDES}) == (0, 0)
    assert sector_bytes({apart: Figure(1.0, 0.0) for apart in DISTANCES}) == 0
    assert sector_bytes({apart: Figure(float(apart), 0.0) for apart in DISTANCES}) == 0
    assert sector_bytes({apart: Figure(min(apart, 32), 0.0) for apart in DISTANCES}) == 32


@pytest.mark.parametrize("words", [[], ["--cuda", "--cpu"], ["--cuda", "--opencl", "0"], ["--cpu", "--opencl", "0:0"]])
def test_one_device_is_probed(words, tmp_path):
    result = run("devices", "probe", *words, "-o", str(tmp_path / "x.json"))
    assert result.exit_code == 2 and "expected one of --cpu, --opencl P:D and --cuda" in result.stderr


def test_without_cupy_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = run("devices", "probe", "--cuda", "-o", str(tmp_path / "x.json"))
    assert result.exit_code == 2 and "CuPy is missing" in result.stderr and not (tmp_path / "x.json").exists()


@needs_cpp
def test_the_command_writes_the_spec(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_probe.probe_cuda, "__defaults__", (QUICK,))
    told = json.loads(run("devices", "probe", "--cuda", "-o", str(tmp_path / "my.json"), "--json").stdout)
    assert told["device"] == "my" and load_device(tmp_path / "my.json").units == 2
