"""Specs of OpenCL devices: what their drivers tell, what micro-benchmarks measure, and that builds find them again."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import rollergen as rg
from rollergen.__main__ import main
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.errors import BuildError, RuntimeUnavailableError, SpecWarning
from rollergen.hal.files.user_specs import user_folder
from rollergen.hal.lints import outer_layers_are_slower
from rollergen.hal.load import load_device, save_device
from rollergen.hal.probes import opencl_probe
from rollergen.hal.probes.meters import Patience
from rollergen.hal.probes.opencl_bench import DEPENDENT_LOADS, OpenCLBench, Sizes
from rollergen.hal.probes.opencl_facts import base_of, described, driver_figures, told
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import describes
from rollergen.hal.runtimes.opencl_platforms import present_devices
from rollergen.targets import resolve
from tests.opencl.devices import facts

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
GPU = replace(facts(), name="gfx906", kinds=frozenset({"GPU"}))
SMALL = Sizes(l3=1 << 20, dram=1 << 20, chased=1 << 20)


@pytest.fixture(scope="module")
def runtime():
    made = BufferRuntime(facts(), dict(present_devices())[facts()])
    made.events_tell  # noqa: B018  asked once, by a kernel of its own, before a test replaces what compiles
    return made


@pytest.fixture
def quick(monkeypatch):
    """A probe of milliseconds: its figures mean nothing."""
    monkeypatch.setattr("rollergen.hal.probes.opencl_bench.LEAST_S", 1e-6)
    monkeypatch.setattr("rollergen.hal.probes.opencl_bench.ROWS_S", 0.0)
    monkeypatch.setattr(opencl_probe, "_sizes", lambda found, base, facts: SMALL)
    never = float("inf")
    hasty = Patience(readings=1, within=never, near=never, least_rounds=2, least_s=0.0, disturbed=never)
    monkeypatch.setattr(opencl_probe.probe_device, "__defaults__", (None, hasty))


def test_a_driver_tells_limits_and_the_rest_is_called_assumed(runtime, tmp_path):
    spec = told(runtime, base_of(runtime), "mine")
    assert spec.units == runtime.device.max_compute_units and spec.limits.threads_per_block == 1024
    assert describes(spec, runtime.facts) and not describes(spec, replace(runtime.facts, platform="Another"))
    origins = dict(spec.provenance)
    assert origins["units"][0] == "measured" and origins["schedulers"] == ("assumed", "as mi50 has it")
    save_device(spec, tmp_path / "mine.json")
    assert load_device(tmp_path / "mine.json") == spec


def test_what_is_printed_of_another_device_does_not_stand_beside_what_was_measured(runtime):
    """Or the level-2 cache would move more than the first."""
    measured = {"l2.bandwidth_gb_s": 50.0, "l2.bytes_per_clock": 25.0, "l1.bytes_per_clock": 25.0}
    found = {"units": 2, "clock_mhz": 1000.0, **measured}
    spec = described(runtime, load_device("mi50"), "mine", found, dict.fromkeys(measured, "a run"))
    assert not spec.layer("l2").bandwidth_nominal_gb_s and spec.layer("dram").bandwidth_nominal_gb_s == 1024
    assert not [path for path, _ in spec.provenance if path == "memory_layers[3].bandwidth_nominal_gb_s"]
    assert not [one for one in outer_layers_are_slower(spec) if " l2 moves" in str(one)]


@pytest.mark.parametrize(("says", "clock"), [(5, 1000.0), (0, 1000.0), (650, 650.0)])
def test_a_clock_that_no_kernel_runs_at_is_not_believed(says, clock, runtime, monkeypatch):
    told = SimpleNamespace(max_clock_frequency=says)
    view = lambda name: getattr(told, name, None) if name in vars(told) else getattr(runtime.device, name)
    other = replace_extensions(runtime, runtime.extensions)
    monkeypatch.setattr(other, "device", type("Slow", (), {"__getattr__": lambda self, name: view(name)})())
    figures = driver_figures(other, load_device("mali-g71"))
    assert next(value for path, value in figures if path == "clock_mhz") == clock


def test_what_a_device_does_not_compute_in_is_no_instruction_of_it(runtime):
    has = {one.dtype for one in base_of(runtime).instructions}
    assert "float64" in has and "float16" not in has  # PoCL's CPU
    bare = replace_extensions(runtime, ())
    assert {one.dtype for one in base_of(bare).instructions} == {"float32", "int8"}
    with pytest.raises(BuildError, match="no cl_khr_fp64; expected a spec without an"):
        bare.compile("kernel void f(global float *x) { x[0] = (float)((double)x[0] + 1); }")
    assert bare.compile("/* double */\nkernel void f(global float *x) { x[0] = 1; }")


def replace_extensions(runtime, extensions):
    other = BufferRuntime(runtime.facts, runtime.device)
    other.__dict__["extensions"] = frozenset(extensions)
    return other


def test_a_probe_is_kept_where_a_build_finds_it(quick):
    done = CliRunner().invoke(main, ["devices", "probe", "--opencl", "pocl:0"])
    assert done.exit_code == 0, done.output
    (file,) = user_folder().glob("*.json")
    assert resolve("opencl:pocl").name == file.stem == load_device(file.stem).name
    kernel = rg.build(rg.ops.relu(rg.tensor("x", (33, 5))), "opencl:pocl", top_k=1, cache=False)
    x = np.linspace(-1, 1, 165, dtype="f4").reshape(33, 5)
    assert kernel.measured_time and np.array_equal(kernel(x), np.maximum(x, 0))
    assert "presence" not in kernel.explain(as_dict=True)
    again = CliRunner().invoke(main, ["devices", "probe", "--opencl", "pocl:0"])
    assert isinstance(again.exception, ArgumentError) or "--force" in again.output


def test_a_probe_of_a_device_that_is_called_as_another_spec_is_found_too(quick, monkeypatch):
    """As a Mali-G71 of other units than the built-in one's."""
    monkeypatch.setattr("rollergen.cli.device_probe._name", lambda text: "mali-g71" + "-units" * (text != facts().name))
    assert CliRunner().invoke(main, ["devices", "probe", "--opencl", "pocl:0"]).exit_code == 0
    (file,) = user_folder().glob("*.json")
    assert file.stem == "mali-g71-units" and resolve("opencl:pocl").name == file.stem
    named = file.rename(file.with_stem("mali-g71"))  # by hand
    assert resolve("opencl:pocl").units == load_device(named).units and resolve("mali-g71").units == 8


