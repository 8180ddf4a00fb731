"""Records as arrays and as files."""

import gzip
import json
import lzma
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.features import VERSION, features, names, vector
from rollergen.features.dataflow import BLOCKS, COLUMNS
from rollergen.hal.load import device_hash
from rollergen.store import record_files
from rollergen.store.record_files import RecordFile, RecordsError, append, check_record, read
from rollergen.verify.dataset import from_records, load
from tests.verify.records import OPERATORS, recorded


def written(path, file):
    for device in file.devices.values():
        append(path, device, file.records)
    return path


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.xz"])
def test_records_come_back_from_a_file_as_they_were(tmp_path, ending):
    file = recorded()
    path = tmp_path / f"records.{ending}"
    (device,) = file.devices.values()
    append(path, device, file.records[:10])
    append(path, device, file.records[10:])
    found = read(path)
    assert list(found.records) == json.loads(json.dumps(file.records))
    assert [device_hash(one) for one in found.devices.values()] == list(file.devices)


def test_rows_keep_times_operators_and_what_failed():
    file = recorded(10, failing=2)
    data = from_records([file])
    assert len(data) == len(file.records) and len(data.operators()) == len(OPERATORS)
    assert np.isinf(data.ms).sum() == 2 * len(OPERATORS) and np.isfinite(data.ms[data.right]).all()
    assert data.x.shape == (len(data), len(names()))
    assert len({int(data.structure[data.operators()[n][0]]) for n in (0, 5, 8)}) == 3
    assert {data.class_of(rows) for rows in data.operators()[:5]} == {"matmul"}


def test_the_same_records_from_two_files_count_once():
    file = recorded()
    assert len(from_records([file, file])) == len(file.records)


def test_features_kept_with_a_record_are_taken_and_those_of_another_version_are_not():
    file = recorded()
    kept = dict(file.records[0], feat={"ver": VERSION, "vec": [float(n) for n in range(len(names()))], "seq": []})
    old = dict(file.records[1], feat={"ver": VERSION + 1, "vec": [0.0] * len(names()), "seq": []})
    data = from_records([RecordFile(file.devices, (kept, old))])
    assert data.x[0].tolist() == kept["feat"]["vec"] and data.x[1].any()


def test_a_record_holds_the_features_that_are_computed_of_its_program_and_those_of_another_state_are_not_taken():
    file = recorded()
    records = file.records[:6]
    data = from_records([RecordFile(file.devices, records)])
    for row, record in zip(data.x, records, strict=True):
        assert record["feat"]["ver"] == VERSION and record["feat"]["vec"] == row.tolist()
        assert len(record["feat"]["seq"]) == len(BLOCKS) and {len(b) for b in record["feat"]["seq"]} <= {0, COLUMNS}
    other = dict(records[0], env={**records[0]["env"], "rollergen": "another"})
    other["feat"] = {**other["feat"], "vec": [1.0] * len(names())}
    found = from_records([RecordFile(file.devices, (other,))])
    assert found.x[0].tolist() == data.x[0].tolist()


def test_programs_are_priced_with_the_constants_of_today_unless_those_of_the_day_are_asked_for():
    file = recorded(5)
    (today,) = file.devices.values()
    then = replace(today, costs=tuple((name, 3 * value) for name, value in today.costs))
    key, programs = device_hash(then), file.records[:8]
    vec = [float(n) for n in range(len(names()))]
    bare = [{name: part for name, part in one.items() if name != "feat"} for one in programs]
    old = [{**one, "device": {**one["device"], "spec": key}} for one in bare]
    kept = [{**one, "feat": {"ver": VERSION, "vec": vec, "seq": []}} for one in old]
    now = from_records([RecordFile(file.devices, programs)])
    for records in (old, kept):
        found = from_records([RecordFile({key: then}, tuple(records))])
        assert np.array_equal(found.predicted_ms, now.predicted_ms) and np.array_equal(found.x, now.x)
    of_the_day = from_records([RecordFile({key: then}, tuple(old))], "recorded")
    assert (of_the_day.predicted_ms != now.predicted_ms).any()
    assert from_records([RecordFile({key: then}, tuple(kept))], "recorded").x[0].tolist() == vec
    own = replace(then, name="mine")
    mine = [{**one, "device": {**one["device"], "spec": device_hash(own)}} for one in old]
    found = from_records([RecordFile({device_hash(own): own}, tuple(mine))])
    assert np.array_equal(found.predicted_ms, of_the_day.predicted_ms)
    with pytest.raises(rg.errors.ArgumentError, match="constants is 'old'; expected one of present, recorded"):
        from_records([file], "old")


def test_records_of_cpus_and_gpus_are_not_looked_at_together():
    gpu, cpu = recorded(5), recorded(5, "cpu")
    both = from_records([gpu, cpu])
    with pytest.raises(rg.errors.ArgumentError, match="of cpu and gpu devices; expected one"):
        both.of_family(None)
    assert len(both.of_family("gpu")) == len(gpu.records) and len(both.of_family("cpu")) == len(cpu.records)
    alone = from_records([gpu])
    assert alone.of_family(None) is alone
    with pytest.raises(rg.errors.ArgumentError, match="no records of a cpu; they are of gpu"):
        alone.of_family("cpu")


