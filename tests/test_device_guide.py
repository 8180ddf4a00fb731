"""The guide to describing a device: every command and file in it works, and the reference of fields is current."""

import json
import re
import shlex
from pathlib import Path

import pytest

from rollergen.hal import field_reference, spec_schema
from rollergen.hal.load import load_device
from tests.cli.test_cli import ok, run

FOLDER = Path(spec_schema.__file__).parents[1] / "devices"
GUIDE = (FOLDER / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """All commands, in order, in a folder of their own: their outputs."""
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lines = [line for block in blocks("sh") for line in block.splitlines()]
        return folder, {line: ok(*shlex.split(line)[1:]) for line in lines}


def test_every_command_of_the_guide_succeeds(guided):
    _, outputs = guided
    assert len(outputs) == 7 and all(outputs.values())
    assert "rtx4090: 0 warnings" in next(text for line, text in outputs.items() if "check" in line)


def test_its_spec_has_the_printed_peak_and_bandwidth(guided):
    device = load_device(guided[0] / "rtx4090.json")
    assert 128 * 2 * device.units * device.clock_mhz * 1e-6 == pytest.approx(82.6, rel=0.01)  # TFLOP/s as printed
    assert device.layer("dram").bandwidth_nominal_gb_s == 1008
    assert device.limits.block_memory_bytes == 99 * 1024


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