def test_a_broken_file_among_the_users_harms_no_other(quick):
    assert CliRunner().invoke(main, ["devices", "probe", "--opencl", "pocl:0"]).exit_code == 0
    (user_folder() / "a.json").write_text("{")
    with pytest.warns(SpecWarning, match=r"a device is left out: a\.json: "):
        assert resolve("opencl:pocl").units == facts().units
    listed = CliRunner().invoke(main, ["devices"])
    assert listed.exit_code == 0 and "mi50" in listed.output and "opencl:" in listed.output
    assert listed.stderr.count("a device is left out: a.json: ") == 1


def test_devices_lists_what_is_present_and_how_to_have_it_described():
    from rollergen.cli.device_list import present

    lines = list(present())
    assert any("in memory of its own: no spec; rollergen devices probe --opencl" in line for line in lines)


def test_every_figure_of_the_bench_is_positive(runtime, monkeypatch):
    monkeypatch.setattr("rollergen.hal.probes.opencl_bench.LEAST_S", 1e-6)
    bench = OpenCLBench(runtime, 2, 1000.0, 64, SMALL)
    found = [*bench.reading_gb_s("l1").values(), *bench.shared_bytes_per_clock().values(), bench.writing_gb_s()]
    found += bench.copies_gb_s().values()
    found += [bench.latency_clocks("l2"), bench.launch_us(4)]
    found += [bench.per_clock(one) for one in load_device("mi50").instructions if one.dtype != "float16"]
    assert all(meter.read() > 0 for meter in found)
    with pytest.raises(BuildError, match="has no cl_khr_fp16"):
        bench.per_clock(load_device("mi50").instruction("pk_fma_f16"))


@pytest.mark.parametrize(("told", "base", "expected"), [
    ({}, "mali-g71", 1 << 17), ({"l2.capacity_bytes": 50 << 20}, "mi50", 1 << 21),
    ({"l2.capacity_bytes": 1 << 16}, "mi50", 1 << 14),
])  # fmt: skip
def test_the_second_level_is_read_in_a_quarter_of_it(told, base, expected):
    found = SimpleNamespace(values={"dram.capacity_bytes": 1 << 30, **told})
    sizes = opencl_probe._sizes(found, load_device(base), GPU)
    assert sizes.l2 == expected
    assert min(sizes.l1, sizes.l2, sizes.dram) >= 16 * opencl_probe.MOST_THREADS  # or threads read behind the end


