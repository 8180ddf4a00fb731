"""The benches of a machine with a GPU, gone through without one: torch on the CPU, CuPy and the GPU `fake`."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest

import rollergen as rg
from benches.gpu import check, collect, compare, dry, machine, narrow, predict, products, report, rows, run, transfer
from benches.gpu.rows import COMPLETE, LOST, STOPPED, UNFINISHED
from benches.gpu.timer import IN_A_ROW_S, MOST_IN_A_ROW, Timer
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from tests.cuda.host import compiler
from tests.cuda.test_cupy import H200, cupy  # noqa: F401 (a fixture)

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


class Held:
    """A stream whose device takes `each` seconds for a call; ``late``: the host is slower than it can be held."""

    def __init__(self, each=0.0, late=False):
        self.each, self.late, self.asked = each, late, []

    def seconds(self, enqueue, before=lambda: None):
        before()
        count = len(self.asked)
        enqueue()
        return self.each * (len(self.asked) - count), self.late


def timer_of(held):
    flushed = lambda: held.asked.append("flush")
    return Timer(SimpleNamespace(held=held, finish=lambda: None, flush=flushed))


def test_calls_are_timed_in_turns_in_both_states_of_the_cache():
    held = Held(each=2e-3)  # so long that one call is timed by itself
    calls = {name: lambda name=name: held.asked.append(name) for name in "ab"}
    times = timer_of(held).alternate(calls, 0.0, "warm")
    assert "".join(held.asked[8:14]) == "abbaab"  # after three calls of each to warm up, and one to count by
    assert times["a"].rounds == times["b"].rounds == 9 and times["a"].late == 0
    assert times["a"].least_us == times["a"].median_us == times["a"].upper_us == 2000 and "flush" not in held.asked
    held.asked.clear()
    timer_of(held).alternate({"a": calls["a"]}, 0.0, "cold")
    assert held.asked == ["a"] * 3 + ["flush", "a"] * 9


def test_short_calls_are_timed_in_a_row_where_the_cache_is_warm():
    held = Held(each=1e-4)
    timer, call = timer_of(held), lambda: held.asked.append("a")
    assert timer.in_a_row(call, "warm") == IN_A_ROW_S / held.each == 10 and timer.in_a_row(call, "cold") == 1
    assert timer.once(call, "warm", 10) == pytest.approx(held.each)
    held.each = 1e-9
    assert timer.in_a_row(call, "warm") == MOST_IN_A_ROW


def test_a_round_in_which_the_host_was_slower_than_the_device_does_not_count():
    assert timer_of(Held(1e-3, late=True)).alternate({"a": lambda: None}, 0.0, "warm") == {"a": None}


def test_only_committed_predictions_count(tmp_path):
    git = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
    file, keys = tmp_path / "predictions.json", [("roller", "E0"), ("roller", "M1")]
    write = lambda us, **facts: file.write_text(
        json.dumps({"rows": [{"suite": s, "id": i, "programs": [["digest", us]], **facts} for s, i in keys]})
    )
    committed = lambda: compare.committed(file, keys)
    with pytest.raises(RollergenError, match=r"is missing; expected it made by benches/gpu/predict\.py"):
        committed()
    write(1.5)
    commit = lambda: git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "predicted", "--allow-empty")
    with pytest.raises(RollergenError, match=r"fatal: not a git repository.* say --predictions-commit COMMIT"):
        committed()
    git("init", "-q")
    commit()
    with pytest.raises(RollergenError, match="is not committed at all for roller:E0, roller:M1"):
        committed()
    git("add", ".")
    commit()
    assert len(committed()) == 40
    write(1.5, stamp="of other code", date="later")  # which predicts the same
    assert len(committed()) == 40
    write(1.6)
    with pytest.raises(RollergenError, match=r"is not committed as of \w{10} for roller:E0, roller:M1 \(2 in all\)"):
        committed()
    keys.pop()
    write(1.5)
    keys.append(("roller", "P2"))
    with pytest.raises(RollergenError, match=r"for roller:P2 \(1 in all\)"):
        committed()


def test_without_git_the_commit_is_to_be_stated(tmp_path, monkeypatch):
    file = tmp_path / "predictions.json"
    file.write_text('{"rows": []}')

    def absent(*words, **how):
        raise FileNotFoundError("No such file: git")

    monkeypatch.setattr(compare.subprocess, "run", absent)
    with pytest.raises(RollergenError, match=r"No such file: git: .* say --predictions-commit COMMIT"):
        compare.committed(file, [("roller", "E0")])


def test_predictions_of_other_code_are_made_anew(tmp_path, monkeypatch):
    words = ["--device", "h200", "--only", "E0", "--results", str(tmp_path)]
    assert predict.main(words) == COMPLETE
    made = []
    monkeypatch.setattr(predict, "row", lambda entry, device: made.append(entry.id) or {"state": "predicted"})
    assert predict.main(words) == COMPLETE and made == []
    monkeypatch.setattr(rows, "code", lambda: {"product": "another"})
    assert predict.main(words) == COMPLETE and made == ["E0"]


SAMPLE = ("decode 1x4096x4096 int8", "softmax 65536x2048 bfloat16")


@pytest.fixture
def words(monkeypatch, cupy, tmp_path):  # noqa: F811
    """Options of a dry run of two operators; a kernel of one candidate, not measured, of no cache."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("FAKE_GPU", H200)
    build = lambda entry, on: rg.build(entry.make(), on.device, profile=False, top_k=1, cache=False)
    monkeypatch.setattr(compare, "build", build)
    monkeypatch.setattr(compare, "kernel_names", lambda call: ["a_Winograd_kernel"])
    monkeypatch.setattr(compare, "reasons", lambda libraries: {one.name: "no GPU" for one in libraries})
    monkeypatch.setattr(torch, "compile", lambda call, **how: call)  # the real one takes long
    return ["--dry-run", "--results", str(tmp_path), "--only", *SAMPLE]


