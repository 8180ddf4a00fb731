"""The spec of a device that nobody has described, from flags or from answers."""

import json

import pytest
from click.testing import CliRunner

from rollergen.__main__ import main
from rollergen.cli.device_new import begun, nearest
from rollergen.hal.load import load_device, parse_device
from tests.cli.test_cli import ok, run

CARD = ["--set", "units=128", "--set", "clock_mhz=2520", "--set", "fma.per_clock=128", "--source", "its white paper"]


def test_a_spec_begun_from_flags_passes_the_checks_and_builds(tmp_path):
    file = tmp_path / "card.json"
    told = ok("devices", "new", "card", "-o", str(file), "--like", "a100", *CARD, "--title", "Card", "--arch", "sm_89")
    # shared and l2, printed and achieved
    assert "3 figures from the datasheet, 23 those of sm_89 (Ada), 4 bandwidths scaled from a100's (shared.band" in told
    assert "), all others assumed as a100 has them" in told
    device = load_device(file)
    assert (device.units, device.clock_mhz, device.targets[0].arch) == (128, 2520, "sm_89")
    assert run("devices", "check", str(file)).exit_code == 0
    built = ok("build", "matmul", "m=64", "n=64", "k=64", "--device", str(file), "--no-cache", "--json")
    assert json.loads(built)["device"]


def test_what_was_not_given_is_called_assumed():
    device = begun_device({"units": 128.0})
    origins = dict(device.provenance)
    assert origins["units"] == ("datasheet", "its white paper")
    assert {kind for path, (kind, _) in origins.items() if path != "units"} == {"assumed"}
    assert origins["memory_layers[1].capacity_bytes"] == ("assumed", "as a100 has it")


def begun_device(values):
    document = begun(load_device("a100"), "card", "Card", "its white paper", values)
    return parse_device(json.dumps(document).encode(), "card.json")


def test_an_achieved_bandwidth_keeps_its_share_and_those_on_the_chip_grow_with_it():
    parent, device = load_device("a100"), begun_device({"dram.bandwidth_nominal_gb_s": 1008.0, "units": 216.0})
    share = parent.layer("dram").bandwidth_gb_s / parent.layer("dram").bandwidth_nominal_gb_s
    assert device.layer("dram").bandwidth_gb_s == pytest.approx(1008 * share, rel=1e-3)
    assert device.layer("l2").bandwidth_gb_s == pytest.approx(2 * parent.layer("l2").bandwidth_gb_s, rel=1e-3)


def test_what_was_scaled_says_from_what_and_by_how_much():
    parent, values = load_device("a100"), {"dram.bandwidth_nominal_gb_s": 1008.0, "units": 216.0}
    origins = dict(begun_device(values).provenance)
    l2, dram = (number for number, layer in enumerate(parent.layers) if layer.name in ("l2", "dram"))
    its = f"{parent.layer('l2').bandwidth_gb_s:g}"
    assert origins[f"memory_layers[{l2}].bandwidth_gb_s"] == ("assumed", f"that of a100, {its} GB/s, x 2 (units x clock)")
    kind, how = origins[f"memory_layers[{dram}].bandwidth_gb_s"]
    assert kind == "assumed" and how.endswith("of the printed 1008 GB/s, as a100 achieves of its own")


def test_whose_architecture_source_is_written_for_is_told_where_it_was_not_said(tmp_path):
    words = ["devices", "new", "card", "--like", "a100", "--set", "units=128", "--no-ask", "-o"]
    told = ok(*words, str(tmp_path / "a.json"))
    assert "Source is written for sm_80, as a100's: --arch says for what else." in told
    assert "Source is written" not in ok(*words, str(tmp_path / "b.json"), "--arch", "sm_89")
    assert "Of sm_87 no figures are known here" in ok(*words, str(tmp_path / "d.json"), "--arch", "sm_87")
    result = run(*words, str(tmp_path / "c.json"), "--arch", "ada")
    assert result.exit_code == 2 and 'targets[0].arch is "ada"; expected sm_ and the compute' in result.stderr


def test_nothing_is_called_scaled_where_nothing_was(tmp_path):
    told = ok("devices", "new", "same", "-o", str(tmp_path / "same.json"), "--like", "a100", "--no-ask")
    assert "0 figures from the datasheet, all others assumed as a100 has them" in told
    assert dict(load_device(tmp_path / "same.json").provenance)["memory_layers[3].bandwidth_gb_s"][1] == "as a100 has it"


