"""What the benches of a machine with a GPU measure, and beside whom: the list, torch's namesakes, predictions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import rollergen as rg
from benches.gpu import cases, check, peers, predict
from benches.gpu.rows import COMPLETE, RESULTS
from benches.gpu.torch_calls import operator
from benches.peers.interface import Library, NotOfferedError, no_threads
from benches.results import ROOT
from rollergen.bench.suites import suite
from rollergen.errors import ArgumentError, RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.gate.differences import differences
from rollergen.gate.tolerance import Accuracy
from tests.agreement.cutting import cut


def small(name: str, id: str, points: int = 30_000, most_bytes: int = 1 << 18):
    """In float64 where the suite is our own: then the definition rounds nothing, and torch's must be it."""
    entry = cases.listed((name,))[name, id]
    if name == cases.SUITE:
        entry = cases.small(entry)
        return replace(entry, fields={**entry.fields, "dtype": "float64"})
    if name == "autotvm-resnet18":  # the images as they are: their padding is what matters
        image, weights = list(entry.fields["input"]), list(entry.fields["weight"])
        image[1] = weights[1] = 2
        return replace(entry, fields={**entry.fields, "input": image, "weight": [3, *weights[1:]]})
    return replace(entry, fields=cut(entry, points, most_bytes, images=name == "roller"))


def one_of_each():
    """An entry for each kind, stride, padding and window of the suites, and for each cut size of our own."""
    found = {}
    for (name, id), entry in cases.listed(cases.SUITES).items():
        fields = entry.fields
        if name == cases.SUITE:
            own = cases.small(entry).fields
            found.setdefault((name, entry.kind, *(own[key] for key in own if key not in ("dtype", "core"))), (name, id))
            continue
        window = [extent for _, extent in fields["axes"]["reduce"]][-2:] if entry.kind in ("avg_pool2d",) else ()
        shape = fields["inputs"][1]["shape"][-2:] if entry.kind.endswith("conv2d") and "inputs" in fields else window
        what = (name, entry.kind, str(fields.get("stride")), str(fields.get("padding")), tuple(shape))
        found.setdefault(what, (name, id))
    return list(found.values())


@pytest.mark.parametrize(("name", "id"), one_of_each())
def test_torchs_namesake_computes_the_definition(name, id):
    torch = pytest.importorskip("torch")
    entry = small(name, id)
    expression = entry.make()
    inputs = [np.random.default_rng(n).standard_normal(b.shape) for n, b in enumerate(given(expression))]
    made = operator(entry)
    prepared = made.prepare(*map(torch.from_numpy, inputs))
    got, want = made.call(*prepared), expression.evaluate(*inputs)
    assert tuple(got.shape) == want.shape
    assert np.allclose(got.numpy(), want, rtol=0, atol=1e-9 * max(1.0, float(np.abs(want).max())))
    if made.into:
        out = torch.empty(want.shape, dtype=torch.float64)
        made.into(*prepared, out)
        assert np.array_equal(out.numpy(), got.numpy())


def stand_in(compute, absent=None):
    """A library whose kernel is ``compute(name, settings, *tensors)``."""

    def enqueued(name, tensors, out, settings):
        return lambda: out.copy_(compute(name, settings, *tensors))

    return SimpleNamespace(LIBRARY=Library(compute.__name__, "cpu", lambda: absent, no_threads, None), enqueued=enqueued)


def right(name, settings, *tensors):
    import torch

    made = {"matmul": lambda a, b: a @ b, "relu": torch.relu, "sum": lambda x: x.sum(settings["dim"])}
    return made[name](*tensors)


def wrong(name, settings, *tensors):
    return right(name, settings, *tensors) + 0.01


def broken(name, settings, *tensors):
    raise RuntimeError("out of shared memory\nand more")


def gone(name, settings, *tensors):
    raise AssertionError("it is absent, and must not be called")


@pytest.mark.parametrize(
    ("name", "id"), [("roller", "M0"), ("roller", "E0"), ("roller", "R0"), ("pruner-linears", None)]
)
def test_written_kernels_compete_where_they_compute_what_we_do(name, id, monkeypatch):
    torch = pytest.importorskip("torch")
    id = id or next(entry.id for entry in suite(name).entries if entry.dtype == "float32")
    entry = small(name, id)
    inputs = tuple(torch.rand(b.shape) - 0.5 for b in given(entry.make()))
    made = operator(entry)
    want = made.call(*made.prepare(*inputs))
    monkeypatch.setattr(torch, "compile", lambda call, **how: call)  # the real one takes long
    monkeypatch.setattr(peers, "WRITTEN", [stand_in(right), stand_in(wrong), stand_in(broken), stand_in(gone, "no GPU")])
    found, refused = peers.compilers(entry, inputs, want, {})
    assert set(found) == {"torch.compile", "right"} and set(refused) == {"wrong", "broken"}
    assert refused["broken"] == "fails: out of shared memory"
    assert refused["wrong"].startswith("fails: it computes something else than we (largest difference 0.0")


def test_written_kernels_do_not_compete_in_what_they_are_not_written_for(monkeypatch):
    torch = pytest.importorskip("torch")
    entry = small("roller", "C0")
    inputs = tuple(torch.rand(b.shape) for b in given(entry.make()))
    monkeypatch.setattr(torch, "compile", lambda call, **how: call)
    monkeypatch.setattr(peers, "WRITTEN", [stand_in(right)])
    found, refused = peers.compilers(entry, inputs, torch.zeros(1), {})
    assert not found and refused["right"] == "no kernel is written for conv2d"
    assert refused["torch.compile"].startswith("fails: its result has shape (")


