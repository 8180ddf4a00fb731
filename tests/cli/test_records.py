"""``rollergen records``: what builds have measured, out and in again."""

import json
import os

import pytest
from click.testing import CliRunner

import rollergen as rg
from rollergen.__main__ import main
from rollergen.hal.load import device_hash
from rollergen.store.collection import stored
from rollergen.store.location import store_path
from rollergen.store.record_files import append, read
from tests.verify.records import recorded


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, ["records", *map(str, words)])


def facts(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def file(tmp_path):
    records = recorded(10, failing=2)
    path = tmp_path / "made.jsonl"
    (device,) = records.devices.values()
    append(path, device, records.records)
    return path


def test_a_profiled_build_leaves_records_that_are_listed():
    rg.build(rg.ops.relu(rg.tensor("A", (64, 64))), "cpu", top_k=2)
    (one,) = facts("list")
    assert one["class"] == "elementwise" and one["states"] == {"ok": one["records"]} and one["best_ms"] > 0
    assert "elementwise" in run("list").output


def test_an_export_into_no_directory_is_refused_before_the_store_is_read(tmp_path):
    result = run("export", tmp_path / "absent" / "out.jsonl")
    assert result.exit_code == 2 and f"{tmp_path / 'absent'} is no directory" in "".join(result.output.split("\n"))
    assert not (tmp_path / "absent").exists() and not (tmp_path / "cache").exists()


def test_names_of_records_are_no_markup(file):
    text = file.read_text()
    file.write_text(text.replace('"extents":{"i"', '"extents":{"[/red]i"').replace('"id":"', '"id":"[/b]'))
    facts("import", file)
    result = run("list")
    assert result.exit_code == 0 and "[/red]" in result.output and "[/b]" in result.output


def test_the_class_is_the_operators_whatever_an_older_version_wrote(file):
    text = file.read_text()
    before = text.count('"class":"matmul"')
    assert before
    file.write_text(text.replace('"class":"matmul"', '"class":"contraction"'))
    facts("import", file)
    assert sum(one["records"] for one in facts("list") if one["class"] == "matmul") == before


def test_records_of_programs_that_cannot_be_read_are_listed_as_such(file):
    file.write_text(file.read_text().replace('["RProgram",', '["RProgramme",'))
    facts("import", file)
    assert {one["class"] for one in facts("list")} == {"unreadable"}


def test_what_is_taken_in_twice_counts_once(file):
    count = len(read(file).records)
    assert facts("import", file) == {"offered": count, "taken": count}
    assert facts("import", file) == {"offered": count, "taken": 0}
    assert sum(one["records"] for one in facts("list")) == count


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.xz", "out.parquet"])
def test_exported_records_come_back_the_same(file, store, monkeypatch, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    facts("import", file)
    before = stored(store_path()).records
    facts("export", store / name)
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(store / "another"))
    assert facts("import", store / name)["taken"] == len(before)
    after = stored(store_path())
    assert after.records == before
    assert [device_hash(device) for device in after.devices.values()] == list(after.devices)


def test_export_replaces_no_file(file):
    result = run("export", file)
    assert result.exit_code == 2 and "exists" in result.output


def test_stores_merge(file, store, monkeypatch):
    facts("import", file)
    other = store_path()
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(store / "another"))
    found = facts("merge", other)
    assert found["taken"] == found["offered"] == len(read(file).records)
    assert facts("merge", other)["taken"] == 0
    assert run("merge", store / "nowhere.sqlite").exit_code == 2


def test_a_damaged_store_is_not_merged_and_the_own_one_is_not_to_be_cleared_for_it(file, store):
    facts("import", file)
    count = sum(one["records"] for one in facts("list"))
    other = store / "other.sqlite"
    other.write_bytes(store_path().read_bytes()[:5000])
    result = run("merge", other)
    assert result.exit_code != 0 and "other.sqlite is damaged" in result.output and "nothing was taken in" in result.output
    assert "clear" not in result.output and sum(one["records"] for one in facts("list")) == count


def test_a_file_that_another_command_takes_is_told_with_that_command(file):
    told = run("merge", file)
    assert told.exit_code == 2 and "made.jsonl is no store" in " ".join(told.output.split())
    assert "rollergen records import" in " ".join(told.output.split()) and not store_path().exists()
    facts("import", file)
    told = run("import", store_path())
    assert told.exit_code == 2 and "rollergen records merge" in " ".join(told.output.split())


