"""The benches of a machine with a GPU, as far as they go without: torch on the CPU, CuPy and the GPU `fake`."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import rollergen as rg
from benches.gpu import check, compare, machine, peers, predict, rows, run
from benches.gpu.peers import SUITES, operator
from benches.gpu.rows import COMPLETE, RESULTS, UNFINISHED, Budget, Rows
from benches.gpu.summary import kendall_tau, summary
from benches.gpu.timer import Timer
from benches.peers.interface import Library, no_threads
from benches.results import ROOT
from rollergen.errors import ArgumentError, RollergenError
from rollergen.hal.cuda_runtime import CudaRuntime
from rollergen.measure.tolerance import Accuracy, differences
from rollergen.suites import suite
from tests.agreement.cutting import cut
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy  # noqa: F401 (a fixture)

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def small(name: str, id: str, points: int = 30_000, most_bytes: int = 1 << 18):
    entry = suite(name).entry(id)
    if name == "autotvm-resnet18":  # the images as they are: their padding is what matters
        image, weights = list(entry.fields["input"]), list(entry.fields["weight"])
        image[1] = weights[1] = 2
        return replace(entry, fields={**entry.fields, "input": image, "weight": [3, *weights[1:]]})
    return replace(entry, fields=cut(entry, points, most_bytes, images=name == "roller"))


def one_of_each():
    """An entry for each kind, stride, padding and window of the suites that have torch's namesakes."""
    found = {}
    for entry in (e for name in SUITES for e in suite(name).entries):
        fields = entry.fields
        window = [extent for _, extent in fields["axes"]["reduce"]][-2:] if entry.kind in ("avg_pool2d",) else ()
        shape = fields["inputs"][1]["shape"][-2:] if entry.kind.endswith("conv2d") and "inputs" in fields else window
        what = (entry.suite, entry.kind, str(fields.get("stride")), str(fields.get("padding")), tuple(shape))
        found.setdefault(what, entry)
    return [(entry.suite, entry.id) for entry in found.values()]


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
def test_written_kernels_compete_where_they_compute_what_torch_does(name, id, monkeypatch):
    torch = pytest.importorskip("torch")
    id = id or next(entry.id for entry in suite(name).entries if entry.dtype == "float32")
    entry = small(name, id)
    inputs = tuple(torch.rand(b.shape) - 0.5 for b in given(entry.make()))
    made = operator(entry)
    want = made.call(*made.prepare(*inputs))
    monkeypatch.setattr(peers, "WRITTEN", [stand_in(right), stand_in(wrong), stand_in(broken), stand_in(gone, "no GPU")])
    found, refused = peers.written(entry, inputs, want)
    assert set(found) == {"right"} and set(refused) == {"wrong", "broken"}
    assert refused["broken"] == "fails: out of shared memory"
    assert refused["wrong"].startswith("fails: it computes something else than torch (largest difference 0.0")


def test_written_kernels_do_not_compete_in_what_they_are_not_written_for(monkeypatch):
    torch = pytest.importorskip("torch")
    entry = small("roller", "C0")
    inputs = tuple(torch.rand(b.shape) for b in given(entry.make()))
    monkeypatch.setattr(peers, "WRITTEN", [stand_in(right)])
    assert peers.written(entry, inputs, torch.zeros(1)) == ({}, {"right": "no kernel is written for conv2d"})


def given(expression):
    from rollergen.expr.canonical import canonicalize

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


@on_host
def test_calls_are_timed_in_turns_in_both_states_of_the_cache(cupy):  # noqa: F811
    timer, calls = Timer(CudaRuntime(), 1000.0), []
    cupy.LOG.clear()
    times = timer.alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 0.0, "warm")
    assert "".join(calls[6:12]) == "abbaab"  # after three calls of each to warm up
    assert times["a"].rounds == times["b"].rounds == 9 and times["a"].late == 0
    assert times["a"].least_us <= times["a"].lower_us <= times["a"].median_us <= times["a"].upper_us
    assert not any(what[0] == "fill" for what in cupy.LOG)
    timer.alternate({"a": lambda: None}, 0.0, "cold")
    order = [what[0] for what in cupy.LOG if what[0] in ("fill", "launch")]
    assert order[-18:] == ["fill", "launch"] * 9  # flushed, then held, then the call


