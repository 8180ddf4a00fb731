"""A spec from the device that is present: measured figures with their spread, the rest marked."""

import json

import pytest

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.lints import WARNING, lint
from rollergen.hal.load import load_device, save_device
from rollergen.hal.probes import chases, device_probe
from rollergen.hal.probes.chases import first_dear
from rollergen.hal.probes.host_facts import NOT_READABLE, cache_levels, clock_state
from rollergen.hal.probes.host_probe import Probe, probe
from rollergen.hal.probes.microbench import Figure
from tests.cli.test_cli import ok, run


@pytest.fixture(scope="module")
def probed():
    """The whole of the probe, on short working sets and with the figures that are kept for this machine.  Latencies are
    taken and told: on a busy machine they may be unsteady, or fall outward."""
    caches, taken = cache_levels(), chases.latencies_ns

    def told(*asked):
        *steady, last = taken(*asked)
        return {layer: Figure(2.0**number, 0.01) for number, layer in enumerate(steady)} | {last: Figure(99.0, 0.5)}

    small = {**{cache.name: 8192 * 4**cache.level for cache in caches}, "dram": 1 << 22}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_probe, "PATIENCE", 1)
        patch.setattr(chases, "latencies_ns", told)
        patch.setattr(device_probe, "working_sets", lambda *_: small)
        patch.setattr(device_probe, "measure", lambda *_: probe(caches))
        return device_probe.probe_cpu("mine")


def test_the_spec_passes_the_checks_and_builds_kernels(probed, tmp_path):
    file = tmp_path / "mine.json"
    save_device(probed.device, file)
    assert [str(one) for one in lint(load_device(file)) if one.severity == WARNING] == []
    words = ["build", "matmul", "m=64", "n=64", "k=64", "--device", str(file), "--top-k", "1", "--no-cache", "--json"]
    built = json.loads(ok(*words))
    assert built["check"]["compared_elements"] > 0


def test_every_measured_figure_has_a_spread_and_says_so_in_the_spec(probed):
    origins = dict(probed.device.provenance)
    paths = {one.path for one in probed.measured}
    assert {"clock_mhz", "launch_us", "vfma.per_clock", "vfma_f64.per_clock"} <= paths
    assert all(one.spread >= 0 and one.value > 0 for one in probed.measured)
    whole = ("vfma.per_clock", "vfma_f64.per_clock", "l1.bytes_per_clock", "l1.write_bytes_per_clock")
    assert all(one.raw == one.value for one in probed.measured if one.path not in whole)
    unsteady = {path for path, why in probed.not_measured if "not steady" in why}
    *steady, last = probed.device.layers[1:]
    assert unsteady == {f"{last.name}.latency_clocks"} and unsteady.isdisjoint(paths)
    for number, layer in enumerate(steady, start=1):
        assert f"{layer.name}.latency_clocks" in paths and layer.latency_clocks
        assert origins[f"memory_layers[{number}].latency_clocks"][0] == "measured"


def test_what_cannot_be_measured_is_marked_and_stays_assumed(probed):
    unknown = dict(probed.not_measured)
    assert {"costs", "tlbs", "banks, bank_bytes"} <= set(unknown) and all(unknown.values())
    origins = dict(probed.device.provenance)
    assert origins["tlbs[0].entries"][0] == "assumed"
    assert origins["costs.norm_exponent"][0] == "fitted"
    assert "governor before" in origins["clock_mhz"][1]


@pytest.mark.parametrize(
    ("nanoseconds", "line"),
    [
        ({16: 6.6, 32: 6.6, 64: 8.8, 128: 8.9}, 64),
        ({16: 6.6, 32: 8.4, 64: 8.8, 128: 8.9}, 32),
        ({16: 6.6, 32: 6.6, 64: 6.7, 128: 6.8}, 0),
        ({16: 6.6, 32: 9.9, 64: 6.7, 128: 8.8}, 128),
        ({16: 6.6, 32: 9.9, 64: 6.7, 128: 6.8}, 0),
    ],
)
def test_a_line_ends_where_all_further_loads_are_dear(nanoseconds, line):
    assert first_dear({offset: Figure(value, 0.0) for offset, value in nanoseconds.items()}) == line


def test_the_state_of_the_clock_is_what_the_system_says(tmp_path):
    (tmp_path / "scaling_governor").write_text("performance\n")
    (tmp_path / "scaling_cur_freq").write_text("3400000\n")
    (tmp_path / "core_throttle_count").write_text("7\n")
    state = dict(clock_state(tmp_path, tmp_path / "none", tmp_path))
    assert state == {"governor": "performance", "clock": "3400 MHz", "temperature": NOT_READABLE, "throttled": "7"}


@pytest.mark.parametrize(
    ("file", "text"),
    [("my.txt", "expected a file such as my.json"), ("9.json", "begins with a letter"), ("old.json", "--force")],
)
def test_the_file_must_be_a_new_spec(tmp_path, file, text):
    (tmp_path / "old.json").write_text("{}")
    result = run("devices", "probe", "--cpu", "-o", str(tmp_path / file))
    assert result.exit_code == 2 and text in result.stderr
    assert (tmp_path / "old.json").read_text() == "{}"


def figures(**changed):
    layers = {"l1": 60.0, "dram": 10.0}
    return Probe(**{
        "runtime": "r", "units": 2, "clock_mhz": 3000.0, "peak_gflop_s": 90.0, "lanes": 8, "attribute": "",
        "read_bytes_per_clock": layers, "write_bytes_per_clock": layers, "read_gb_s": layers, "launch_us": 2.0,
        "wake_us": 10.0, "spread": {"clock": 0.01, "l1": 0.1, "dram": 0.2}, **changed,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"clock_mhz": 2000.0}, "clock_mhz does not repeat: 3000 and then 2000; the machine is busy"),
        ({"read_gb_s": {"l1": 60.0, "dram": 84.2}}, r"dram\.bandwidth_gb_s does not repeat: 10 and then 84\.2;"),
        ({"write_bytes_per_clock": {"l1": 30.0, "dram": 10.0}}, r"l1\.write_bytes_per_clock does not repeat: 60 and then 30;"),
        ({"launch_us": 9.0}, "launch_us does not repeat: 2 and then 9; .*: end what else runs there, and probe again"),
    ],
)
def test_a_figure_that_does_not_repeat_is_refused_with_both_values(changed, text):
    made = iter((figures(), figures(**changed)))
    with pytest.raises(RuntimeUnavailableError, match=text):
        device_probe.repeated(lambda: next(made))


def test_of_two_measurements_that_agree_the_better_figures_stay():
    other = figures(clock_mhz=3100.0, launch_us=1.8, wake_us=25.0, read_gb_s={"l1": 62.0, "dram": 9.0})
    made = iter((figures(), other))
    found = device_probe.repeated(lambda: next(made))
    assert (found.clock_mhz, found.launch_us, found.wake_us) == (3100.0, 1.8, 10.0)
    assert found.read_gb_s == {"l1": 62.0, "dram": 10.0}


def test_the_command_writes_nothing_of_figures_that_do_not_repeat(tmp_path, monkeypatch):
    made = iter((figures(), figures(clock_mhz=1000.0)))
    monkeypatch.setattr(device_probe, "measure", lambda *_: next(made))
    result = run("devices", "probe", "--cpu", "-o", str(tmp_path / "mine.json"))
    assert result.exit_code == 2 and "clock_mhz does not repeat: 3000 and then 1000" in result.stderr
    assert not (tmp_path / "mine.json").exists()
