"""Corrections of a spec are found from measured programs, shown, and never applied by themselves."""

import json

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError
from rollergen.explain.device_fit import Sample, candidates, fit_device, sample
from rollergen.explain.sensitivity import seconds_on
from rollergen.hal.changes import changed, figure
from rollergen.hal.load import device_hash, load_device
from rollergen.program.serial import to_json
from rollergen.store.record_files import RecordFile, append
from tests.cli.test_cli import ok, run

pytest.importorskip("scipy", reason="corrections are fitted with scipy: pip install 'rollergen[verify]'")

V100 = load_device("v100")
TRUE = changed(V100, {"dram.bandwidth_gb_s": figure(V100, "dram.bandwidth_gb_s") * 0.84})
X = rg.tensor("X", (2048, 4096))
EXPRESSIONS = [
    rg.ops.relu(X),
    rg.ops.sum(X, axis=-1),
    rg.ops.relu(rg.tensor("X", (1000, 3000))),
    rg.ops.t(rg.tensor("X", (3000, 2000))),
    rg.ops.sum(rg.tensor("X", (512, 9000)), axis=-1),
    rg.ops.max_pool2d(rg.tensor("X", (16, 64, 56, 56)), 2, stride=2),
]


@pytest.fixture(scope="module")
def programs():
    return [rg.construct(one, V100, top_k=5) for one in EXPRESSIONS]


@pytest.fixture(scope="module")
def measured(programs):
    """What a device with less bandwidth would have taken, one program in nine disturbed."""
    rows = [(program, number) for number, some in enumerate(programs) for program in some]
    noise = np.random.default_rng(1).normal(1, 0.01, len(rows))
    noise[::9] *= 1.8
    seconds = np.array([seconds_on(program, TRUE) for program, _ in rows]) * noise
    return Sample(tuple(program for program, _ in rows), seconds, np.array([number for _, number in rows]))


def test_the_figure_that_is_wrong_is_found_and_held_out_operators_agree(measured):
    found = fit_device(V100, measured, most_figures=1)
    (one,) = found.corrections
    assert one.path == "dram.bandwidth_gb_s" and one.gain > 0.5 and not one.at_bound
    assert one.new == pytest.approx(figure(TRUE, one.path), rel=0.03)
    before, after = found.held_out
    assert after.error < 0.5 * before.error and 0.97 < after.bias < 1.03


def test_the_corrected_device_says_where_its_figures_come_from_and_the_old_one_stays(measured):
    found = fit_device(V100, measured, most_figures=1)
    new = found.corrected()
    kind, source = dict(new.provenance)["memory_layers[4].bandwidth_gb_s"]
    assert kind == "fitted" and "measured programs of 4 operators" in source
    assert found.device == V100 and new.verified == ()


def test_a_right_spec_is_left_alone(measured):
    right = Sample(measured.programs, np.array([seconds_on(p, V100) for p in measured.programs]), measured.operator)
    assert fit_device(V100, right, most_figures=2).corrections == ()


def test_what_is_printed_and_what_is_counted_are_no_candidates():
    found = candidates(V100)
    assert found["dram.bandwidth_gb_s"] > 1 and "units" not in found and "limits.threads_per_unit" not in found
    origins = dict(V100.provenance)
    printed = [path for path in ("clock_mhz", "launch_us") if origins.get(path, ("",))[0] == "datasheet"]
    assert not set(printed) & set(found)
    assert "costs.write_allocate" not in candidates(load_device("cpu"))  # a switch


@pytest.fixture
def records(tmp_path, programs):
    file = tmp_path / "measured.jsonl"
    rows = [
        {
            "v": 1, "group": f"operator {number}", "env": {}, "pred": {"micro_ms": seconds_on(program, V100) * 1e3},
            "op": {"class": "contraction", "expr": f"operator {number}", "extents": {}, "dtype": "float32"},
            "device": {"id": "v100", "spec": device_hash(V100)},
            "program": {"rprogram": to_json(program), "rank": rank, "kernel_sha256": ""},
            "result": {"status": "ok", "times_ms": [seconds_on(program, TRUE) * 1e3]},
        }
        for number, some in enumerate(programs) for rank, program in enumerate(some[:3])
    ]  # fmt: skip
    append(file, V100, rows)
    return file


def test_the_command_shows_the_difference_and_writes_only_where_told(records):
    before = set(records.parent.iterdir())
    told = ok("devices", "fit", "v100", str(records), "--figures", "1")
    assert "dram.bandwidth_gb_s" in told and f"{figure(V100, 'dram.bandwidth_gb_s'):g}" in told and "the spec is as it was" in told
    assert set(records.parent.iterdir()) == before
    file = records.parent / "mine.json"
    found = json.loads(ok("devices", "fit", "v100", str(records), "--figures", "1", "-o", str(file), "--json"))
    (one,) = found["corrections"]
    assert load_device(file).layer("dram").bandwidth_gb_s == one["new"] < one["old"] == figure(V100, "dram.bandwidth_gb_s")
    again = run("devices", "fit", "v100", str(records), "-o", str(file))
    assert again.exit_code == 2 and "--force" in again.stderr


def test_records_of_another_device_are_refused(records):
    result = run("devices", "fit", "mi50", str(records))
    assert result.exit_code == 2 and "no measured programs of mi50 in these records; they are of v100" in result.stderr


def test_records_without_a_program_are_passed_over():
    rows = [
        {"group": group, "device": {"spec": "x"}, "program": {"rprogram": {}}, "result": {"status": "ok", "times_ms": [1]}}
        for group in "aab"
    ]
    with pytest.raises(ArgumentError, match="none of the measured programs can be predicted on v100"):
        sample(V100, [RecordFile({"x": V100}, tuple(rows))], 10)
