"""Result files: what goes on from an earlier run is of the same code, and nothing else is taken over."""

import json

import pytest

from benches import bench_cuda_compile, bench_gfx906, bench_mutations, bench_suites, results
from benches.results import PRODUCT, begun, ever_kept, hash_of, keep, result_path
from rollergen.bench.results import newest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    return tmp_path


def of_other_code(name, **content):
    """A file of a commit that no repository has any more."""
    path = keep(name, {**content, "commit": "f" * 40})
    path.write_text(json.dumps({**json.loads(path.read_text()), "code": {"product": "other", "benches": "other"}}))
    return path


def test_a_run_of_the_same_code_goes_on(folder):
    keep("x", {"rows": [1, 2]})
    assert begun(result_path("x"))["rows"] == [1, 2] and begun(result_path("y")) == {}


def test_what_other_code_kept_is_not_taken_over_and_not_lost(folder, capsys):
    path = of_other_code("x", rows=[1, 2])
    assert begun(path) == {}
    told = capsys.readouterr().err
    assert told.startswith(f"{path.name} was kept by other code (commit ffffffffff) and is made anew") and ".other" in told
    keep("x", {"rows": [3]})
    assert [one["rows"] for one in ever_kept("x")] == [[1, 2], [3]]
    assert begun(path)["rows"] == [3]


def test_a_file_that_says_nothing_of_its_code_is_of_other_code(folder, capsys):
    (folder / result_path("x").name).write_text('{"rows": [1]}')
    assert begun(result_path("x")) == {} and "(no commit)" in capsys.readouterr().err


def test_code_is_another_when_a_file_of_it_is(tmp_path):
    for name in PRODUCT:
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        (tmp_path / name / "file.py").write_text("one")
    first = hash_of(PRODUCT, tmp_path)
    (tmp_path / PRODUCT[0] / "__pycache__" / "file.pyc").write_text("compiled")
    assert hash_of(PRODUCT, tmp_path) == first
    (tmp_path / PRODUCT[-1] / "file.py").write_text("two")
    changed = hash_of(PRODUCT, tmp_path)
    (tmp_path / PRODUCT[-1] / "file.py").rename(tmp_path / PRODUCT[-1] / "named.py")
    assert len({first, changed, hash_of(PRODUCT, tmp_path)}) == 3


def run(bench, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["bench", *words])
    return bench.main()


def test_operators_that_other_code_constructed_are_constructed_again(folder, monkeypatch):
    made = []

    def row(entry, on, repeats):
        made.append(entry.id)
        times = {"state": "valid", "candidates": 10, "ms": 1.0, "cpu_ms": 1.0}
        return {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "device": on.name, **times}

    monkeypatch.setattr(bench_suites, "build_row", row)
    words = ["--suite", "roller", "--device", "v100", "--only", "M1", "E0"]
    for _ in range(2):
        run(bench_suites, monkeypatch, *words)
    assert sorted(made) == ["E0", "M1"]
    of_other_code("suites", rows=json.loads(result_path("suites").read_text())["rows"])
    run(bench_suites, monkeypatch, *words[:-1], "--again")
    assert len(made) == 3
    assert [row["id"] for row in json.loads(result_path("suites").read_text())["rows"]] == ["M1"]


def test_mutations_of_another_seed_are_not_counted_on(folder, monkeypatch):
    begun_with = []
    monkeypatch.setattr(bench_mutations, "mutations", lambda count, seed: begun_with.append((count, seed)) or [])
    monkeypatch.setattr(bench_mutations, "limit_memory", lambda: None)
    keep("mutations", {"seed": 0, "done": 5, "states": {"refused": 5}, "wrong": []})
    run(bench_mutations, monkeypatch, "--seed", "1")
    assert begun_with == [(2000, 1)]


def test_the_newest_result_is_told_by_the_day_that_its_name_ends_in(tmp_path):
    for name in ("x_amd_2026-01-02", "x_zen_2026-01-01", "x_more_amd_2026-01-03"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert newest(tmp_path, "x_*.json").stem == "x_more_amd_2026-01-03"
    assert newest(tmp_path, "x_amd_????-??-??.json").stem == "x_amd_2026-01-02"
    assert newest(tmp_path, "y_*.json") is None


def test_compiled_text_is_known_from_files_of_any_code_but_its_rows_are_not_taken_over(folder):
    row = {"suite": "roller", "id": "E0", "device": "v100", "candidates": [{"source": "s", "kernels": [1]}, {"error": "e"}]}
    of_other_code("cuda_compile", rows=[row])
    assert begun(result_path("cuda_compile")) == {}
    assert bench_cuda_compile.compiled_before("cuda_compile") == {("roller", "E0", "v100"): {"s": row["candidates"][0]}}


def test_what_another_compiler_made_of_a_text_is_not_known(folder):
    keep("gfx906", {"compiler": "clang 19", "rows": [{"candidates": [{"digest": "d", "kernels": []}]}]})
    assert list(bench_gfx906.compiled_before("clang 19")) == ["d"]
    assert bench_gfx906.compiled_before("clang 20") == {}