def test_the_nearest_device_is_found_by_the_figures_given():
    assert nearest({"units": 84.0, "clock_mhz": 1400.0, "dram.bandwidth_nominal_gb_s": 880.0}).name == "v100"
    assert nearest({"units": 1300.0, "sram.capacity_bytes": 262144.0}).name == "ipu"


@pytest.mark.parametrize(
    ("arch", "values", "name"),
    [
        ("sm_75", {"units": 72.0}, "t4"),
        ("sm_86", {"units": 84.0, "clock_mhz": 1740.0, "dram.bandwidth_nominal_gb_s": 696.0}, "rtx4090"),
        ("sm_86", {"units": 30.0}, "l4"),
        ("sm_90a", {"dram.capacity_bytes": 85e9}, "h100"),
        ("gfx90a", {"units": 110.0}, "mi210"),
        ("gfx908", {"units": 120.0}, "mi210"),  # its matrix units
        ("gfx1100", {"units": 96.0}, "mi210"),
        ("gfx942", {}, "mi300x"),
    ],
)
def test_the_nearest_device_is_of_the_nearest_architecture(arch, values, name):
    assert nearest(values, arch).name == name


def test_what_every_card_of_the_architecture_has_is_the_new_ones():
    document = begun(load_device("v100"), "card", "Card", "paper", {"units": 72.0, "l1.bytes_per_clock": 60.0}, "sm_75")
    device = parse_device(json.dumps(document).encode(), "card.json")
    assert (device.layer("shared").bytes_per_clock, device.limits.threads_per_unit) == (64, 1024)
    assert device.layer("l1").bytes_per_clock == 60  # what was given counts
    kind, source = dict(device.provenance)["costs.load_store_lanes"]
    assert kind == "datasheet" and source.startswith("of every sm_75 (Turing): limits: cuda_occupancy.h")


def test_rates_of_memory_that_are_the_parents_are_named_where_the_architecture_does_not_give_them(tmp_path):
    words = ["devices", "new", "card", "--like", "v100", "--set", "units=72", "--no-ask", "-o"]
    told = ok(*words, str(tmp_path / "a.json"))
    rates = "shared.bytes_per_clock, l1.bytes_per_clock, l1.capacity_bytes, costs.load_store_lanes."
    assert told.split("Rates for a clock that are v100's own: ")[1].split("\n")[0].endswith(rates)
    told = ok(*words, str(tmp_path / "b.json"), "--arch", "sm_75")
    assert "24 those of sm_75 (Turing), " in told
    left = told.split("Rates for a clock that are v100's own: ")[1].split("\n")[0]
    assert left == "dp4a.per_clock, wmma.per_clock (102 TFLOP/s)."  # the 113 of 80 units, at 72


def test_instructions_that_the_architecture_lacks_are_left_out_and_named(tmp_path):
    words = ["devices", "new", "card", "--set", "units=82", "--no-ask", "-o"]
    told = ok(*words, str(tmp_path / "a.json"), "--like", "rtx4090", "--arch", "sm_86")
    assert "Left out, as sm_86 has no such instructions, or none that code is written for here: mma_e4m3, mma_e5m2." in told
    assert not any("float8" in one.dtype for one in load_device(tmp_path / "a.json").instructions)
    words_ = ["devices", "new", "card", "--like", "rtx4090", "--arch", "sm_86", "--no-ask", "-o", str(tmp_path / "c.json")]
    refused = run(*words_, "--set", "mma_e4m3.per_clock=0.25").output
    assert "mma_e4m3.per_clock is set; expected a figure without mma_e4m3, as sm_86 has no such" in " ".join(refused.split())
    told = ok(*words, str(tmp_path / "b.json"), "--arch", "gfx1100")
    assert "gfx1100 has no such instructions, or none that code is written for here: dot4, mfma, mfma_bf16" in told
    card = load_device(tmp_path / "b.json")
    assert card.limits.accumulation_registers == 0 and not card.kind.matrix_instructions
    told = ok("devices", "check", str(tmp_path / "b.json"))
    assert "has no word for the matrix units of RDNA 3 (WMMA) (products run by fma" in told