def test_every_kind_that_a_kernel_is_written_for_is_asked_for_as_torch_computes_it():
    torch = pytest.importorskip("torch")
    asked = set()
    for entry in {e.kind: e for e in cases.entries()}.values():
        inputs = tuple(torch.rand(b.shape, dtype=torch.float64) for b in given(small(cases.SUITE, entry.id).make()))
        try:
            name, tensors, settings = peers._request(small(cases.SUITE, entry.id), inputs)
        except NotOfferedError:
            continue
        asked.add(entry.kind)
        by_torch = {
            "matmul": torch.mm, "add": torch.add, "gelu": torch.nn.functional.gelu, "softmax": torch.softmax,
            "layer_norm": lambda x, w, b, normalized_shape: torch.nn.functional.layer_norm(x, normalized_shape, w, b),
            "rms_norm": lambda x, w, normalized_shape: torch.nn.functional.rms_norm(x, normalized_shape, w, 1e-6),
            "sum": torch.sum, "max": torch.amax,
        }
        made = operator(entry if entry.kind in ("prefill",) else small(cases.SUITE, entry.id))
        want = made.call(*made.prepare(*inputs))
        assert torch.allclose(by_torch[name](*tensors, **settings), want), entry.kind
    assert asked == {"matmul", "linear", "decode", "add", "gelu", "softmax", "layer_norm", "rms_norm", "sum", "max"}


def given(expression):
    return canonicalize(expression).inputs


def test_an_operator_without_a_namesake_is_refused():
    with pytest.raises(ArgumentError, match=r"torch's namesake of collection:.* is not known; known are matmul"):
        operator(suite("collection").entries[0])


@pytest.mark.parametrize("variance", [0.0, 1e-13])
def test_elements_are_judged_by_the_gates_tolerance(variance):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    want = random.standard_normal(5000)
    got = want.astype("f4")
    got[::7] += (10.0 ** random.uniform(-9, -3, got[::7].size)).astype("f4")
    got[3] = math.nan
    expected = int(differences(got, want, variance, "float32", False, 0.0).sum())
    assert 100 < expected < 900
    found = check.wrong_elements(
        torch.from_numpy(got), torch.from_numpy(want), Accuracy(variance, math.inf), "float32"
    )  # fmt: skip
    assert found == expected


def test_a_result_of_another_shape_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(RollergenError, match=r"shape \(3,\); expected \(4,\)"):
        check.wrong_elements(torch.zeros(3), torch.zeros(4), Accuracy(0.0, math.inf), "float32")


def test_predictions_are_those_of_the_ten_programs_that_are_measured(tmp_path):
    assert predict.main(["--device", "h200", "--only", "E0", "--results", str(tmp_path)]) == COMPLETE
    (row,) = json.loads((tmp_path / "gpu_predictions_h200.json").read_text())["rows"]
    kernel = rg.build(suite("roller").entry("E0").make(), "h200", profile=False, cache=False)
    assert check.digest_of(kernel) == row["programs"][0][0] and row["limiters"]
    assert [us for _, us in row["programs"]] == [round(1e6 * one.predicted_s, 4) for one in kernel.candidates]


@pytest.mark.parametrize("name", ["v100", "a100", "h200"])
def test_predictions_of_the_whole_list_are_committed(name):
    file = RESULTS / f"gpu_predictions_{name}.json"
    kept = json.loads(file.read_text())
    assert kept["spec"] == name and [(row["suite"], row["id"]) for row in kept["rows"]] == list(cases.listed())
    assert all(row["commit"] and row["date"] and row["programs"][0][1] > 0 for row in kept["rows"])
    assert "python benches/gpu/run.py" in (ROOT / "docs" / "measurements.md").read_text()


def test_the_list_has_every_narrow_dtype_of_products_and_images_and_is_core_first():
    listed = cases.listed()
    core = [cases.is_core(entry) for entry in listed.values()]
    assert core == sorted(core, reverse=True) and 40 < sum(core) < 80 < len(core)
    for kind in ("matmul", "linear", "decode", "conv_nchw", "conv_nhwc", "transpose"):
        assert {e.dtype for e in listed.values() if e.kind == kind and cases.is_core(e)} >= {"float16", "bfloat16", "int8"}
    assert {e.fields["m"] for e in listed.values() if e.kind == "decode"} == {1, 2, 4, 8, 16, 32}
    assert len({cases.group(entry) for entry in listed.values()}) == 13


def test_operations_are_counted_as_the_definition_has_them():
    for id in ("matmul 4096x4096x4096 int8", "batch_matmul 64x1024x1024x64 float16", "decode 8x28672x4096 bfloat16",
               "conv_nhwc 32x28x28x128x128x3x2 float16", "conv_nchw 32x14x14x256x256x3x1 int8"):  # fmt: skip
        entry = cases.listed()["gpu", id]
        points = max(one.points for one in canonicalize(entry.make()).tensor_ops)
        assert cases.operations(entry) == 2 * points, id
    assert cases.operations(cases.listed()["gpu", "add 67108864 int8"]) == 0
