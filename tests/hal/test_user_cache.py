"""The user's cache directory is where `platformdirs` has it, which Linux need not import."""

import subprocess
import sys

import platformdirs
import pytest

from rollergen.hal.files.user_cache import user_directory


@pytest.mark.parametrize("named", ["/somewhere/else", "", "  ", None])
@pytest.mark.parametrize("home", ["/home/somebody", None])
def test_it_is_that_of_platformdirs(named, home, monkeypatch):
    for name, value in (("XDG_CACHE_HOME", named), ("HOME", home)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert str(user_directory()) == platformdirs.user_cache_dir("rollergen")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other directories")
def test_a_relative_directory_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(user_directory()) == "/home/somebody/.cache/rollergen"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other directories")
def test_linux_does_without_importing_it():
    code = "import sys; from rollergen.hal.files.user_cache import user_directory; user_directory(); "
    done = subprocess.run([sys.executable, "-c", f"{code}sys.exit('platformdirs' in sys.modules)"])
    assert done.returncode == 0