def test_a_card_with_matrix_units_begins_from_one_with_them_and_has_its_own_shapes(tmp_path):
    file = tmp_path / "card.json"
    told = ok("devices", "new", "card", "--arch", "gfx908", "--set", "units=120", "--no-ask", "-o", str(file))
    assert "all others assumed as mi210 has them" in told and "that code is written for here: mfma_f64." in told
    card = load_device(file)
    shapes = {one.name: (one.k, one.a_registers, one.per_clock) for one in card.instructions if one.is_matrix}
    assert shapes == {
        "mfma": (16, 2, 0.125), "mfma_bf16": (8, 1, 0.125), "mfma_s8": (16, 1, 0.125), "mfma_f32": (4, 1, 0.125),
    }  # fmt: skip
    assert card.limits.accumulation_registers == 0 and card.instruction("fma_f64").per_clock == 32


def test_what_no_code_of_another_language_is_written_for_is_left_out(tmp_path):
    file = tmp_path / "card.json"
    words = ("--like", "l4", "--language", "opencl", "--set", "execution_width=16", "--no-ask", "-o", str(file))
    told = ok("devices", "new", "card", *words)
    assert "as no opencl code is written for them: mma, mma_bf16, mma_s8, mma_e4m3, mma_e5m2, mma_tf32." in told
    assert "Source is written for" not in told
    told = ok("devices", "new", "card", "--like", "t4", *words[2:-1], str(tmp_path / "b.json"))
    assert "as no opencl code is written for them: dp4a, wmma." in told
    assert load_device(file).targets[0].language == "opencl"


def test_without_an_architecture_it_begins_from_one_that_is_programmed_in_the_language():
    values = {"units": 24.0, "execution_width": 16.0, "dram.bandwidth_nominal_gb_s": 51.2}
    assert nearest(values, "", "opencl").name == "mali-g71"
    assert nearest(values, "sm_75", "opencl").name == "t4"
    assert nearest(values, "", "bsp").kind.language == "bsp"


def test_on_a_terminal_it_asks(tmp_path):
    answers = "Big card\nthe box\n96\n\n\n\n\n\n\n2000\n"
    words = ["devices", "new", "big", "-o", str(tmp_path / "big.json"), "--like", "v100", "--ask"]
    result = CliRunner().invoke(main, words, input=answers)
    assert result.exit_code == 0, result.output
    device = load_device(tmp_path / "big.json")
    assert (device.title, device.units, device.clock_mhz) == ("Big card", 96, 1380)
    assert device.layer("dram").bandwidth_nominal_gb_s == 2000
    assert dict(device.provenance)["units"] == ("datasheet", "the box")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["Card"], "'Card' is no name; expected a small letter"),
        (["card", "--no-ask"], "nothing is set to find the nearest device by"),
        (["card", "--like", "v100", "--set", "unit=3"], "did you mean units"),
        (["card", "--like", "v100", "--set", "units=0"], "units is 0; expected an integer of at least 1"),
    ],
)
def test_errors_are_one_line_and_leave_no_file(tmp_path, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    result = run("devices", "new", *words)
    assert result.exit_code == 2 and text in result.stderr and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card.json").write_text("mine")
    result = run("devices", "new", "card", "--like", "v100", "--no-ask")
    assert result.exit_code == 2 and "card.json exists; expected a new file: remove it, or name another" in result.stderr
    assert (tmp_path / "card.json").read_text() == "mine"


def test_a_printed_peak_that_is_given_stays_and_the_parents_go():
    document = begun(load_device("a100"), "card", "Card", "paper", {"fma.peak_dense_tflop_s": 82.6})
    peaks = {one["name"]: one.get("peak_dense_tflop_s") for one in document["instructions"]}
    assert peaks.pop("fma")["value"] == 82.6 and not any(peaks.values())


def test_rates_that_are_the_parents_are_named(tmp_path):
    words = ["devices", "new", "card", "-o", str(tmp_path / "card.json"), "--like", "v100", "--no-ask"]
    told = ok(*words, "--set", "fma.per_clock=128")
    peaks = {"wmma": " (113 TFLOP/s)", "mma": " (113 TFLOP/s)"}  # what a datasheet prints of a matrix unit
    names = [f"{i.name}.per_clock{peaks.get(i.name, '')}" for i in load_device("v100").instructions if i.name != "fma"]
    assert f"Rates for a clock that are v100's own: {', '.join(names)}" in told
