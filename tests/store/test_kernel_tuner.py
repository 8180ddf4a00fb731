"""Kernel Tuner's T4 results become records where a configuration has an rProgram, and are refused by name elsewhere."""

import json

import numpy as np
import pytest

import rollergen as rg
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.serial import from_json
from rollergen.store.kernel_tuner import gemm_graph, gemm_program, read_t4
from rollergen.store.record_files import RecordsError
from rollergen.verify.dataset import from_records

SIZES = {"m": 128, "n": 64, "k": 64}
GOOD = {
    "MWG": 32, "NWG": 32, "KWG": 32, "MDIMC": 8, "NDIMC": 8, "MDIMA": 8, "NDIMB": 16, "KWI": 2, "VWM": 4, "VWN": 2,
    "STRM": 0, "STRN": 0, "SA": 1, "SB": 1, "PRECISION": 32,
}  # fmt: skip


def result(times=(1.0, 1.2), invalidity="correct", **changed):
    return {
        "timestamp": "2024-05-01T12:00:00+00:00",
        "configuration": GOOD | changed,
        "times": {"compilation": 100.0, "runtimes": list(times)},
        "invalidity": invalidity,
        "correctness": 1,
        "measurements": [{"name": "time", "value": float(np.mean(times)) if times else None, "unit": "ms"}],
        "objectives": ["time"],
    }


@pytest.fixture
def file(tmp_path):
    def written(*results, **changed):
        path = tmp_path / "tuned.json"
        path.write_text(json.dumps({"schema_version": "1.0.0", "results": list(results)} | changed))
        return path

    return written


def taken(path):
    return read_t4(path, rg.load_device("v100"), "clblast-gemm", SIZES)


def test_a_configuration_becomes_a_program_that_computes_the_same():
    graph = gemm_graph(**SIZES)
    for changed in ({}, {"SA": 0}, {"SA": 0, "SB": 0, "VWM": 1}, {"MDIMA": 2, "NDIMB": 8, "VWM": 2}):
        program = gemm_program(GOOD | changed, graph)
        check(program, rg.load_device("v100"))
        rng = np.random.default_rng(0)
        a, b, c = (rng.integers(-3, 4, buffer.shape).astype("float32") for buffer in program.inputs)
        arrays = dict(zip((x.name for x in program.inputs), (a, b, c), strict=True))
        found = interpret(program, arrays, rg.load_device("v100"))
        np.testing.assert_array_equal(next(iter(found.outputs.values())), b.T @ a + c)


def test_records_hold_the_times_the_program_and_what_failed(file):
    path = file(result(), result((), "compile", VWM=2, MDIMA=16), result((), "runtime", KWG=16), result(SA=0, MDIMA=16))
    found = taken(path)
    states = [one["result"]["status"] for one in found.file.records]
    assert states == ["ok", "compile", "launch", "ok"] and found.refused == {}
    assert found.file.records[0]["result"]["times_ms"] == [1.0, 1.2]
    (stage,) = from_json(found.file.records[0]["program"]["rprogram"]).stages
    assert stage.threads == 64 and stage.blocks == 8
    data = from_records([found.file])
    assert len(data) == 4 and data.right.tolist() == [True, False, False, True] and len(data.operators()) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"MDIMA": 16}, "SA = 1: MDIMA by vectors of VWM cuts the tile into no equal parts of threads"),
        ({"NDIMB": 1}, "SB = 1: NDIMB by vectors of VWN cuts the tile into no equal parts of threads"),
        ({"STRM": 1}, "STRM is 1; expected 0"),
        ({"PRECISION": 64}, "PRECISION is 64; expected 32"),
        ({"UNROLL_X": 2}, "UNROLL_X is no known parameter of clblast-gemm"),
        ({"NWG": 96, "NDIMB": 48}, "NWG does not divide 64"),
        ({"VWN": "two"}, "VWN is two; expected a whole number"),
        ({"SA": 2}, "SA is 2; expected 0 or 1"),
    ],
)
def test_what_does_not_map_is_refused_by_name(file, changed, reason):
    found = taken(file(result(), result(**changed), result(**changed)))
    assert found.refused == {reason: 2} and len(found.file.records) == 1


def test_what_was_never_tried_is_no_record(file):
    found = taken(file(result((), "constraints")))
    assert found.file.records == () and "never tried" in next(iter(found.refused))


def test_programs_that_the_device_cannot_hold_are_refused(file):
    large = {"MWG": 128, "NWG": 64, "MDIMC": 64, "NDIMC": 32, "MDIMA": 64, "NDIMB": 64, "VWM": 2, "VWN": 1}
    (reason,) = taken(file(result(**large))).refused
    assert "no program of v100" in reason and "threads" in reason


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"schema_version": "2.0.0"}, "expected T4 results of schema 1"),
        ({"results": {}}, "expected T4 results"),
        ({"results": [3]}, "result 0: expected an object"),
        ({"results": [{"configuration": GOOD, "invalidity": "fine"}]}, "invalidity is 'fine'"),
        ({"results": [result((1e-3, 1e-3)) | {"measurements": [{"name": "time", "value": 1.0}]}]}, "expected one unit, ms"),
        ({"results": [result() | {"measurements": [{"name": "time", "value": 10**400}]}]}, "expected one unit, ms"),
        ({"results": [result() | {"times": {"runtimes": [10**400]}}]}, "expected positive milliseconds"),
        ({"results": [{"configuration": GOOD, "invalidity": ["correct"]}]}, "invalidity is"),
        ({"results": [result((-1.0, 1.0))]}, "expected positive milliseconds"),
        ({"results": [result() | {"timestamp": "yesterday"}]}, "expected ISO 8601"),
    ],
)
def test_damaged_files_are_refused(file, damage, message):
    with pytest.raises(RecordsError, match=message):
        taken(file(**damage))


def test_what_the_file_does_not_say_must_be_told(file):
    path, device = file(result()), rg.load_device("v100")
    for kernel, sizes, on, message in (
        ("my-conv", SIZES, device, "expected one of clblast-gemm"),
        ("clblast-gemm", {"m": 4}, device, "expected positive m, n, k"),
        ("clblast-gemm", {**SIZES, "m": 10**30}, device, "m, n, k below"),
        ("clblast-gemm", SIZES, rg.load_device("cpu"), "no thread blocks"),
    ):
        with pytest.raises(rg.errors.ArgumentError, match=message):
            read_t4(path, on, kernel, sizes)