@on_host
def test_a_round_that_the_device_did_not_wait_for_does_not_count(cupy, monkeypatch):  # noqa: F811
    timer = Timer(CudaRuntime(), 1000.0, hold_s=0.01)
    monkeypatch.setattr(cupy.cuda.Event, "done", True)
    assert timer.alternate({"a": lambda: None}, 0.0, "warm") == {"a": None}
    assert timer.hold_s == 0.16  # doubled until it is beyond a tenth of a second


def test_rows_go_on_where_time_ran_out(tmp_path):
    made, file = [], tmp_path / "rows.json"

    def make(key):
        made.append(key)
        return {"id": key, "state": "wrong" if key == 1 else "right"}

    kept_rows = lambda: Rows(file, lambda row: row["id"], {"gpu": "none"}, len)
    assert kept_rows().fill([0, 1, 2], make, Budget(-1.0)) == UNFINISHED and made == []
    assert kept_rows().fill([0, 1], make, Budget(60.0)) == COMPLETE and made == [0, 1]
    assert kept_rows().fill([0, 1, 2], make, Budget(60.0)) == COMPLETE and made == [0, 1, 1, 2]  # wrong ones anew
    kept = json.loads(file.read_text())
    assert kept["summary"] == 3 and kept["gpu"] == "none" and kept["machine"] and kept["commit"] is not None


def test_rows_of_other_code_are_made_anew(tmp_path, monkeypatch, capsys):
    file, made = tmp_path / "rows.json", []
    kept_rows = lambda: Rows(file, lambda row: row["id"], {}, len)
    make = lambda key: made.append(key) or {"id": key, "state": "right"}
    assert kept_rows().fill([0, 1], make, Budget(60.0)) == COMPLETE
    monkeypatch.setattr(rows, "code", lambda: {"product": "another"})
    assert kept_rows().all() == [] and "2 of 2 rows are of other code" in capsys.readouterr().err
    assert kept_rows().fill([0], make, Budget(60.0)) == COMPLETE and made == [0, 1, 0]
    assert [row["code"] for row in json.loads(file.read_text())["rows"]] == ["another"]


def test_predictions_are_those_of_the_ten_programs_that_are_measured(tmp_path):
    assert predict.main(["--device", "h200", "--only", "E0", "--results", str(tmp_path)]) == COMPLETE
    (row,) = json.loads((tmp_path / "gpu_predictions_h200.json").read_text())["rows"]
    kernel = rg.build(suite("roller").entry("E0").make(), "h200", profile=False, cache=False)
    assert check.digest_of(kernel) == row["programs"][0]["digest"]
    assert [one["us"] for one in row["programs"]] == [round(1e6 * one.predicted_s, 4) for one in kernel.candidates]


@pytest.mark.parametrize("name", ["v100", "a100", "h200"])
def test_predictions_of_the_whole_list_are_committed(name):
    file = RESULTS / f"gpu_predictions_{name}.json"
    kept = json.loads(file.read_text())
    assert kept["spec"] == name and [row["id"] for row in kept["rows"]] == [one.id for one in suite("roller").entries]
    assert all(row["commit"] and row["programs"] and row["programs"][0]["us"] > 0 for row in kept["rows"])
    readme = (ROOT / "README.md").read_text()
    assert "benches/results/gpu_predictions_{v100,a100,h200}.json" in readme and "python benches/gpu/run.py" in readme


def test_only_committed_predictions_count(tmp_path):
    git = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
    file = tmp_path / "predictions.json"
    with pytest.raises(RollergenError, match=r"is missing; expected it made by benches/gpu/predict\.py"):
        compare.committed(file)
    git("init", "-q")
    file.write_text("{}")
    with pytest.raises(RollergenError, match="is not committed"):
        compare.committed(file)
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "predicted")
    assert len(compare.committed(file)) == 40
    file.write_text("{} ")
    with pytest.raises(RollergenError, match="is not committed"):
        compare.committed(file)