DAMAGE = {
    "cut off": (lambda text: text[:-40], "it is cut off"),
    "no JSON": (lambda text: text.replace('{"device', "{device", 1), "expected JSON"),
    "a list": (lambda text: "[1]\n" + text, "expected an object"),
    "another spec": (lambda text: text.replace('{"device":"', '{"device":"0', 1), "the spec's hash is"),
    "no spec": (lambda text: text.split("\n", 1)[1], "which is not in it"),
    "negative time": (lambda text: text.replace('"times_ms":[', '"times_ms":[-', 1), "expected positive numbers"),
    "endless time": (lambda text: text.replace('"times_ms":[', '"times_ms":[1e999,', 1), "expected positive numbers"),
    "unknown state": (lambda text: text.replace('"status":"ok"', '"status":"fine"', 1), "result.status is 'fine'"),
    "no program": (lambda text: text.replace('"program":{', '"programme":{', 1), "program is"),
    "another version": (lambda text: text.replace('"v":1', '"v":2', 1), "v is '2'; expected 1: another version"),
    "programs of another version": (lambda text: text.replace('"v":2', '"v":3', 1), "program.v is '3'; expected 2"),
    "escapes of a terminal": (lambda text: text.replace('"class":"', '"class":"\\u001b[2J', 1), "expected a printable text"),
    "half a character": (lambda text: text.replace('"id":"', '"id":"\\ud800', 1), "expected a printable text"),
    "deep": (lambda text: "[" * 100000 + "\n" + text, "expected JSON"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_are_refused_by_name_and_line(tmp_path, kind):
    change, message = DAMAGE[kind]
    path = written(tmp_path / "records.jsonl", recorded())
    path.write_text(change(path.read_text()))
    with pytest.raises(RecordsError, match=r"records\.jsonl") as error:
        read(path)
    assert message in str(error.value)


HOSTILE = (None, -1, "x", [], [[1]], {"a": 1}, float("nan"), 10**400, True)


def places(value, at=()):
    """Paths to all that a record holds; of lists the first three."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*at, key))


def test_whatever_a_hostile_record_holds_is_refused_or_harmless():
    file = recorded()
    text = json.dumps(file.records[0])
    refused = harmless = 0
    for number, at in enumerate(list(places(json.loads(text)))[1:]):
        for value in HOSTILE if at[0] != "program" else HOSTILE[number % 3 :: 3]:
            record = json.loads(text)
            holder = record
            for key in at[:-1]:
                holder = holder[key]
            holder[at[-1]] = value
            try:
                data = from_records([RecordFile(file.devices, (check_record(record, "a record"),))])
            except rg.errors.RollergenError:
                refused += 1
            else:
                harmless += 1
                assert np.isfinite(data.x).all() and (data.predicted_ms > 0).all() and not np.isnan(data.ms).any()
    assert refused > 200 and harmless > 20


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_a_small_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(record_files, "LONGEST_LINE", 1 << 20)
    path = written(tmp_path / "records.jsonl", recorded())
    lines = path.read_text().splitlines(keepends=True)
    monkeypatch.setattr(record_files, "LARGEST_RATIO", 100)
    packed = tmp_path / f"records.jsonl.{suffix}"
    with {"gz": gzip, "xz": lzma}[suffix].open(packed, "wt") as file:
        file.write(lines[0] + lines[1] * (16 * (1 << 20) // len(lines[1])))
    with pytest.raises(RecordsError, match="it unpacks to over 100 times its size"):
        read(packed)


def test_a_truncated_compressed_file_is_refused(tmp_path):
    path = written(tmp_path / "records.jsonl.gz", recorded())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(RecordsError, match="cannot be read as records"):
        read(path)


def test_a_program_that_is_none_is_refused():
    file = recorded()
    record = json.loads(json.dumps(file.records[0]))
    record["program"]["rprogram"] = {"format": "something"}
    with pytest.raises(RecordsError, match="a record of"):
        from_records([RecordFile(file.devices, (record,))])


def test_no_records_are_an_error(tmp_path):
    path = tmp_path / "records.jsonl.gz"
    with gzip.open(path, "wt") as stream:
        stream.write("")
    with pytest.raises(rg.errors.ArgumentError, match="no records"):
        load([path])


@pytest.mark.parametrize("device", ["cpu", "v100", "mi50"])
def test_features_are_finite_numbers_under_the_same_names_everywhere(device):
    target = rg.load_device(device)
    shapes = {"X": (2, 8, 12, 12), "W": (8, 1, 3, 3)}
    x, w = (rg.tensor(name, shape) for name, shape in shapes.items())
    exprs = [
        *list(OPERATORS.values())[::5], rg.ops.softmax(rg.tensor("S", (20, 33))), rg.ops.relu(x),
        rg.ops.depthwise_conv2d(x, w, padding=1), rg.ops.max_pool2d(x, 2), rg.ops.t(rg.tensor("T", (33, 65))),
    ]  # fmt: skip
    for expr in exprs:
        for program in rg.construct(expr, target, 3):
            assert tuple(features(program, target)) == names()
            assert np.isfinite(vector(program, target)).all()


def test_programs_of_one_operator_differ_in_their_features():
    device = rg.load_device("v100")
    programs = rg.construct(OPERATORS["matmul 100"], device, 10)
    assert len({tuple(vector(program, device)) for program in programs}) == len(programs)
