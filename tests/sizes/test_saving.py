"""Kernels for all sizes as directories: what was saved is called, explained and refused like what was built."""

import json

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, BundleError, ShapeError

T = rg.tensor


def arrays(size):
    draw = np.random.default_rng(size)
    return [draw.integers(-3, 4, shape).astype("float32") for shape in ((size, 20), (18, 20), (18,))]


@pytest.fixture(scope="module")
def built():
    S = rg.dim("S", 1, 9)
    return rg.build(rg.ops.relu(rg.ops.linear(T("x", (S, 20)), T("w", (18, 20), constant=True), T("b", (18,)))), "cpu")


@pytest.fixture
def saved(built, tmp_path):
    return built.save(tmp_path / "kernel")


def test_a_loaded_kernel_computes_every_size_and_says_the_same(built, saved):
    loaded = rg.load(saved)
    assert loaded.signature == built.signature and loaded.sources == built.sources
    assert loaded.programs == built.programs
    for size in range(1, 10):
        x, w, b = arrays(size)
        np.testing.assert_array_equal(loaded(x, w, b), np.maximum(x @ w.T + b, 0))
        assert loaded.predicted_time(S=size) == pytest.approx(built.predicted_time(S=size))
        assert str(loaded.at(S=size).signature) == str(built.at(S=size).signature)
    assert loaded.explain(as_dict=True)["map"] == built.explain(as_dict=True)["map"]
    with pytest.raises(ShapeError, match="S is 10; expected an integer from 1 to 9"):
        loaded(*arrays(10))
    again = rg.load(loaded.save(saved))  # in its own place
    np.testing.assert_array_equal(again(*arrays(7)), built(*arrays(7)))


def test_two_dims_and_integers_of_the_call_are_saved(tmp_path):
    B, S, by = rg.dim("B", 2, 4), rg.dim("S", 2, 6), rg.scalar("by", "int32", 0, 7)
    x = T("x", (B, S, 8))
    y = rg.ops.linear(rg.compute((B, S, 8), lambda b, s, i: x[b, s, i] * rg.cast(by, "float32")), T("w", (5, 8)))
    kernel = rg.load(rg.build(y, "v100").save(tmp_path / "two"))
    draw = np.random.default_rng(0)
    for shape in ((4, 6, 8), (2, 5, 8), (3, 2, 8)):
        a, w = draw.integers(-3, 4, shape).astype("float32"), draw.integers(-3, 4, (5, 8)).astype("float32")
        np.testing.assert_array_equal(kernel.interpret(a, w=w, by=3), 3 * a @ w.T)
        with pytest.raises(ArgumentError, match="by is 8; expected 0 to 7"):
            kernel.interpret(a, w=w, by=8)


def test_what_cannot_be_saved_is_refused(built, tmp_path):
    S = rg.dim("S", 2, 9)
    with pytest.raises(BundleError, match="every size has a kernel of its own"):
        rg.build(rg.ops.transpose(T("x", (3, S)), 0, 1), "v100").save(tmp_path / "k")
    many = rg.build(rg.ops.relu(T("x", (rg.dim("S", 1, 9000), 8))), "v100")
    with pytest.raises(BundleError, match="S have 9000 sizes, each of which would be looked at"):
        many.save(tmp_path / "k")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with pytest.raises(BundleError, match="is something else"):
        built.save(tmp_path / "mine")


@pytest.mark.parametrize("fault", ["changed", "format", "plans", "gone", "type"])
def test_a_damaged_directory_is_refused(saved, fault):
    path = saved / ("manifest.json" if fault == "format" else "sizes.json")
    data = json.loads(path.read_text())
    if fault == "format":
        data["format"] = "rollergen.sizes.v0"
    elif fault == "plans":
        data["plans"] = []
    elif fault == "type":
        data["places"] = [[1, 2]]
    path.write_text(json.dumps(data))
    if fault in ("plans", "type"):  # as one who knows the format would do it
        import hashlib

        manifest = json.loads((saved / "manifest.json").read_text())
        manifest["files"]["sizes.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (saved / "manifest.json").write_text(json.dumps(manifest))
    if fault == "gone":
        (saved / "device.json").unlink()
    with pytest.raises(BundleError, match=r"sizes\.json|manifest\.json|device\.json"):
        rg.load(saved)
