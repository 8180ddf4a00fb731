"""PoCL builds nothing without a directory to keep kernels in: one that cannot be used is replaced, and told."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollergen.hal.runtimes import pocl_cache
from rollergen.hal.runtimes.pocl_cache import KernelCacheWarning, directory, ensure, trouble

KERNEL = """
import os, numpy as np
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
run = OpenCLRuntime()
kernel = run.compile("kernel void f(global float *x) { x[get_global_id(0)] *= 3; }").kernel("f")
x = np.ones(4, np.float32)
run.set_arguments(kernel, [run.wrap(x)])
run.launch(kernel, 4, 1)
run.finish()
print(x.sum(), os.environ["POCL_CACHE_DIR"])
"""


@pytest.fixture
def a_file(tmp_path):
    """Beneath it no directory can be made, whoever asks."""
    path = tmp_path / "file"
    path.write_text("")
    return path


def nearly_full(monkeypatch, full):
    room = lambda path: SimpleNamespace(f_bavail=7 if Path(path) == full else 1 << 20, f_frsize=4096)
    monkeypatch.setattr(pocl_cache.os, "statvfs", room)


def test_the_directory_is_the_one_that_pocl_takes():
    assert directory({"POCL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert directory({"POCL_CACHE_DIR": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/b/pocl/kcache")
    assert directory({"HOME": "/c"}) == Path("/c/.cache/pocl/kcache")


def test_a_directory_with_room_is_left_as_it_is(tmp_path, recwarn):
    environment = {"POCL_CACHE_DIR": str(tmp_path / "new"), "XDG_CACHE_HOME": str(tmp_path)}
    before = dict(environment)
    ensure(environment)
    assert environment == before and not recwarn.list


def test_a_directory_that_cannot_be_made_is_replaced_and_told(a_file):
    environment = {"XDG_CACHE_HOME": str(a_file)}
    with pytest.warns(KernelCacheWarning, match=r"file/pocl/kcache cannot be used \(Not a directory\).*POCL_CACHE_DIR"):
        ensure(environment)
    assert trouble(Path(environment["POCL_CACHE_DIR"])) is None
    assert environment["PYOPENCL_NO_CACHE"] == "1"


def test_a_full_disk_is_told_with_the_bytes_that_are_left(tmp_path, monkeypatch):
    nearly_full(monkeypatch, tmp_path)
    environment = {"POCL_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "own")}
    with pytest.warns(KernelCacheWarning, match=f"{tmp_path} has {7 * 4096} bytes left"):
        ensure(environment)
    assert environment["POCL_CACHE_DIR"] != str(tmp_path) and "PYOPENCL_NO_CACHE" not in environment


def test_without_room_anywhere_nothing_is_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(pocl_cache, "trouble", lambda path: "may not be written to")
    environment = {"POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "0"}
    ensure(environment)
    assert environment == {"POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "0"}


def test_kernels_run_where_no_cache_can_be_kept_and_nothing_is_left_behind(a_file):
    pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
    environment = {**os.environ, "XDG_CACHE_HOME": str(a_file), "POCL_CACHE_DIR": str(a_file / "kernels")}
    ran = subprocess.run([sys.executable, "-c", KERNEL], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    total, where = ran.stdout.split()
    assert total == "12.0" and "KernelCacheWarning" in ran.stderr
    assert not Path(where).exists()