def test_predictions_of_other_code_are_made_anew(tmp_path, monkeypatch):
    words = ["--device", "h200", "--only", "E0", "--results", str(tmp_path)]
    assert predict.main(words) == COMPLETE
    made = []
    monkeypatch.setattr(predict, "row", lambda entry, device: made.append(entry.id))
    assert predict.main(words) == COMPLETE and made == []
    monkeypatch.setattr(rows, "code", lambda: {"product": "another"})
    with pytest.raises(TypeError):  # no row comes of the stand-in
        predict.main(words)
    assert made == ["E0"]


ENTRIES = {("roller", id): id for id in ("M1", "E0")}


@pytest.fixture
def small_suite(monkeypatch, cupy):  # noqa: F811
    """Two operators, cut small; a kernel of one candidate, of no cache."""
    pytest.importorskip("torch")
    monkeypatch.setattr(machine, "entries", lambda given: {key: small(*key, 4000, 1 << 14) for key in ENTRIES})
    build = lambda entry, on: rg.build(entry.make(), on.device, profile=False, top_k=1, cache=False)
    monkeypatch.setattr(check, "build", build)
    monkeypatch.setattr(compare, "build", build)


@on_host
def test_operators_are_checked_in_whole(small_suite, tmp_path):
    assert check.main(["--results", str(tmp_path)], where="cpu") == COMPLETE
    kept = json.loads((tmp_path / "gpu_correctness_v100.json").read_text())
    assert kept["summary"] == {"right": 2, "wrong": 0, "failed": 0, "elements": sum(r["elements"] for r in kept["rows"])}
    assert kept["gpu"].startswith("Tesla V100") and kept["precision"]["cudnn.allow_tf32"] is False
    assert all(row["reference"] == "torch, float64" for row in kept["rows"])


@on_host
def test_a_wrong_kernel_is_found(small_suite, tmp_path, monkeypatch):
    build = lambda entry, on: rg.build(rg.ops.neg(*given_tensors(entry)), on.device, profile=False, top_k=1, cache=False)
    monkeypatch.setattr(machine, "entries", lambda given: {("roller", "E0"): small("roller", "E0", 4000, 1 << 14)})
    monkeypatch.setattr(check, "build", build)
    assert check.main(["--results", str(tmp_path)], where="cpu") == 1
    (row,) = json.loads((tmp_path / "gpu_correctness_v100.json").read_text())["rows"]
    assert row["state"].startswith("wrong: ") and row["state"].endswith(f"of {row['elements']} elements")


def given_tensors(entry):
    return [rg.tensor(b.name, b.shape, b.dtype) for b in given(entry.make())]


@on_host
def test_operators_are_timed_beside_torch(small_suite, tmp_path, monkeypatch):
    import torch

    asked = []
    monkeypatch.setattr(torch, "compile", lambda call, **how: asked.append(how) or call)  # the real one takes long
    monkeypatch.setattr(compare, "kernel_names", lambda call: ["a_Winograd_kernel"])
    monkeypatch.setattr(compare, "reasons", lambda libraries: {one.name: "no GPU" for one in libraries})
    monkeypatch.setattr(compare, "written", lambda entry, inputs, want: ({}, {"Triton": "no such kernel"}))
    words = ["--results", str(tmp_path), "--seconds", "0"]
    predictions = tmp_path / "gpu_predictions_v100.json"
    stated = ["--predictions", str(predictions), "--predictions-commit", "abc", "--compile-backend", "eager"]
    assert predict.main(["--device", "v100", "--results", str(tmp_path)]) == COMPLETE
    assert compare.main([*words, *stated], where="cpu") == COMPLETE
    kept = json.loads((tmp_path / "gpu_timings_v100.json").read_text())
    assert asked == [{"dynamic": False, "backend": "eager"}] * 2
    assert kept["absent"] == {"Triton": "no GPU", "TileLang": "no GPU"}
    assert kept["predictions"] == "abc" and kept["torch.compile"] == {"backend": "eager"}
    for row in kept["rows"]:
        assert row["state"] == "timed" and row["rank"] == 0 and row["predicted_us"] > 0 and row["winograd"] == ["torch", "torch.compile"]
        for state in ("warm", "cold"):
            assert set(row[state]) == {"rollergen", "torch", "torch.compile"}
            assert row["not competing"] == {"Triton": "no such kernel"}
            best = min(row[state][name]["median_us"] for name in ("torch", "torch.compile"))
            assert row[f"ratio_{state}"] == pytest.approx(best / row[state]["rollergen"]["median_us"], abs=1e-3)
    assert kept["summary"]["roller"]["all"]["operators"] == 2


