"""Languages of installed packages: a made-up one with a device, as pip would leave them, and bad ones."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rollergen.errors import DeviceError
from rollergen.hal import languages
from rollergen.hal.errors import PluginWarning, SpecError
from rollergen.hal.load import device_to_json, load_device, parse_device
from rollergen.targets import resolve

POINTS = "[rollergen.languages]\ntoy = toy_language:TOY\n\n[rollergen.devices]\ntoys = toy_devices\n"
SPEC = {
    "format": "rollergen.device.v1", "name": "toy-chip", "title": "A toy", "extends": "cortex-a53",
    "targets": [{"language": "toy"}],
}  # fmt: skip
PROGRAM = """
import json, sys
import numpy as np
import rollergen as rg

X = rg.tensor("X", (37, 21))
kernel = rg.build(rg.ops.relu(X), "toy-chip", profile=True, top_k=2, cache=False)
x = np.random.default_rng(0).standard_normal((37, 21)).astype(np.float32)
directory = kernel.save(sys.argv[1])
print(json.dumps({
    "language": kernel.language, "measured": kernel.measured_time > 0, "text": kernel.source,
    "right": bool((kernel(x) == np.maximum(x, 0)).all()), "files": sorted(p.name for p in directory.iterdir()),
    "loaded": rg.load(directory).source == kernel.source,
}))
"""


@pytest.fixture
def site(tmp_path):
    """A directory as pip leaves one: the language's module, the package of devices, and what declares both."""
    site = tmp_path / "site"
    (site / "toy_devices").mkdir(parents=True)
    (site / "toy_devices" / "__init__.py").touch()
    (site / "toy_devices" / "toy-chip.json").write_text(json.dumps(SPEC))
    (site / "toy_language.py").write_text((Path(__file__).parent / "toy_language.py").read_text())
    (site / "toy-1.0.dist-info").mkdir()
    (site / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (site / "toy-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    return site


def test_a_language_takes_one_module_with_its_runtime_and_a_line_that_declares_it(site, tmp_path):
    """Programs for its devices are constructed, written in it, measured, called, saved and loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "kernel")], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["language"] == "toy" and seen["measured"] and seen["right"] and seen["loaded"]
    assert "procedure elementwise(" in seen["text"] and "shared_by_all" in seen["text"]
    assert "kernel.toy" in seen["files"] and "launcher.py" not in seen["files"]


@pytest.fixture
def declared(monkeypatch):
    """Pretends that packages declare these languages, by name and value."""

    def declare(**values):
        points = [EntryPoint(name, value, languages.GROUP) for name, value in values.items()]
        monkeypatch.setattr(languages, "entry_points", lambda group: points)
        for one in (languages._points, languages.language):
            one.cache_clear()

    yield declare
    monkeypatch.undo()
    for one in (languages._points, languages.language):
        one.cache_clear()


def written_in(language):
    document = {**device_to_json(load_device("mi50")), "targets": [{"language": language}]}
    return json.dumps(document).encode()


def test_an_unknown_language_is_named_with_its_place_and_those_there_are(declared):
    declared(toy="tests.emit.toy_language:TOY")
    with pytest.raises(SpecError, match=r'^x.json: targets\[0\].language is "metal"; expected one of "bsp", "cuda", "opencl", "toy"$'):
        parse_device(written_in("metal"), "x.json")
    assert parse_device(written_in("toy"), "x.json").kind.language == "toy"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module:TOY", "cannot be used: No module named 'no_such_module'"),
        ("tests.emit.toy_language:Toy", "is a type; expected a Language whose name is \"other\""),
        ("tests.emit.toy_language:TOY", "is a Language; expected a Language whose name is \"other\""),
    ],
)  # fmt: skip
def test_a_language_that_cannot_be_used_harms_no_other(declared, value, why):
    declared(other=value)
    with pytest.raises(SpecError, match=why):
        parse_device(written_in("other"), "x.json")
    assert load_device("v100").kind.language == "cuda"
    with pytest.warns(PluginWarning, match=why), pytest.raises(DeviceError, match="cuda or opencl for what is present"):
        resolve("gpu")


def test_a_taken_name_is_left_out_with_a_warning(declared):
    declared(cuda="tests.emit.toy_language:TOY")
    with pytest.warns(PluginWarning, match="language cuda is left out: rollergen has one of that name"):
        assert languages.language("cuda").suffix == "cu"
        assert languages.language_names() == ("bsp", "cuda", "opencl")


def test_a_language_names_no_device_where_it_finds_none_present(declared):
    declared(toy="tests.emit.toy_language:TOY")
    with pytest.raises(DeviceError, match=r"device='toy': it names no device; expected one of a100, .*, cuda, opencl"):
        resolve("toy")
