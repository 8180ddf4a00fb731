"""What only extras install is named, with the extra, where it is missing."""

import math
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from rollergen.errors import DeviceError
from rollergen.optional import blank_plot, optional


def test_what_is_installed_is_the_module_itself():
    assert optional("math", "verify") is math


@pytest.mark.parametrize("missing", ["no_such_package", "no_such_package.part"])
def test_what_is_missing_is_named_with_the_extra_that_installs_it(missing):
    with pytest.raises(DeviceError, match=rf'{missing} is missing \(.*\); pip install "rollergen\[pacm\]"'):
        optional(missing, "pacm")


def test_a_module_of_ours_names_the_package_that_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "rollergen.importers.onnx_models", raising=False)
    with pytest.raises(DeviceError, match=r'^onnx is missing \(.*\); pip install "rollergen\[onnx\]"'):
        optional("rollergen.importers.onnx_models", "onnx")


def test_a_plot_without_matplotlib_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeviceError, match=r"matplotlib\.figure is missing .*rollergen\[plots\]"):
        blank_plot(2, 1)


def test_the_tests_bring_what_they_would_be_skipped_without():
    """NVIDIA's compiler above all: without it no kernel of the sample is compiled, and nothing would say so."""
    configured = ConfigParser()
    configured.read(Path(__file__).parent.parent / "setup.cfg")
    (own, *_) = configured["options.extras_require"]["test"].split()
    assert set(own.removeprefix("rollergen[").removesuffix("]").split(",")) == {"cpu", "nvrtc", "parquet", "verify"}
