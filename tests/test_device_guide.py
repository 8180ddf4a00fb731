"""The guide to describing a device: every command and file in it works, and the reference of fields is current."""

import json
import re
import shlex
import warnings
from pathlib import Path

import pytest

import rollergen as rg
from rollergen.hal import field_reference, spec_schema
from rollergen.hal.load import load_device
from tests.cli.test_cli import ok, run

FOLDER = Path(spec_schema.__file__).parents[1] / "devices"
GUIDE = (FOLDER / "README.md").read_text()
OTHERS = (FOLDER / "OTHER_MACHINES.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """All commands, in order, in a folder of their own: their outputs."""
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
        return folder, {line: ok(*shlex.split(line)[1:]) for line in lines}


def test_every_command_of_the_guide_succeeds(guided):
    _, outputs = guided
    assert len(outputs) == 8 and all(outputs.values())
    assert "l40s: 0 warnings" in next(text for line, text in outputs.items() if "check" in line)


def test_its_spec_has_the_printed_peak_and_bandwidth_and_what_its_architecture_has(guided):
    device = load_device(guided[0] / "l40s.json")
    assert 128 * 2 * device.units * device.clock_mhz * 1e-6 == pytest.approx(91.6, rel=0.01)  # TFLOP/s as printed
    assert device.layer("dram").bandwidth_nominal_gb_s == 864
    assert device.limits.block_memory_bytes == 99 * 1024
    assert dict(device.costs)["load_store_lanes"] == 16 and device.layer("l1").capacity_bytes == 128 * 1024


def test_its_card_of_amds_begins_from_one_of_amds(guided):
    device = load_device(guided[0] / "mi100.json")
    assert (device.targets[0].language, device.targets[0].arch, device.execution_width) == ("opencl", "gfx908", 64)
    assert 64 * 2 * device.units * device.clock_mhz * 1e-6 == pytest.approx(23.1, rel=0.01)  # TFLOP/s as printed
    assert run("devices", "check", str(guided[0] / "mi100.json")).exit_code == 0


def test_the_machine_of_the_page_on_others_loads_without_warnings_and_builds(tmp_path):
    (text,) = re.findall(r"```json\n(.*?)```", OTHERS, re.DOTALL)
    file = tmp_path / "npu.json"
    file.write_text(text)
    assert [layer.name for layer in load_device(file).layers] == ["registers", "scratchpad", "dram"]
    checked = run("devices", "check", str(file))
    assert checked.exit_code == 0 and "systolic of 16 x 16 x 16 is used by no program" in checked.stdout
    built = ok("build", "matmul", "m=128", "n=128", "k=128", "--device", str(file), "--no-cache", "--json")
    assert json.loads(built)["device"]


def test_operators_on_a_machine_of_few_threads_are_constructed_without_a_word_of_drops(tmp_path):
    (text,) = re.findall(r"```json\n(.*?)```", OTHERS, re.DOTALL)
    spec = json.loads(text)
    few = {**spec["limits"], "threads_per_block": 64, "threads_per_unit": 64}
    file = tmp_path / "npu.json"
    file.write_text(json.dumps({**spec, "execution_width": 64, "limits": few}))
    x = rg.tensor("X", (8192, 8192))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for expression in (rg.ops.sum(x, axis=1), rg.ops.softmax(x), rg.ops.matmul(x, x), rg.ops.permute(x, (1, 0))):
            assert rg.construct(expression, file, 1)


def test_a_spec_from_nothing_is_whole_after_two_refusals(tmp_path):
    """By the errors alone: each time all that is named as missing is given, as the page on other machines has it."""
    (text,) = re.findall(r"```json\n(.*?)```", OTHERS, re.DOTALL)
    file, whole, written, refused = tmp_path / "npu.json", json.loads(text), {}, 0
    while True:
        file.write_text(json.dumps(written))
        told = run("devices", "check", str(file))
        if told.exit_code == 0:
            break
        missing = re.findall(r"npu\.json: ([\w.\[\]]+) is missing", told.stderr)
        assert missing, told.stderr
        refused += 1
        for path in missing:
            assert "." not in path and "[" not in path  # a part that is missing names all that it must state
            written[path] = whole[path]
    assert refused <= 2


def test_two_figures_of_a_card_that_contradict_each_other_are_told_together(tmp_path):
    sets = ("shared.capacity_bytes=65536", "limits.threads_per_unit=512")
    words = [word for one in sets for word in ("--set", one)]
    told = run("devices", "new", "odd", "-o", str(tmp_path / "odd.json"), "--like", "a100", *words, "--no-ask")
    assert told.exit_code == 2
    assert "limits.threads_per_block is 1024; expected at most" in told.stderr
    assert "limits.block_memory_bytes is 166912; expected at most" in told.stderr


def test_its_files_load(tmp_path):
    for number, text in enumerate(blocks("json")):
        (tmp_path / f"{number}.json").write_text(text)
        assert load_device(tmp_path / f"{number}.json").name == json.loads(text)["name"]
    assert load_device(tmp_path / "0.json").layer("dram").capacity_bytes == 32 * 2**30


def test_the_reference_of_fields_is_current():
    text = (FOLDER / "FIELDS.md").read_text()
    assert text == field_reference.field_reference(), "python -m rollergen.hal.field_reference > devices/FIELDS.md"


def test_the_reference_names_every_field_of_the_schema():
    text = field_reference.field_reference()
    whole = spec_schema.complete_schema()
    published = spec_schema.schema()
    for part in (whole, *(published["$defs"][name] for name in ("memory_layer", "instruction", "limits", "tlb", "costs"))):
        assert all(f"| `{name}`" in text for name in part["properties"])


def test_what_the_guide_promises_of_a_wrong_value_holds(tmp_path):
    text = blocks("json")[0].replace("34359738368", '"32 GB"')
    (tmp_path / "wrong.json").write_text(text)
    result = run("devices", "check", str(tmp_path / "wrong.json"))
    assert result.exit_code == 2
    assert 'memory_layers[4].capacity_bytes is "32 GB"; expected an integer of at least 1' in result.stderr