def test_of_a_gpu_more_is_read_than_its_caches_hold():
    found, spec = SimpleNamespace(values={"dram.capacity_bytes": 192 << 30}), load_device("mi300x")
    sizes = opencl_probe._sizes(found, spec, GPU)
    assert sizes.dram >= 2 * spec.layer("l3").capacity_bytes >= 8 * sizes.l3
    assert opencl_probe._sizes(found, spec, replace(GPU, kinds=frozenset({"CPU"}))).dram == sizes.dram / 4


def test_a_memory_too_small_for_a_probe_is_named():
    with pytest.raises(RuntimeUnavailableError, match=r"gfx906.* has 1048576 bytes; a probe needs 67108864 at least"):
        opencl_probe._sizes(SimpleNamespace(values={"dram.capacity_bytes": 1 << 20}), load_device("mi50"), GPU)


def test_a_third_level_that_the_base_has_is_read_too(quick, monkeypatch):
    monkeypatch.setattr(opencl_probe, "base_of", lambda runtime: load_device("mi300x"))
    probed = opencl_probe.probe_device(facts(), "mine")
    assert "l3.bandwidth_gb_s" in {one.path for one in probed.measured}


def test_the_rate_of_copies_is_a_figure_of_the_spec(quick, tmp_path):
    probed = opencl_probe.probe_device(facts(), "mine")
    save_device(probed.device, tmp_path / "mine.json")
    spec = load_device(tmp_path / "mine.json")
    assert spec.copy_to_gb_s > 0 < spec.copy_back_gb_s and dict(spec.provenance)["copy_to_gb_s"][0] == "measured"


def test_a_launch_that_had_to_wait_makes_no_loop_seem_long(runtime, monkeypatch):
    """Its overhead would be all that is measured."""
    bench, waits = OpenCLBench(runtime, 2, 1000.0, 64, SMALL), iter([0.0, 1.0])
    steps = []
    monkeypatch.setattr(bench.runtime, "seconds", lambda kernel, blocks, threads: 1e-4 + 1e-6 * DEPENDENT_LOADS * steps[-1] + next(waits, 0.0))
    counted = SimpleNamespace(raw=SimpleNamespace(set_arg=lambda position, count: steps.append(int(count))))
    monkeypatch.setattr(bench.runtime, "compile", lambda text: SimpleNamespace(kernel=lambda entry: counted))
    monkeypatch.setattr(bench.runtime, "set_arguments", lambda kernel, buffers: None)
    assert bench.latency_clocks("l1").read() == pytest.approx(1000.0, rel=0.05)


def test_launches_that_take_long_whatever_they_do_are_given_more_to_do(runtime, monkeypatch):
    bench, steps = OpenCLBench(runtime, 2, 1000.0, 64, SMALL), []
    monkeypatch.setattr(bench.runtime, "seconds", lambda kernel, blocks, threads: 5e-3 + 1e-6 * steps[-1])
    counted = SimpleNamespace(raw=SimpleNamespace(set_arg=lambda position, count: steps.append(int(count))))
    monkeypatch.setattr(bench.runtime, "compile", lambda text: SimpleNamespace(kernel=lambda entry: counted))
    monkeypatch.setattr(bench.runtime, "set_arguments", lambda kernel, buffers: None)
    bench.latency_clocks("l1").read()
    assert 1e-6 * steps[-1] > 5e-3


def test_a_device_that_is_not_there_cannot_be_probed():
    done = CliRunner().invoke(main, ["devices", "probe", "--opencl", "nobody:0"])
    assert done.exit_code and (isinstance(done.exception, DeviceError) or "no OpenCL device is 'nobody:0'" in done.output)


def test_a_device_may_be_named_as_builds_name_it():
    assert opencl_probe.probed_facts("opencl:pocl:0") == opencl_probe.probed_facts("pocl:0")


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["devices", "probe", "--cpu", "-o", str(tmp_path / "file" / "my.json")])
    assert done.exit_code and "my.json cannot be written" in done.output
