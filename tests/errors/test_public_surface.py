"""Whatever is wrong with a call, the error names the thing, its value and what would be accepted."""

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen import errors
from rollergen.errors import (
    ArgumentError,
    ConstructionError,
    DeviceError,
    DoesNotFitError,
    DtypeError,
    ExpressionError,
    NonAffineIndexError,
    ShapeError,
)
from rollergen.hal.load import device_to_json

A, B = rg.tensor("A", (8, 4)), rg.tensor("B", (4, 6))
C = rg.ops.matmul(A, B, name="C")
k = rg.reduce_axis("k", 4)


def kernel():
    return rg.build(C, "cpu", profile=False)


def interpreted():
    return rg.build(C, "v100", profile=False, top_k=1)


a, b = np.ones((8, 4), np.float32), np.ones((4, 6), np.float32)

CASES = {
    "swapped shape and function": (
        lambda: rg.compute(lambda i: A[i, 0], (8,)), ExpressionError, ["compute", "shape"]),
    "swapped name and shape": (lambda: rg.tensor((8,), "A"), ExpressionError, ["swapped"]),
    "unknown dtype": (lambda: rg.tensor("A", (8,), "float23"), DtypeError, ["float23", "float32", "bfloat16"]),
    "negative extent": (lambda: rg.tensor("A", (8, -1)), ShapeError, ["-1"]),
    "non-affine index": (
        lambda: rg.compute((2, 2), lambda i, j: A[i * j, 0]), NonAffineIndexError, ["A", "i*j"]),
    "data-dependent index": (
        lambda: rg.compute((2,), lambda i: A[B[i, 0], 0]), NonAffineIndexError, ["A"]),
    "shapes that do not match": (lambda: rg.ops.matmul(A, A), ShapeError, ["(8, 4)", "k = 4", "k = 8"]),
    "truth of a condition": (
        lambda: rg.compute((8,), lambda i: A[i, 0] if A[i, 0] > 0 else A[i, 1]), ExpressionError, ["rg.select"]),
    "nothing to compute": (lambda: rg.build(A, "cpu"), ExpressionError, ["A", "nothing to compute"]),
    "swapped device and expression": (lambda: rg.build("cpu", C), ExpressionError, ["'cpu'", "rg.build(expr, device)"]),
    "unknown device": (lambda: rg.build(C, "v10"), DeviceError, ["v10", "did you mean v100?", "mi50"]),
    "missing device file": (lambda: rg.build(C, "none.json"), DeviceError, ["none.json", "cannot be read"]),
    "device of another type": (lambda: rg.build(C, 100), DeviceError, ["100", "a name such as 'v100'"]),
    "top_k of zero": (lambda: rg.build(C, "cpu", top_k=0), ArgumentError, ["top_k is 0", "1 to 50"]),
    "top_k that is no number": (lambda: rg.build(C, "cpu", top_k="ten"), ArgumentError, ["top_k is 'ten'"]),
    "profile of another kind": (lambda: rg.build(C, profile="yes"), ArgumentError, ["profile is 'yes'", '"auto"']),
    "options of another type": (
        lambda: rg.build(C, "cpu", options={"top": 1}), ArgumentError, ["options is {'top': 1}", "BuildOptions"]),
    "negative waste": (lambda: rg.BuildOptions(epsilon=-0.5), ArgumentError, ["epsilon is -0.5", "at least 0"]),
    "waste that is no number": (lambda: rg.BuildOptions(epsilon="much"), ArgumentError, ["epsilon is 'much'"]),
    "padding of another type": (lambda: rg.BuildOptions(padding=1), ArgumentError, ["padding is 1", "True or False"]),
    "a pad value that is no number": (lambda: rg.BuildOptions(pad_value="x"), ArgumentError, ["pad_value is 'x'"]),
    "waste without padding": (
        lambda: rg.BuildOptions(padding=False, epsilon=0.1), ArgumentError, ["epsilon is 0.1", "padding=True"]),
    "limits that admit nothing": (
        lambda: rg.build(rg.ops.relu(rg.tensor("X", (997,))), "v100", options=rg.BuildOptions(padding=False)),
        ConstructionError, ["within padding=False", "tensor shape", "epsilon="]),
    "no units": (lambda: rg.BuildOptions(max_units=0), ArgumentError, ["max_units is 0", "at least 1"]),
    "no time": (lambda: rg.BuildOptions(time_budget_s=0), ArgumentError, ["time_budget_s is 0", "above 0"]),
    "time that is no number": (lambda: rg.BuildOptions(time_budget_s=None), ArgumentError, ["time_budget_s is None"]),
    "alignment of another type": (lambda: rg.BuildOptions(alignment=True), ArgumentError, ["True", "AlignmentRules"]),
    "foreign input": (
        lambda: rg.build(C, "cpu", inputs=[A, rg.tensor("D", (3,))]), ExpressionError, ["D", "A, B"]),
    "too few arrays": (lambda: kernel()(a), ArgumentError, ["1 arrays given, expected 2", "B missing"]),
    "swapped arrays": (lambda: kernel()(b, a), ShapeError, ["A has shape (4, 6); expected (8, 4)", "by name"]),
    "wrong dtype": (lambda: kernel()(a, b.astype("f8")), DtypeError, ["B has dtype float64; expected float32"]),
    "unknown name": (lambda: kernel()(a, X=b), ArgumentError, ["no input is called 'X'", "A, B"]),
    "no NumPy array": (lambda: kernel()(a, [1]), ArgumentError, ["B is a builtins.list", "NumPy"]),
    "overlapping output": (
        lambda: rg.build(rg.ops.relu(A), "cpu", profile=False)(a, out=a), ArgumentError, ["overlaps"]),
    "output of the wrong shape": (lambda: kernel()(a, b, out=a), ShapeError, ["C has shape (8, 4); expected (8, 6)"]),
    "calling an absent device": (
        lambda: interpreted()(a, b), DeviceError, ["v100", "not present", "interpret"]),
    "interpreting with wrong arrays": (lambda: interpreted().interpret(a), ArgumentError, ["1 arrays given"]),
    "profiling an expression": (lambda: rg.profile(C, "cpu"), ArgumentError, ["programs is C", "rg.construct"]),
    "predicting an expression": (lambda: rg.predict(C, "cpu"), ArgumentError, ["program is C", "rg.construct"]),
    "profiling with swapped arguments": (
        lambda: rg.profile("cpu", [C]), ArgumentError, ["programs is 'cpu'", "rg.construct"]),
    "profiling nothing": (lambda: rg.profile([], "cpu"), ArgumentError, ["programs is empty"]),
    "what does not fit the ipu": (
        lambda: rg.build(rg.ops.exp(rg.tensor("X", (1 << 28,))), "ipu"), DoesNotFitError, ["bytes"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_the_error_is_named_and_says_what_would_be_accepted(name):
    call, kind, parts = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


def test_a_broken_device_file_is_refused_with_its_json_path(tmp_path: Path):
    document = device_to_json(rg.load_device("v100"))
    document["memory_layers"][1]["banks"] = 0
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DeviceError, match=r"mine\.json: memory_layers\[1\]\.banks is 0; expected"):
        rg.load_device(str(path))


@pytest.mark.parametrize("kind", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)])
def test_errors_travel_between_processes(kind):
    error = pickle.loads(pickle.dumps(kind("what is wrong")))
    assert type(error) is kind and str(error) == "what is wrong"


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        rg.BuildOptions().max_units = 3


def test_an_unknown_public_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"rollergen has no attribute 'biuld'; did you mean build"):
        rg.biuld  # noqa: B018
