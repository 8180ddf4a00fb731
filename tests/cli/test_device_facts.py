"""The commands about one device: show, check, compare, what-if."""

import json

import pytest

from rollergen.hal.load import device_hash, load_device, parse_device
from tests.cli.test_cli import ok, run


def test_show_prints_every_figure_with_kind_and_source():
    text = ok("devices", "show", "v100")
    assert "dram.bandwidth_gb_s" in text and "datasheet" in text
    assert device_hash(load_device("v100")) in text
    spec = parse_device(ok("devices", "show", "v100-sxm2", "--json").encode(), "shown.json")
    assert spec == load_device("v100-sxm2")


def test_check_ends_with_1_where_there_are_warnings(tmp_path):
    assert "v100: 0 warnings, 1 note" in ok("devices", "check", "v100")
    mine = tmp_path / "mine.json"
    head = {"format": "rollergen.device.v1", "name": "mine", "title": "mine", "extends": "v100", "clock_mhz": 1.38}
    mine.write_text(json.dumps(head))
    result = run("devices", "check", str(mine))
    assert result.exit_code == 1
    assert "warning: clock_mhz is 1.38 (" in result.stdout
    found = json.loads(run("devices", "check", str(mine), "--json").stdout)
    assert any(f["path"] == "clock_mhz" and f["severity"] == "warning" and f["reason"] for f in found["findings"])


def test_compare_shows_what_differs_and_nothing_else():
    found = json.loads(ok("devices", "compare", "v100", "v100-sxm2", "--json"))
    assert found["clock_mhz"] == {"first": 1380, "second": 1530}
    assert "units" not in found
    assert "1.11" in ok("devices", "compare", "v100", "v100-sxm2")


def test_what_if_shows_the_limiter_before_and_after_and_where_it_changes():
    words = ["devices", "what-if", "v100", "relu", "shape=4096x1024", "--set", "dram.bandwidth_gb_s=9000"]
    found = json.loads(ok(*words, "--json"))
    before, after = found["as it is"], found["changed, the same program"]
    assert before["limiter"] == "dram bandwidth" != after["limiter"]
    assert after["seconds"] < before["seconds"]
    at = found["limiter_changes_at"]["dram.bandwidth_gb_s"]
    assert 750 < at < 9000
    below = json.loads(ok(*words[:-1], f"dram.bandwidth_gb_s={at * 0.99}", "--json"))
    assert below["limiter_changes_at"] is None
    assert f"dram.bandwidth_gb_s = {at:.6g}" in ok(*words)


def test_whole_figures_change_in_whole_steps():
    found = json.loads(ok("devices", "what-if", "v100", "relu", "shape=4096x1024", "--set", "units=1", "--json"))
    turn = found["limiter_changes_at"]
    assert turn is None or turn["units"] == int(turn["units"])
    assert found["changed, the same program"]["seconds"] > found["as it is"]["seconds"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "v10"], "did you mean v100?"),
        (["shw", "v100"], "'shw' is no command of devices and no device; did you mean show?"),
        (["check", "none.json"], "none.json: cannot be read"),
        (["compare", "v100"], "Missing argument 'SECOND'"),
        (["what-if", "v100", "relu", "shape=64", "--set", "units"], "'units' sets nothing; expected figure=number"),
        (["what-if", "v100", "relu", "shape=64", "--set", "unit=3"], "did you mean units"),
        (["what-if", "v100", "relu", "shape=64", "--set", "units=nan"], "units is nan"),
        (["new", "mine", "--no-ask", "--set", "units=-4"], "units is -4; expected a finite number of at least 0"),
        (["what-if", "v100", "relu", "shape=64"], "nothing is set; expected --set FIGURE=VALUE, or all"),
        (["what-if", "all", "relu", "shape=64", "--set", "units=3"], "--set units=3 has no device"),
        (["what-if", "all", "relu", "shape=64", "--plot", "a.txt"], "a.txt is no picture; expected a file in .svg"),
    ],
)
def test_errors_are_one_line(words, text):
    result = run("devices", *words)
    assert result.exit_code == 2
    assert text in result.stderr and result.stderr.count("\n") == 1


def test_sensitivity_tells_what_a_figure_moves():
    words = ["devices", "sensitivity", "v100", "relu", "shape=4096x1024", "--figure", "dram.bandwidth_gb_s"]
    (effect,) = json.loads(ok(*words, "--json"))["effects"]
    assert effect["path"] == "dram.bandwidth_gb_s" and "relu" in effect["predictions"] and effect["largest"] > 0.1
    assert "dram.bandwidth_gb_s" in ok(*words)
    informational = ok(*words[:-1], "l2.latency_clocks")
    assert "l2.latency_clocks: informational: what other threads leave" in informational
    result = run("devices", "sensitivity", "v100", "--figure", "dram.bandwith")
    assert result.exit_code == 2 and "did you mean dram.bandwidth_gb_s" in result.stderr


def test_figures_are_named_whole_and_sources_once_on_a_narrow_screen(tmp_path):
    text = ok("devices", "show", "l4")
    assert "dram.bandwidth_nominal_gb_s" in text and "registers.capacity_bytes" in text
    legend = [line.partition("] ")[2] for line in text.splitlines() if line.startswith("[")]
    assert legend and len(set(legend)) == len(legend), "each source once"
    assert len(text.splitlines()) < 250
    table = ok("devices", "sensitivity", "cpu", "relu", "shape=64x64", "--figure", "limits.registers_per_thread", "--quick")
    assert "limits.registers_per_thread" in table


def test_a_cost_that_the_spec_does_not_name_may_be_set(tmp_path):
    assert "changed" in ok("devices", "what-if", "v100", "relu", "shape=64x64", "--set", "costs.spill_clocks=2")
    told = run("devices", "sensitivity", "v100", "--figure", "costs.spill_clocks")
    assert told.exit_code == 2 and "costs.spill_clocks is not stated by v100; devices what-if" in told.stderr


def test_each_problem_of_a_spec_is_told_apart(tmp_path):
    (tmp_path / "mine.json").write_text('{"format": "rollergen.device.v1", "name": "mine"}')
    told = run("devices", "check", str(tmp_path / "mine.json")).stderr
    assert told.count("; mine.json: ") > 3 and told.count("\n") == 1


def test_a_languages_name_is_what_is_present():
    result = run("devices", "show", "opencl:nobody's")
    assert result.exit_code == 2 and "no OpenCL device is \"nobody's\"" in result.output
