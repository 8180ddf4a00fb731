"""Where PoCL would end the process for want of a linker, an error says so before, and what to install."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import rollergen as rg
from rollergen.hal.runtimes import pocl_linker
from rollergen.hal.runtimes.pocl_linker import LinkerMissingError, has_linker, require_linker

INSTALL = "apt install binutils gcc libc6-dev"

BUILD = """
import rollergen as rg
rg.build(rg.ops.relu(rg.tensor("x", (4,))), "cpu", top_k=1, options=rg.BuildOptions(isolate={isolate}))
"""


@pytest.fixture(autouse=True)
def _anew():
    pocl_linker._trouble.cache_clear()
    yield
    pocl_linker._trouble.cache_clear()


def without_linker(tmp_path, *arguments):
    """What becomes of a Python process that finds no program on its PATH, and no kernel that was linked before."""
    (tmp_path / "nothing").mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": str(tmp_path / "nothing"), "POCL_CACHE_DIR": str(tmp_path / "kernels")}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(os.path.exists("/usr/local/bin/ld"), reason="PoCL finds that one whatever the PATH is")
def test_a_build_without_a_linker_is_an_error_that_says_what_to_install(tmp_path):
    for isolate in (False, True):
        ended = without_linker(tmp_path, "-c", BUILD.format(isolate=isolate))
        assert ended.returncode == 1 and "DeviceError: PoCL links every kernel with the system's linker" in ended.stderr
        assert 'Executable "ld" doesn\'t exist!' in ended.stderr and INSTALL in ended.stderr


@pytest.mark.skipif(os.path.exists("/usr/local/bin/ld"), reason="PoCL finds that one whatever the PATH is")
def test_the_launcher_of_a_saved_kernel_says_so_too(tmp_path):
    saved = rg.build(rg.ops.relu(rg.tensor("x", (4,))), "cpu", profile=False).save(tmp_path / "kernel")
    ended = without_linker(tmp_path, str(saved / "launcher.py"))
    assert ended.returncode not in (0, -signal.SIGABRT) and INSTALL in ended.stderr + ended.stdout


def test_a_linker_is_found_by_both_names_that_clang_looks_for(tmp_path):
    assert not has_linker(str(tmp_path)) or os.path.exists("/usr/local/bin/ld")
    for name in ("ld", f"{os.uname().machine}-unknown-linux-gnu-ld"):
        found = tmp_path / name
        found.write_text("#!/bin/sh\n")
        found.chmod(0o755)
        assert has_linker(str(tmp_path))
        found.unlink()


@pytest.mark.parametrize(("code", "refused"), [(-signal.SIGABRT, True), (0, False), (1, False)])
def test_what_is_not_where_it_usually_is_is_tried_and_refused_only_if_the_process_ends(code, refused, monkeypatch):
    ended = SimpleNamespace(returncode=code, stderr="ld: cannot find -lgcc\nFinal linking of kernel trial failed.")
    monkeypatch.setattr(subprocess, "run", lambda *given, **named: ended)
    monkeypatch.setattr(pocl_linker, "has_libraries", lambda: False)
    if refused:
        with pytest.raises(LinkerMissingError, match="as it does here: ld: cannot find -lgcc; Final linking"):
            require_linker()
    else:
        require_linker()


def test_where_linker_and_libraries_are_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(pocl_linker, "has_linker", lambda path: True)
    monkeypatch.setattr(pocl_linker, "has_libraries", lambda: True)
    monkeypatch.setattr(pocl_linker, "failed_trial", lambda: "tried")
    require_linker()
