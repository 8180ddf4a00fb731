"""Saved models: loaded they return what they did, without rollergen too; what was damaged is refused."""

import copy
import json
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, BundleError, DeviceError

onnx = pytest.importorskip("onnx")
from tests.network.test_onnx_models import convolutions, sorted_rows, weights  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(the model, its directory, an input)"""
    model = rg.compile(convolutions(), None, "cpu", profile=False)
    return model, model.save(tmp_path_factory.mktemp("models") / "small"), weights(1, 3, 6, 6)


def test_a_loaded_model_returns_what_it_did(saved):
    model, directory, x = saved
    loaded = rg.load(directory)
    assert np.array_equal(loaded(x), model(x)) and np.array_equal(loaded(x=x), model(x))
    assert [one.operators for one in loaded.layers] == [one.operators for one in model.layers]
    assert loaded.explain() == model.explain()


def test_a_loaded_model_is_saved_and_loaded_again(saved, tmp_path):
    model, directory, x = saved
    again = rg.load(rg.load(directory).save(tmp_path / "again"))
    assert np.array_equal(again(x), model(x))


def in_python(directory, where, *arguments):
    """run.py of the directory, where neither rollergen nor ONNX can be imported."""
    given = f"sys.argv = {['run.py', *map(str, arguments)]}; runpy.run_path({str(directory / 'run.py')!r}, run_name='__main__')"
    alone = "import sys; sys.modules['rollergen'] = sys.modules['onnx'] = None; import runpy; "
    return subprocess.run([sys.executable, "-c", alone + given], cwd=where, capture_output=True, text=True, timeout=300)


def test_a_directory_runs_without_rollergen(saved, tmp_path):
    model, directory, x = saved
    np.save(tmp_path / "x.npy", x)
    test = in_python(directory, tmp_path)
    assert test.returncode == 0 and test.stdout.splitlines()[-1] == "PASSED", test.stderr
    assert in_python(directory, tmp_path, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.result").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.result"), model(x))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, r"cannot run here: x\.npy cannot be read: .*No such file"),
        (b"text", r"cannot run here: x\.npy cannot be read: .*pickle"),
        (b"PK\x03\x04 half an archive", r"cannot run here: x\.npy cannot be read: File is not a zip file"),
        (np.zeros((1, 3, 6, 6)), r"cannot run here: x is float64\[1, 3, 6, 6\]; expected float32\[1, 3, 6, 6\]"),
        (np.zeros((1, 3, 6, 6), np.uint16), r"cannot run here: x is uint16\[1, 3, 6, 6\]; expected float32"),
    ],
)
def test_a_file_that_is_no_input_is_named_and_nothing_written(saved, tmp_path, content, told):
    if isinstance(content, bytes):
        (tmp_path / "x.npy").write_bytes(content)
    elif content is not None:
        np.save(tmp_path / "x.npy", content)
    refused = in_python(saved[1], tmp_path, "--input", "x.npy", "--output", "y.npy")
    assert refused.returncode == 2 and re.fullmatch(f"{told}.*\n", refused.stderr)
    assert not (tmp_path / "y.npy").exists()


def test_a_result_is_asked_for_with_its_inputs(saved, tmp_path):
    refused = in_python(saved[1], tmp_path, "--output", "y.npy")
    assert refused.returncode == 2 and "0 arrays given, expected 1: ['x']" in refused.stderr


def in_c(directory, *arguments):
    told = {"PYTHON": sys.executable, "ARGUMENTS": " ".join(map(str, arguments)), "CFLAGS": "-O2 -Werror"}
    given = [f"{name}={text}" for name, text in told.items()]
    return subprocess.run(["make", "-s", "run-pip", *given], cwd=directory, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not shutil.which("make") or not shutil.which("cc"), reason="make or cc is not installed")
def test_a_directory_runs_from_c(saved, tmp_path):
    model, directory, x = saved
    again = shutil.copytree(directory, tmp_path / "again")
    np.save(tmp_path / "x.npy", x)
    done = in_c(again, tmp_path / "x.npy", tmp_path / "y.npy")
    assert done.returncode == 0 and "us (device's own time of the first call)" in done.stdout, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(x))
    assert "input  x: '<f4' (1, 3, 6, 6)" in in_c(again).stdout
    np.save(tmp_path / "x.npy", x.astype(np.float64))
    refused = in_c(again, tmp_path / "x.npy", tmp_path / "z.npy")
    assert "x.npy holds {'descr': '<f8'" in refused.stderr and "expected '<f4' in C order" in refused.stderr
    np.save(tmp_path / "x.npy", x)
    content = bytearray((again / "weights.bin").read_bytes())
    content[5] ^= 1
    (again / "weights.bin").write_bytes(content)
    refused = in_c(again, tmp_path / "x.npy", tmp_path / "z.npy")
    assert "weights.bin is not the file that was saved" in refused.stderr and not (tmp_path / "z.npy").exists()


def test_damaged_weights_and_steps_that_do_not_fit_are_refused(saved, tmp_path):
    model, _, _ = saved
    directory = model.save(tmp_path / "damaged")
    described = json.loads((directory / "model.json").read_text())
    places = [one["offset"] for one in described["weights"]]
    described["weights"][1]["offset"] = 0
    (directory / "model.json").write_text(json.dumps(described))
    with pytest.raises(BundleError, match=rf"begins at 0; expected {places[1]} of weights\.bin, behind"):
        rg.load(directory)
    described["weights"][1]["offset"] = places[1]
    described["steps"][0]["inputs"][0] = "none"
    (directory / "model.json").write_text(json.dumps(described))
    with pytest.raises(BundleError, match=r"Conv_0 \.\. Relu_1 has \[None, "):
        rg.load(directory)
    content = bytearray((directory / "weights.bin").read_bytes())
    content[5] ^= 1
    (directory / "weights.bin").write_bytes(content)
    with pytest.raises(BundleError, match=r"weights\.bin: its SHA-256 is not the one in model\.json"):
        rg.load(directory)
    (directory / "model.json").write_text("{}")
    with pytest.raises(BundleError, match=r"no saved model, or a damaged one: KeyError: 'format'"):
        rg.load(directory)


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"steps that its own library runs, which cannot be saved: NonZero_1: NonZero"):
        rg.compile(sorted_rows(), None, "v100", profile=False).save(tmp_path / "rows")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    same = onnx.helper.make_model(onnx.helper.make_graph([], "same", [value], [value]))
    with pytest.raises(ArgumentError, match="same has no kernel to save: its results are inputs and constants"):
        rg.compile(same, None, "cpu").save(tmp_path / "same")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").write_text("mine")
    with pytest.raises(BundleError, match="mine exists; expected a new name, an empty directory or a saved model"):
        rg.compile(convolutions(), None, "v100", profile=False).save(tmp_path / "mine")


def test_a_loaded_model_says_that_it_has_no_definitions(saved):
    _, directory, x = saved
    with pytest.raises(ArgumentError, match=r"was loaded: only what rg\.compile made has definitions"):
        rg.load(directory).check(x)


def test_a_model_copies_to_itself_and_says_save_where_it_is_pickled(saved):
    model, _, _ = saved
    assert copy.copy(model) is model and copy.deepcopy([model]) == [model]
    with pytest.raises(DeviceError, match=r"cannot be pickled: .*model\.save\(directory\) here and rg\.load"):
        pickle.dumps(model)


def test_a_directory_with_nothing_saved_is_told_from_kernels_and_models(tmp_path):
    expected = r"no saved kernel: it has no manifest\.json, and no saved model: it has no model\.json"
    with pytest.raises(BundleError, match=expected):
        rg.load(tmp_path)
    with pytest.raises(BundleError, match=r"none is no directory; expected one that kernel\.save or model\.save wrote"):
        rg.load(tmp_path / "none")