def kept(tmp_path, what):
    return json.loads((tmp_path / f"gpu_{what}_h200.json").read_text())


@on_host
def test_a_dry_run_goes_from_predictions_to_the_page(words, tmp_path, capsys):
    assert predict.main(words) == COMPLETE and check.main(words) == COMPLETE
    right = kept(tmp_path, "correctness")
    assert right["summary"] == {"right": 2, "wrong": 0, "failed": 0, "elements": sum(r["elements"] for r in right["rows"])}
    assert right["gpu"].startswith("NVIDIA H200") and right["precision"]["cudnn.allow_tf32"] is False
    assert all(row["reference"] == "torch, float64" for row in right["rows"])

    assert compare.main(words) == compare.main([*words, "--peers"]) == COMPLETE
    for what, others in (("timings", {"torch"}), ("peers", {"torch.compile"})):
        timed = kept(tmp_path, what)
        assert timed["absent"] == {"Triton": "no GPU", "TileLang": "no GPU"} and timed["summary"] == {"timed": 2}
        for row in timed["rows"]:
            assert row["rank"] == 0 and row["predicted_us"] > 0 and row["date"]
            for state in ("warm", "cold"):
                assert set(row[state]) == {"rollergen", *others} - set(row["not competing"])
                times = [row[state][name]["median_us"] for name in others if name in row[state]]
                assert bool(times) == bool(row["winograd"]) == (row[f"ratio_{state}"] is not None)
                if times:
                    ratio = min(times) / row[state]["rollergen"]["median_us"]
                    assert row[f"ratio_{state}"] == pytest.approx(ratio, abs=1e-4)  # 0: torch's work is the host's here

    assert report.main(words) == 0
    page, content = (tmp_path / "gpu_report_h200.md").read_text(), kept(tmp_path, "report")
    assert content["headlines"][0]["figure"] == "2 of 2 operators (right 2)"
    assert [one["what"] for one in content["headlines"][1:]] == ["decode products, 1 operators", "softmax, 1 operators"]
    assert set(content["classes by dtype"]) == {"decode products, int8", "softmax, bfloat16"}
    assert content["measured"]["predictions"] == "a dry run" and content["measured"]["driver"]
    assert page.index(" of the peak") < page.index("## classes") < page.index("## operators")
    assert capsys.readouterr().out.count("prediction off by a factor of") == 2


@on_host
def test_programs_are_collected_until_the_seconds_are_spent(words, tmp_path, monkeypatch):
    monkeypatch.setitem(collect.DRY, "count", 2)
    assert collect.main([*words, "--collect-s", "0"]) == COMPLETE
    assert collect.main([*words, "--collect-s", "1e-3"]) == COMPLETE  # one operator spends them
    (row,) = kept(tmp_path, "collection")["rows"]
    assert row["programs"] == row["right"] == 2 and row["best_ms"] <= row["median_ms"]
    from rollergen.store.record_files import read

    file = read(tmp_path / "gpu_records_h200.jsonl.xz")
    assert len(file.records) == 2 and [one.name for one in file.devices.values()] == ["h200"]
    assert collect.main([*words, "--collect-s", "1e-3"]) == COMPLETE
    assert len(read(tmp_path / "gpu_records_h200.jsonl.xz").records) == 2


def test_without_records_nothing_is_transferred(words, capsys):
    assert transfer.main(words) == 2
    assert "gpu_records_h200.jsonl.xz is missing; expected it made by benches/gpu/collect.py" in capsys.readouterr().out