@pytest.mark.parametrize(("specs", "message"), [("{}", "which is not in it"), (None, "the spec's hash is")])
def test_tables_without_the_specs_of_their_records_take_in_nothing(file, store, specs, message):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    facts("import", file)
    facts("export", store / "out.parquet")
    table = parquet.read_table(store / "out.parquet")
    kept = json.loads(table.schema.metadata[b"rollergen.devices"])
    changed = specs or json.dumps({key: {**spec, "clock_mhz": 77.0} for key, spec in kept.items()})
    parquet.write_table(table.replace_schema_metadata({"rollergen.devices": changed}), store / "bad.parquet")
    assert arrow.__version__
    before = stored(store_path())
    told = run("import", store / "bad.parquet")
    assert told.exit_code == 2 and message in " ".join(told.output.split()) and "bad.parquet" in told.output
    assert stored(store_path()) == before


def test_pruning_counts_first_and_removes_on_demand(file):
    facts("import", file)
    failed = sum(one["result"]["status"] != "ok" for one in read(file).records)
    assert failed and facts("prune", "--failed") == {"records": failed, "removed": False}
    assert facts("prune", "--failed", "--device", "k80")["records"] == 0
    assert facts("prune", "--failed", "--yes") == {"records": failed, "removed": True}
    assert facts("prune", "--failed")["records"] == 0
    assert facts("prune", "--older-than", "1")["records"] == len(read(file).records) - failed
    assert run("prune").exit_code == 2
    from rollergen.store import admin

    assert admin.verify(store_path()).problems == ()


@pytest.mark.parametrize("name", ["bad.jsonl", "bad.parquet"])
def test_damaged_files_take_in_nothing(store, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (store / name).write_bytes(b"PAR1 nonsense\n")
    result = run("import", store / name)
    assert result.exit_code == 2 and "bad" in result.output and "Traceback" not in result.output
    assert not store_path().exists()


def test_kernel_tuners_results_are_taken_in_and_what_does_not_map_is_named(tmp_path):
    from tests.store.test_kernel_tuner import SIZES, result

    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": [result(), result(STRM=1)]}))
    sizes = [word for name, extent in SIZES.items() for word in ("--size", f"{name}={extent}")]
    words = ("import", "--from", "kernel_tuner", "--kernel", "clblast-gemm", "--device", "v100", *sizes, path)
    assert facts(*words) == {"offered": 1, "taken": 1, "refused": {"STRM is 1; expected 0": 1}}
    assert "refused 1: STRM is 1; expected 0" in run(*words).output
    assert "T4 results do not say what ran where" in run("import", "--from", "kernel_tuner", path).output
    assert "belong to --from kernel_tuner" in run("import", "--device", "v100", path).output


def test_a_gzip_file_with_overwritten_bytes_is_refused_by_name(file, store):
    import gzip

    packed = bytearray(gzip.compress(file.read_bytes()))
    packed[len(packed) // 3 : len(packed) // 2] = b"\xff" * (len(packed) // 2 - len(packed) // 3)
    (store / "bad.jsonl.gz").write_bytes(packed)
    told = run("import", store / "bad.jsonl.gz")
    assert told.exit_code == 2 and "cannot be read as records" in " ".join(told.output.split())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.xz", "parquet"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["a pipe", "endless"])
def test_what_never_ends_or_never_begins_is_refused_at_once(tmp_path, make, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"records.{ending}"
    make(path)
    result = run("import", path)
    assert result.exit_code == 2 and "a pipe, a terminal or another device" in result.output.replace("\n", " ")


def test_a_file_larger_than_records_are_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "records.jsonl"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # sparse: it takes no room
    result = run("import", path)
    assert result.exit_code == 2 and "expected at most 1073741824" in result.output.replace("\n", " ")


def test_a_table_that_holds_one_long_text_again_and_again_is_refused(file, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from rollergen.store import record_files, record_tables

    whole = read(file)
    monkeypatch.setattr(record_files, "LONGEST_LINE", 1 << 10)
    monkeypatch.setattr(record_files, "LARGEST_RATIO", 10)
    path = tmp_path / "records.parquet"
    record_tables.write_table(path, record_files.RecordFile(whole.devices, whole.records[:1] * 5000))
    with pytest.raises(record_files.RecordsError, match="it unpacks to over"):
        record_tables.read_table(path)
