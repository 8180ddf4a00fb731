"""What a process is told of OpenCL by an earlier one holds as long as nothing that it follows from has changed."""

import json
import os
import subprocess
import sys

import pytest

from rollergen.hal.runtimes import remembered as module
from rollergen.hal.runtimes.remembered import Host, before_opening, doubt, remember, remembered

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")

HOST = Host("PoCL 3.0 on a processor", "OpenCL 3.0 PoCL 3.0", 2)
OPEN = """
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
print(OpenCLRuntime().host)
"""
TOLD = """
import sys
from rollergen.hal.runtimes.remembered import remembered
print(remembered(), 'pyopencl' in sys.modules)
"""
BUILD = """
import sys, warnings
import numpy as np
import rollergen as rg
from rollergen.measure import noise
from rollergen.store import cache
noise.SCATTER = noise.FAR = float("inf")  # or times of a busy machine are told, and taken again
found = []
whole = cache.Cache.find
cache.Cache.find = lambda self: (found.append(whole(self)), found[-1])[1]
kernel = rg.build(rg.ops.relu(rg.tensor('x', (64,))), 'cpu', top_k=1)
print([one is not None for one in found], 'pyopencl' in sys.modules)
x = np.arange(-32, 32, dtype=np.float32)
assert np.array_equal(kernel(x), np.maximum(x, 0)) and kernel.measured_time
"""


@pytest.fixture
def file(monkeypatch, tmp_path):
    """The file of a user who has none yet, in a process that has not used OpenCL."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyopencl", raising=False)
    monkeypatch.setattr(module, "_doubted", type(module._doubted)())
    remembered.cache_clear()
    yield tmp_path / "rollergen" / "opencl.json"
    remembered.cache_clear()


def printed(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stderr == ""
    return run.stdout.strip()


def kept(tmp_path, monkeypatch):
    """Keeps `HOST` as a process does that brings in a library by opening it; the library."""
    library = tmp_path / "libpocl.so"
    library.write_text("code")
    before = before_opening()
    with monkeypatch.context() as opened:
        opened.setattr(module, "_mapped", lambda: {*before.files, str(library)})
        remember(HOST, before)
    remembered.cache_clear()
    return library


def test_the_next_process_knows_without_opening(file):
    assert printed(TOLD) == "None False"
    assert printed(TOLD) == "None False"
    host = printed(OPEN)
    assert printed(TOLD) == f"{host} False"


def test_a_kernel_is_found_and_called_without_opening_first(file):
    outcomes = [printed(BUILD) for _ in range(3)]
    assert outcomes[0] == "[False] True"
    assert outcomes[1:] == ["[True] False"] * 2


def test_what_was_remembered_wrongly_is_doubted_and_put_right(file):
    printed(BUILD)
    entry = json.loads(file.read_text())
    for one in entry.values():
        one["host"][1] += ", another version"
    file.write_text(json.dumps(entry))
    assert printed(BUILD) == "[False, True] True"  # not under that driver's key; under the real one's
    assert printed(BUILD) == "[True] False"


def test_what_was_kept_is_believed(file, tmp_path, monkeypatch):
    kept(tmp_path, monkeypatch)
    assert remembered() == HOST


def _written_to(library, monkeypatch):
    library.write_text("CODE")


def _removed(library, monkeypatch):
    library.unlink()


def _in_other_hands(library, monkeypatch):
    (library.parent / "rollergen").chmod(0o777)


CHANGES = {
    "a library of the driver": _written_to,
    "no library": _removed,
    "who may write the file": _in_other_hands,
    "cores": lambda library, monkeypatch: monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 7}),
    "processor": lambda library, monkeypatch: monkeypatch.setattr(module, "cpu_model", lambda: "another"),
    "features": lambda library, monkeypatch: monkeypatch.setattr(module, "host_flags", lambda: frozenset({"sse2"})),
    "a variable of PoCL's": lambda library, monkeypatch: monkeypatch.setenv("POCL_AFFINITY", "another"),
    "a variable of the loader's": lambda library, monkeypatch: monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere"),
    "drivers elsewhere": lambda library, monkeypatch: monkeypatch.setenv("OCL_ICD_VENDORS", str(library.parent)),
    "no pyopencl": lambda library, monkeypatch: monkeypatch.setattr(module, "find_spec", lambda name: None),
    "OpenCL in use": lambda library, monkeypatch: monkeypatch.setitem(sys.modules, "pyopencl", object()),
    "doubt": lambda library, monkeypatch: doubt(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_it_follows_from_is_looked_at(file, tmp_path, monkeypatch, change):
    CHANGES[change](kept(tmp_path, monkeypatch), monkeypatch)
    assert remembered() is None


@pytest.mark.parametrize("place", ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "the environment of conda"])
def test_a_new_driver_among_the_drivers_is_noticed(file, tmp_path, monkeypatch, place):
    vendors = tmp_path / "etc" / "OpenCL" / "vendors"
    vendors.mkdir(parents=True)
    if place.isupper():
        monkeypatch.setenv(place, str(vendors))
    else:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    kept(tmp_path, monkeypatch)
    assert remembered() == HOST
    (vendors / "new.icd").write_text("libnew.so")
    remembered.cache_clear()
    assert remembered() is None


def test_a_device_that_is_not_pocls_is_not_remembered_and_ends_what_was(file, tmp_path, monkeypatch):
    kept(tmp_path, monkeypatch)
    assert remembered() == HOST
    remember(None, before_opening())
    assert remembered() is None and json.loads(file.read_text()) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", "\0"])
def test_a_damaged_file_says_nothing_and_is_replaced(file, tmp_path, monkeypatch, content):
    file.parent.mkdir()
    file.write_text(content)
    assert remembered() is None
    kept(tmp_path, monkeypatch)
    assert remembered() == HOST


@pytest.mark.parametrize("host", [[], ["a", "b"], ["a", "b", "2"], [1, "b", 2], None])
def test_a_damaged_entry_says_nothing(file, tmp_path, monkeypatch, host):
    kept(tmp_path, monkeypatch)
    entry = json.loads(file.read_text())
    file.write_text(json.dumps({name: one | {"host": host} for name, one in entry.items()}))
    assert remembered() is None