@on_host
def test_a_wrong_kernel_is_found_and_not_timed(words, tmp_path, monkeypatch):
    def negated(entry, on):
        x = canonicalize(entry.make()).inputs[0]
        return rg.build(rg.ops.neg(rg.tensor(x.name, x.shape, x.dtype)), on.device, profile=False, top_k=1, cache=False)

    monkeypatch.setattr(compare, "build", negated)
    words = [*words[:-2], SAMPLE[1]]
    assert predict.main(words) == COMPLETE and compare.main(words) == 1
    (row,) = kept(tmp_path, "timings")["rows"]
    assert row["state"] == f"wrong: {row['elements']} of {row['elements']} elements" and "cold" not in row
    assert report.main(words) == 0
    assert kept(tmp_path, "report")["not right, or not timed"] == [
        {"operator": f"gpu:{SAMPLE[1]}", "state": row["state"]}
    ]


NARROW = ["int8 1x256x136", "int4 24x256x136"]


@on_host
def test_products_with_narrow_weights_are_held_to_the_product_of_the_widened_ones(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(narrow, "COUNT", 1)
    words = [*words[:-2], *NARROW]
    assert narrow.main(words) == COMPLETE
    for row in kept(tmp_path, "narrow")["rows"]:
        (program,) = row["programs"]
        assert row["state"] == "timed" and program["wrong"] == 0 and program["apart"] < 1e-3
        assert {"warm", "cold"} <= program.keys() and program["predicted_us"] > 0
    table = capsys.readouterr().out.splitlines()[-len(NARROW) :]
    assert [line[:20].strip() for line in table] == NARROW

    right = narrow.operands

    def other_scales(case, where):
        x, stored, s, w = right(case, where)
        return x, stored, s.roll(1, dims=1), w

    monkeypatch.setattr(narrow, "operands", other_scales)
    assert narrow.main([*words, "--again"]) == 1
    assert [row["state"] for row in kept(tmp_path, "narrow")["rows"]] == ["wrong: 1 of 1 programs"] * 2


@on_host
def test_products_of_each_way_are_held_to_torchs_and_timed_beside_it(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(products, "WAYS", {name: products.WAYS[name] for name in ("boxes", "persistent, clusters")})
    monkeypatch.setattr(products, "SMALL", {**products.SMALL, "fn": 8})
    words = [*words[:-2], "64 x 128 128x64x128"]
    assert products.main(words) == COMPLETE
    (row,) = kept(tmp_path, "products")["rows"]
    names = ["boxes", "boxes, boxes stored", "persistent, clusters", "persistent, clusters, boxes stored"]
    assert row["state"] == "timed" and [one["name"] for one in row["programs"]] == names
    assert all(one["error"] < 1e-2 and one["warm"] > 0 and one["predicted_us"] > 0 for one in row["programs"])
    assert "64 x 128 128x64x128: timed; torch" in capsys.readouterr().out

    monkeypatch.setattr(products, "_product", lambda a, b: -(a @ b.t()))
    monkeypatch.setattr(products, "WAYS", {"boxes": products.WAYS["boxes"]})
    assert products.main([*words, "--again"]) == 1
    assert kept(tmp_path, "products")["rows"][0]["state"] == "wrong: boxes, boxes, boxes stored"


def test_integers_of_inputs_are_not_all_zero(words):
    torch = pytest.importorskip("torch")
    kernel = rg.build(rg.ops.add(rg.tensor("A", (64,), "int8"), rg.tensor("B", (64,), "int8")), "h200", profile=False)
    for one in machine.Machine(load_device("h200"), dry=True).inputs(kernel):
        assert one.dtype == torch.int8 and one.min() >= -machine.WHOLE and one.max() < machine.WHOLE
        assert len(one.unique()) > machine.WHOLE


def test_nothing_is_measured_beside_predictions_of_other_code_or_none(words, tmp_path, monkeypatch, capsys):
    assert check.main(words) == compare.main(words) == 2
    assert capsys.readouterr().out.count("gpu_predictions_h200.json has no prediction for gpu:decode") == 2
    assert predict.main(words) == COMPLETE
    monkeypatch.setattr(rows, "code", lambda: {"product": "another"})
    assert check.main(words) == compare.main(words) == 2
    assert capsys.readouterr().out.count("gpu_predictions_h200.json is of other code than this checkout's") == 2
    assert [one.name for one in tmp_path.iterdir()] == ["gpu_predictions_h200.json"]


def test_the_dry_run_has_every_kind_and_dtype_once():
    from benches.gpu import cases

    small = dry.cut(cases.listed())
    kinds = [(one.suite, one.kind, one.dtype) for one in small.values()]
    assert sorted(kinds) == sorted({(one.suite, one.kind, one.dtype) for one in cases.listed().values()})
    assert all(cases.traffic(one) < 1 << 20 for one in small.values())


def line(**facts):
    means = {"ratio": 2.0, "ratio, warm": 4.0, "measured over predicted": 2.0, "rank": 0, "peer's share": 0.25, "share": 0.5}
    return {**means, **facts}


def test_means_are_geometric_and_of_what_is_there():
    lines = [line(), line(ratio=0.5, **{"measured over predicted": 0.5, "rank": 3}), line(ratio=None, **{"peer's share": None})]
    means = report.classes(lines, lambda one: "a")["a"]
    assert means["ratio"] == 1.0 and means["least ratio"] == 0.5 and means["ratio, warm"] == 4.0
    assert means["share of the peak"] == 0.5 and means["best peer's share"] == 0.25
    assert means["prediction off by"] == 2.0 and means["first choices that won"] == 2 and means["operators"] == 3
    assert report.kendall_tau([(1, 10), (2, 20), (3, 15)]) == pytest.approx(1 / 3)


def test_the_peak_is_the_printed_rate_of_the_dtype_or_the_bandwidth():
    from benches.gpu import cases

    device = load_device("h200")
    seconds, binds = report.peak_s(cases.listed()["gpu", "matmul 8192x8192x8192 float16"], device)
    assert binds == "arithmetic" and seconds == pytest.approx(2 * 8192**3 / 989.4e12)
    seconds, binds = report.peak_s(cases.listed()["gpu", "add 67108864 int8"], device)
    assert binds == "memory" and seconds == pytest.approx(3 * 2**26 / 4.8e12)


def test_the_pieces_are_run_in_order_until_time_runs_out_and_the_page_at_the_end(monkeypatch, tmp_path):
    asked, ends = [], []

    def done(command, check):
        asked.append([one for one in command if str(one).endswith(".py") or one in ("--core", "--peers")])
        asked[-1][0] = asked[-1][0].rpartition("/")[2]
        return SimpleNamespace(returncode=ends.pop(0) if ends else 0)

    monkeypatch.setattr(run.subprocess, "run", done)
    core, peers = ["compare.py", "--core"], ["compare.py", "--peers"]
    both = ["compare.py", "--peers", "--core"]
    assert run.main([]) == 0
    assert asked == [["predict.py"], ["check.py"], core, both, core[:1], peers, ["collect.py"], ["report.py"]]
    asked.clear()
    ends[:] = [0, 1, UNFINISHED]
    assert run.main([]) == UNFINISHED and asked == [["predict.py"], ["check.py"], core, ["report.py"]]
    asked.clear()
    ends[:] = [0, LOST, LOST, 0]  # another process goes on
    assert run.main([]) == 0 and asked[:5] == [["predict.py"], *[["check.py"]] * 3, core]
    asked.clear()
    ends[:] = [0, -11, 0, STOPPED]  # an operator's fault ended the process: another goes on
    assert run.main([]) == STOPPED and asked == [["predict.py"], *[["check.py"]] * 2, core, ["report.py"]]
    asked.clear()
    ends[:] = [0, -2]  # the user interrupts
    assert run.main([]) == UNFINISHED and asked == [["predict.py"], ["check.py"], ["report.py"]]
    asked.clear()
    assert run.main(["--budget-s", "-1"]) == UNFINISHED and asked == [["report.py"]]


@pytest.mark.parametrize(
    "error, said",
    [
        (RollergenError("torch 2 sees no GPU"), "torch 2 sees no GPU"),
        (ModuleNotFoundError("No module named 'torch'"), "No module named 'torch'; README.md of benches/gpu says"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_script_that_cannot_go_on_says_why_and_is_no_result(error, said, capsys):
    def main():
        raise error

    assert machine.ended(main) == STOPPED and said in capsys.readouterr().out
    assert machine.ended(lambda: UNFINISHED) == UNFINISHED
    assert machine.ended(lambda: 1 // 0) == STOPPED and "ZeroDivisionError" in capsys.readouterr().err


def test_torch_without_cuda_is_told_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(pytest.importorskip("torch").cuda, "is_available", lambda: False)
    with pytest.raises(RollergenError, match=r"torch .* sees no GPU; expected a build for CUDA"):
        machine.Machine(load_device("h200")).facts()


def test_every_piece_has_the_options_it_is_given():
    given = machine.parser("").parse_args(["--device", "h200", "--only", "M1", "--results", "x", "--retry", "--dry-run"])
    words = run.options(run.Piece("check.py", core=True), given, ["--seconds", "1"])
    assert words == ["--device", "h200", "--suite", "gpu", "roller", "--only", "M1", "--results", "x", "--core", "--retry",
                     "--dry-run"]  # fmt: skip
    assert run.options(run.Piece("compare.py", ("--peers",)), given, ["--seconds", "1"])[-2:] == ["--seconds", "1"]