@on_host
def test_nothing_is_timed_beside_predictions_of_other_code(small_suite, tmp_path, monkeypatch, capsys):
    assert predict.main(["--device", "v100", "--results", str(tmp_path)]) == COMPLETE
    monkeypatch.setattr(rows, "code", lambda: {"product": "another"})
    file = tmp_path / "gpu_predictions_v100.json"
    stated = ["--predictions", str(file), "--predictions-commit", "abc", "--compile-backend", "eager"]
    assert compare.main(["--results", str(tmp_path), *stated], where="cpu") == 2
    assert "gpu_predictions_v100.json is of other code than this checkout's" in capsys.readouterr().out


@on_host
def test_nothing_is_timed_without_committed_predictions(small_suite, tmp_path, capsys):
    assert compare.main(["--results", str(tmp_path), "--predictions", str(tmp_path / "none.json")], where="cpu") == 2
    assert "none.json is missing" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_means_are_geometric_and_by_class():
    row = lambda kind, warm, cold, predicted, ours: {
        "suite": "roller", "id": kind, "kind": kind, "dtype": "float32", "state": "timed", "winograd": [], "rank": 0,
        "ratio_warm": warm, "ratio_cold": cold, "predicted_us": predicted, "cold": {"rollergen": {"median_us": ours}},
    }  # fmt: skip
    rows = [row("a", 0.5, 1.0, 1.0, 2.0), row("a", 2.0, 4.0, 2.0, 4.0), row("b", 3.0, 3.0, 3.0, 3.0)]
    found = summary([*rows, {**rows[0], "id": "c", "state": "failed: x"}])["roller"]
    assert found["classes"]["a float32"]["ratio_warm"] == 1.0  # sqrt(0.5 * 2)
    assert found["classes"]["a float32"]["ratio_cold"] == 2.0  # sqrt(1 * 4)
    assert found["all"]["ratio_warm"] == pytest.approx(3 ** (1 / 3), abs=1e-4)
    assert found["worst"] == ["a float32", "b float32"] and found["not timed"] == ["c"]
    assert found["predictions"]["measured over predicted"] == 2.0
    assert kendall_tau([(1, 2), (2, 4), (3, 3)]) == pytest.approx(1 / 3)  # two pairs in order, one not


def test_all_steps_are_run_in_order_until_time_runs_out(monkeypatch, tmp_path):
    commands = []

    def ran(command, check):
        commands.append(command)
        return SimpleNamespace(returncode=UNFINISHED if len(commands) == 3 else 0)

    monkeypatch.setattr(run.subprocess, "run", ran)
    words = ["--device", "h200", "--results", str(tmp_path), "--seconds", "1"]
    assert run.main(words) == UNFINISHED
    assert [command[1].rsplit("/", 1)[1] for command in commands] == ["predict.py", "check.py", "compare.py"]
    assert str(tmp_path) not in commands[0]  # predictions are where they are committed
    assert "--seconds" not in commands[1] and "--seconds" in commands[2]
    assert run.main([*words, "--budget-s", "0"]) == UNFINISHED and len(commands) == 3


def test_every_step_has_the_options_it_is_given():
    for step in run.STEPS:
        parser = machine.parser("")
        others = ["--seconds", "1"] if step == "compare.py" else []
        asked = parser.parse_args(["--device", "h200", "--only", "M0"])
        _, unknown = parser.parse_known_args(run.options(step, asked, ["--seconds", "1"]))
        assert unknown == others
