"""How a device was verified is said in its spec, shown in the list, and is nobody else's."""

import json
import re
from pathlib import Path

import pytest

from rollergen.hal import spec_schema
from rollergen.hal.changes import changed
from rollergen.hal.errors import SpecError
from rollergen.hal.load import device_hash, device_names, device_to_json, load_device, parse_device
from tests.cli.test_cli import ok

ROOT = Path(spec_schema.__file__).resolve().parents[1]
RAN = [{"how": "ran on it", "what": "one product"}]


def parsed(**more):
    document = {**device_to_json(load_device("k80")), **more}
    return parse_device(json.dumps(document).encode(), "k.json")


def test_the_list_says_how_each_device_was_verified():
    listed = json.loads(ok("devices", "list", "--json"))
    ways = {name: [one["how"] for one in listed[name]["verified"]] for name in device_names()}
    assert ways["cpu"] == ["ran on it"]
    assert set(ways["v100"]) == set(ways["a100"]) == {"compiled by its compiler", "executed elsewhere"}
    assert set(ways["h200"]) == {"compiled by its compiler", "executed elsewhere", "ran on it"}
    assert ways["k80"] == [] and "modelled only" in ok("devices", "list", "k80")
    assert "tests/operators/test_builds.py" in ok("devices", "list", "mi50")


@pytest.mark.parametrize("name", device_names())
def test_the_results_that_it_names_are_there(name):
    for one in load_device(name).verified:
        files = re.findall(r"(?:benches|tests)/[\w./-]+\.(?:json|py)", one.what)
        assert files and all((ROOT / file).is_file() for file in files), one.what


def named(name, bench):
    """The committed result of a bench that the device's notes name."""
    (one,) = [one for one in load_device(name).verified if f"results/{bench}_" in one.what]
    (file,) = re.findall(r"benches/[\w./-]+\.json", one.what)
    return json.loads((ROOT / file).read_text()), one.what


@pytest.mark.parametrize("name", ["v100", "a100", "h200"])
def test_what_was_compiled_is_as_it_says(name):
    (compiled, what), arch = named(name, "cuda_compile"), load_device(name).targets[0].arch
    counted = compiled["summaries"][name]
    assert f"candidates of each of {counted['operators']} operators by {compiled['compiler']} for {arch}: " in what
    (code, what) = named(name, "sass")
    counts = [row for row in code["rows"] if row["device"] == name and row.get("instructions")]
    assert what.startswith(f"the machine code of {len(counts)} kernels for {arch}")


@pytest.mark.parametrize("name", ["v100", "h200"])
def test_what_was_executed_elsewhere_is_as_it_says(name):
    summary = {kind: one for kind, one in named(name, "cuda_fixture")[0]["summary"].items() if kind.startswith(name)}
    assert summary[f"{name} float32"]["right"] > 0 < summary[f"{name} float16"]["right"]


def test_it_survives_writing_and_is_no_part_of_what_kernels_depend_on():
    device = parsed(verified=RAN)
    assert parse_device(json.dumps(device_to_json(device)).encode(), "again.json").verified == device.verified
    assert device_hash(device) == device_hash(parsed())


def test_neither_a_child_nor_a_changed_device_has_it():
    child = {"format": "rollergen.device.v1", "name": "c", "title": "C", "extends": "v100"}
    assert parse_device(json.dumps(child).encode(), "c.json").verified == ()
    assert changed(parsed(verified=RAN), {"units": 14}).verified == ()


def test_another_word_is_refused_with_its_path():
    with pytest.raises(SpecError, match=r'k.json: verified\[0\].how is "seen"; expected one of "ran on it", '):
        parsed(verified=[{"how": "seen", "what": "one"}])
