"""Devices of installed packages: a real package, built and installed into a directory of its own, and bad ones."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rollergen.hal import plugins
from rollergen.hal.errors import PluginWarning, SpecError
from rollergen.hal.languages import BUILT_IN, BUILT_IN_PRESENT, language, present_names
from rollergen.hal.load import known_names, load_device

SETUP = """
from setuptools import setup
setup(
    name="acme-devices", version="1.0", packages=["acme_devices"], package_data={"acme_devices": ["*.json"]},
    entry_points={"rollergen.devices": ["acme = acme_devices"]},
)
"""


def spec(name: str, **figures) -> str:
    head = {"format": "rollergen.device.v1", "name": name, "title": "Acme's card", "extends": "v100"}
    return json.dumps({**head, **figures})


def package(folder: Path, files: dict[str, str]) -> Path:
    (folder / "acme_devices").mkdir(parents=True)
    for name, content in {"__init__.py": "", **files}.items():
        (folder / "acme_devices" / name).write_text(content)
    return folder


def test_a_package_is_built_installed_and_its_devices_are_found(tmp_path):
    source = package(tmp_path / "source", {"acme-one.json": spec("acme-one", units=96)})
    (source / "setup.py").write_text(SETUP)
    site = tmp_path / "site"
    words = [
        "install",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "--target",
        str(site),
        str(source),
    ]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program = (
        "import rollergen as rg, json\n"
        "A, B = rg.tensor('A', (64, 64)), rg.tensor('B', (64, 64))\n"
        "kernel = rg.build(rg.ops.matmul(A, B), device='acme-one', profile=False, cache=False)\n"
        "print(json.dumps([kernel.device.name, kernel.device.units, len(kernel.source) > 100]))\n"
    )
    where = {**os.environ, "PYTHONPATH": str(site)}
    run = lambda *words: subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=where, check=False
    )
    built = run("-c", program)
    assert built.returncode == 0 and json.loads(built.stdout) == ["acme-one", 96, True], built.stderr
    listed = run("-m", "rollergen", "devices", "list", "--json")
    assert json.loads(listed.stdout)["acme-one"]["title"] == "Acme's card"
    assert "did you mean acme-one?" in run("-m", "rollergen", "devices", "show", "acme-on").stderr


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Pretends that packages with these files are installed."""

    def install(*packages: tuple[str, dict[str, str]]) -> None:
        points = []
        for name, files in packages:
            root = tmp_path / name
            root.mkdir()
            for file, content in {"__init__.py": "", **files}.items():
                (root / file).write_text(content)
            points.append(EntryPoint(name, name, plugins.GROUP))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(plugins, "entry_points", lambda group: points)
        plugins.plugin_specs.cache_clear()

    yield install
    plugins.plugin_specs.cache_clear()


def test_a_device_may_extend_another_file_of_its_package(installed):
    child = json.dumps({**json.loads(spec("two")), "extends": "one.json", "clock_mhz": 999})
    installed(("plug_a", {"one.json": spec("one", units=7), "two.json": child}))
    assert (load_device("two").units, load_device("two").clock_mhz) == (7, 999)
    assert {"one", "two"} <= set(known_names())


def test_the_name_of_a_file_is_that_of_its_device(installed):
    installed(("plug_b", {"three.json": spec("four")}))
    with pytest.raises(SpecError, match=r'plug_b: three\.json: name is "four"; expected that of its file, "three"'):
        load_device("three")


def test_a_bad_spec_names_the_package_and_the_path(installed):
    installed(("plug_c", {"five.json": spec("five", units=0)}))
    with pytest.raises(SpecError, match=r"plug_c: five\.json: units is 0; expected an integer of at least 1"):
        load_device("five")


def test_names_that_are_taken_are_left_out_with_a_warning(installed):
    installed(
        ("plug_d", {"v100.json": spec("v100", units=1), "six.json": spec("six")}), ("plug_e", {"six.json": spec("six")})
    )
    with pytest.warns(PluginWarning) as found:
        assert load_device("v100").units == 80
        assert plugins.plugin_specs()["six"].package == "plug_d"
    texts = [str(one.message) for one in found]
    assert any("plug_d: v100.json is left out: rollergen has a device of that name" in text for text in texts)
    assert any("plug_e: six.json is left out: plug_d has a device of that name" in text for text in texts)


def test_a_package_that_cannot_be_imported_harms_no_other(installed):
    installed(("plug_f", {"__init__.py": "raise RuntimeError('broken')"}), ("plug_g", {"seven.json": spec("seven")}))
    with pytest.warns(PluginWarning, match="'plug_f' of its entry point 'plug_f' cannot be used: broken"):
        assert load_device("seven").name == "seven"


def test_built_in_languages_that_name_a_present_device_are_told_without_their_import():
    assert [name for name in BUILT_IN if language(name).present is not None] == list(BUILT_IN_PRESENT)
    assert set(BUILT_IN_PRESENT) <= set(present_names())
