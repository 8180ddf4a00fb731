"""Which OpenCL device a name means, and which spec describes one: by properties that drivers of real cards report."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from rollergen.cli.device_list import present
from rollergen.errors import DeviceError, DeviceWarning
from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.load import device_names, load_device
from rollergen.hal.probes import opencl_probe
from rollergen.hal.runtimes import opencl_platforms
from rollergen.hal.runtimes.card_names import names_card
from rollergen.hal.runtimes.opencl_devices import (
    Present,
    best,
    chosen,
    describes,
    meant,
    mismatch,
    placed,
    runs_on,
    spec_of,
)
from rollergen.hal.runtimes.opencl_runtime import cpu_devices
from rollergen.hal.spec import Target
from rollergen.targets import resolve

AMD = Present(
    0, 0, "AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc. AMD-APP",
    "gfx906:sramecc+:xnack-", "Advanced Micro Devices, Inc.", "AMD Radeon Graphics", frozenset({"GPU"}), 60, 1725, False,
)  # fmt: skip
"""An MI50 as ROCm 7 describes it (AlphaMine-Tech/alpha-miner, issue 5; the platform's lines: nanominer, issue 104)."""

MI210 = replace(AMD, name="gfx90a:sramecc+:xnack-", board="AMD Instinct MI210", units=104, clock_mhz=1700)
"""Name, board, units and clock as ROCm lists them (ROCm/legacy-rocm-build, issues 2595 and 3460)."""
MI300X = replace(AMD, name="gfx942:sramecc+:xnack-", board="AMD Instinct MI300X", units=304, clock_mhz=2100)
"""The same of an MI300X (ROCm/legacy-rocm-build, issues 4021 and 4414)."""
BOTH = replace(AMD, board="AMD Instinct MI60 / MI50")
"""What ROCm 6 calls an MI50, and an MI60, which has 64 units (lamikr/rocm_sdk_builder, issue 180)."""

MALI = Present(
    0, 0, "ARM Platform", "ARM v1", "Mali-G71", "ARM", "",
    frozenset({"GPU"}), 8, 5, True,
)  # fmt: skip
"""A HiKey 960's as clinfo lists it, its clock too (96boards-hikey/linux, pull request 59)."""

LLVMPIPE = Present(
    1, 0, "rusticl", "Mesa/X.org", "llvmpipe (LLVM 15.0.6, 256 bits)", "Mesa/X.org", "", frozenset({"CPU"}), 2,
    0, True,
)  # fmt: skip
OCLGRIND = Present(
    2, 0, "Oclgrind", "James Price, University of Bristol Oclgrind", "Oclgrind Simulator",
    "James Price, University of Bristol", "", frozenset({"CPU", "GPU", "ACCELERATOR"}), 1, 1, True,
)  # fmt: skip
POCL = replace(
    LLVMPIPE, platform_number=3, platform="Portable Computing Language", name="pthread-AMD EPYC 9B45",
    maker="The pocl project PoCL", vendor="AuthenticAMD",
)  # fmt: skip
EVERY = (AMD, LLVMPIPE, OCLGRIND, POCL)


def specs():
    return [load_device(name) for name in device_names()]


@pytest.mark.parametrize(
    ("present", "name"),
    [
        (AMD, "mi50"),
        (replace(AMD, name="gfx906+sram-ecc", board="Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]", units=60), "mi50"),
        (replace(AMD, name="gfx906", board="Device 66a1"), "mi50"),
        (BOTH, "mi50"),
        (MI210, "mi210"),
        (MI300X, "mi300x"),
        (MALI, "mali-g71"),
        (replace(MALI, name="Mali-G71 MP8"), "mali-g71"),
        (replace(MALI, name="Mali-G71 (Panfrost)", platform="rusticl", maker="Mesa/X.org"), "mali-g71"),
    ],
)
def test_a_present_device_finds_its_spec(present, name):
    found = spec_of(present, specs())
    assert found.name == name and runs_on(found, present) and mismatch(found, present) == ""


@pytest.mark.parametrize(
    ("present", "message"),
    [
        (replace(BOTH, units=64), "its architecture is that of mi50"),
        (replace(AMD, units=64), r"its architecture is that of mi50, which .* rollergen devices probe --opencl 0:0"),
        (replace(AMD, board="AMD Radeon VII"), "its architecture is that of mi50"),
        (replace(MI300X, units=38), "its architecture is that of mi300x"),  # a part of one
        (replace(MALI, name="Mali-G71 MP20", units=20), "its architecture is that of mali-g71"),
        (replace(AMD, name="gfx90a", board="AMD Instinct MI250X/MI250", units=104), "its architecture is that of mi210"),
        (replace(AMD, name="gfx942", board="AMD Instinct MI325X", units=304), "its architecture is that of mi300x"),
        (replace(AMD, name="gfx1100", board="Radeon RX 7900 XTX", units=48), "describes gfx1100 Radeon RX 7900 XTX of AMD"),
        (replace(MALI, name="Mali-G710 r0p0"), "no device spec describes Mali-G710 r0p0 of ARM Platform"),
        (POCL, r"rollergen devices probe --opencl 3:0 writes one"),
    ],
)
def test_another_card_finds_none_and_is_told_what_to_do(present, message):
    with pytest.raises(RuntimeUnavailableError, match=message):
        spec_of(present, specs())


def test_a_named_spec_runs_on_another_card_of_its_architecture_and_says_so():
    mi50, other = load_device("mi50"), replace(AMD, units=64)
    assert runs_on(mi50, other) and not describes(mi50, other)
    assert "made for mi50" in mismatch(mi50, other)
    assert not runs_on(mi50, replace(AMD, name="gfx900")) and not runs_on(load_device("v100"), AMD)


def test_a_probed_spec_is_of_its_device_whatever_cores_the_process_may_use():
    target = Target("opencl", "", (("gpu", LLVMPIPE.name), ("platform", LLVMPIPE.platform)))
    probed = replace(load_device("mi50"), targets=(target,))
    assert describes(probed, LLVMPIPE) and describes(probed, replace(LLVMPIPE, units=1)) and not describes(probed, POCL)


def test_of_two_cards_of_an_architecture_a_spec_runs_on_its_own():
    other = replace(AMD, board="AMD Instinct MI60", units=64)
    mi50, own = load_device("mi50"), replace(AMD, number=1)
    assert meant(mi50, [LLVMPIPE, other, own]) is own and meant(mi50, [LLVMPIPE, other]) is other
    assert meant(mi50, [LLVMPIPE, POCL]) is None


def test_a_placed_spec_runs_in_its_place_alone():
    first, second = POCL, replace(POCL, number=1)
    spec = placed(load_device("mi50"), second)
    assert runs_on(spec, second) and not runs_on(spec, first) and not runs_on(spec, AMD)
    assert spec.name == "mi50" and spec != load_device("mi50")


@pytest.mark.parametrize(
    ("which", "present"),
    [
        ("0:0", AMD), ("3", POCL), ("pocl:0", POCL), ("PoCL:epyc", POCL), ("portable", POCL), ("rusticl:llvmpipe", LLVMPIPE),
        ("mesa", LLVMPIPE), ("oclgrind:0", OCLGRIND), ("amd:radeon", AMD), ("", AMD),
    ],
)  # fmt: skip
def test_a_device_is_chosen_by_numbers_or_parts_of_names(which, present):
    assert chosen(which, EVERY) is present


@pytest.mark.parametrize(
    ("vendor", "version", "maker"),
    [
        ("The pocl project", "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF", "The pocl project PoCL"),
        ("Advanced Micro Devices, Inc.", "OpenCL 2.1 AMD-APP (3602.0)", "Advanced Micro Devices, Inc. AMD-APP"),
        ("James Price, University of Bristol", "OpenCL 1.2 (Oclgrind 21.10)", "James Price, University of Bristol Oclgrind"),
        ("Intel(R) Corporation", "OpenCL 3.0 LINUX", "Intel(R) Corporation"),
        ("NVIDIA Corporation", "OpenCL 3.0 CUDA 12.4.131", "NVIDIA Corporation CUDA"),
        ("Mesa/X.org", "OpenCL 3.0 ", "Mesa/X.org"),
        ("ARM", "OpenCL 2.0 v1.r9p0-01rel0.37c12a13c46b4c2d9d736e0d5ace2e5e", "ARM v1"),
    ],
)
def test_a_platform_is_meant_by_its_vendor_and_its_own_name_and_by_nothing_else_of_its_version(vendor, version, maker):
    """"llvm" is a part of llvmpipe's name, and of the compiler's that PoCL was built with."""
    assert opencl_platforms._maker(SimpleNamespace(vendor=vendor, version=version)) == maker


def test_the_word_opencl_alone_means_the_same_to_a_probe_as_to_a_build(monkeypatch):
    monkeypatch.setattr(opencl_probe, "present_devices", lambda: [(one, None) for one in EVERY])
    assert opencl_probe.probed_facts("opencl") is AMD and opencl_probe.probed_facts("opencl:pocl:0") is POCL


def test_of_several_devices_that_a_name_means_the_best_is_chosen_and_of_equal_ones_the_first():
    inside, twin = replace(AMD, unified=True, units=8), replace(AMD, number=2)
    found = [inside, replace(AMD, number=1), twin]
    assert chosen("amd", found) is found[1] and chosen("amd:2", found) is twin and chosen("amd:0", found) is inside


@pytest.mark.parametrize("which", [":", ":0"])
def test_a_platform_has_to_be_named(which):
    with pytest.raises(RuntimeUnavailableError, match=f"'{which}' names no platform; expected PLATFORM:DEVICE.* opencl:0:0 gfx906"):
        chosen(which, EVERY)


@pytest.mark.parametrize("which", ["4:0", "pocl:1", "nobody", "0:mali"])
def test_a_device_that_is_not_there_is_answered_with_those_that_are(which):
    with pytest.raises(RuntimeUnavailableError, match=r"expected PLATFORM:DEVICE.* opencl:3:0 pthread-AMD EPYC 9B45 of Port"):
        chosen(which, EVERY)


@pytest.mark.parametrize("which", ["", "0:0"])
def test_platforms_without_a_device_are_answered_with_what_brings_one(which):
    with pytest.raises(RuntimeUnavailableError, match=r"no OpenCL platform here has a device; .*rocm-opencl-runtime.*\[cpu\]"):
        chosen(which, [])


def test_the_best_is_a_gpu_with_memory_of_its_own_and_never_a_cpu():
    small, large = replace(AMD, number=1, units=30), replace(AMD, number=2, unified=True, units=200)
    board = replace(AMD, number=3, kinds=frozenset({"ACCELERATOR"}), units=500)
    assert best([LLVMPIPE, large, small, board, OCLGRIND, AMD]) is AMD
    with pytest.raises(RuntimeUnavailableError, match="no OpenCL device is present that is no CPU; expected device='cpu'"):
        best([LLVMPIPE, OCLGRIND, POCL])


def test_names_of_cards_are_whole_words():
    assert names_card("MI50", "Radeon Instinct MI50 32GB") and not names_card("MI50", "MI500") and not names_card("i50", "MI50")


def test_a_device_that_no_spec_describes_is_an_error_that_says_what_to_do():
    with pytest.raises(DeviceError, match=r"'opencl:pocl:0': no device spec describes .* rollergen devices probe --opencl \d:0"):
        resolve("opencl:pocl:0")


def test_cuda_has_one_current_gpu_and_no_numbers():
    with pytest.raises(DeviceError, match="cuda:1 is no device; expected 'cuda'"):
        resolve("cuda:1")


def test_cpus_used_in_place_are_those_of_makers_whose_text_for_cpus_is_right():
    kinds = SimpleNamespace(CPU=2)

    def platform(name, *types):
        made = SimpleNamespace(name=name)
        made.get_devices = lambda: [SimpleNamespace(type=one, platform=made, name=name) for one in types]
        return made

    every = [platform("Oclgrind", 14), platform("rusticl", 2), platform("Intel(R) OpenCL", 2), platform(POCL.platform, 2, 4)]
    opencl = SimpleNamespace(get_platforms=lambda: every, device_type=kinds)
    assert [one.name for one in cpu_devices(opencl)] == [POCL.platform, "Intel(R) OpenCL"]


def test_a_gpu_that_is_present_is_preferred_to_the_cpu_and_its_spec_is_placed_there(monkeypatch):
    monkeypatch.setattr(opencl_platforms, "present_devices", lambda: tuple((one, None) for one in EVERY))
    monkeypatch.setattr("rollergen.targets._GPUS", (("pyopencl", "opencl"),))  # no CUDA, whatever is installed
    for asked in (None, "opencl", "opencl:amd:0"):
        found = resolve(asked)
        assert found.name == "mi50" and runs_on(found, AMD) and not runs_on(found, replace(AMD, number=1))
    alone = tuple((one, None) for one in EVERY if one is not AMD)
    monkeypatch.setattr(opencl_platforms, "present_devices", lambda: alone)
    assert resolve(None).name == "cpu"


def test_a_gpu_that_no_spec_describes_is_not_passed_over_silently(monkeypatch):
    unknown = replace(AMD, name="gfx1100", board="Radeon RX 7900 XTX")
    monkeypatch.setattr(opencl_platforms, "present_devices", lambda: ((unknown, None),))
    monkeypatch.setattr("rollergen.targets._GPUS", (("pyopencl", "opencl"),))
    with pytest.warns(DeviceWarning, match="no device spec describes .*gfx1100.* rollergen devices probe --opencl"):
        assert resolve(None).name == "cpu"


def test_devices_lists_a_gpu_with_its_spec(monkeypatch):
    monkeypatch.setattr(opencl_platforms, "present_devices", lambda: ((AMD, None),))
    monkeypatch.setattr("rollergen.cli.device_list.present_devices", lambda: ((AMD, None),))
    (line,) = present()
    assert line.startswith("opencl:0:0: gfx906:sramecc+:xnack-, GPU of AMD") and line.endswith(": mi50")
