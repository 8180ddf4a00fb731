"""Every profiled candidate leaves one record, in the shape that verifiers learn from."""

import hashlib
from dataclasses import replace
from statistics import median

import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.program.serial import from_json
from rollergen.store import admin
from rollergen.store.cache import Cache
from rollergen.store.location import store_path
from rollergen.store.records import status

SHAPE = {
    "v": (),
    "group": (),
    "op": ("class", "expr", "extents", "dtype"),
    "device": ("id", "family", "spec"),
    "program": ("v", "rprogram", "kernel_sha256", "rank"),
    "pred": ("micro_ms", "draft_ms", "terms"),
    "feat": ("ver", "vec", "seq"),
    "result": ("status", "times_ms", "compile_s"),
    "env": ("driver", "compiler", "rollergen"),
    "ts": (),
}


def product():
    return rg.ops.matmul(rg.tensor("A", (33, 65)), rg.tensor("B", (65, 47)))


def kept():
    return list(admin.records(store_path()))


def assert_shape(record):
    assert list(record) == sorted(SHAPE)
    for key, parts in SHAPE.items():
        if parts:
            assert set(record[key]) == set(parts), key


def test_a_record_has_the_documented_shape_and_says_what_happened():
    kernel = rg.build(product(), "cpu", top_k=3)
    records = kept()
    assert len(records) == len(kernel.candidates)
    for record, outcome in zip(records, kernel.candidates, strict=True):
        assert_shape(record)
        assert from_json(record["program"]["rprogram"]) == outcome.program
        assert record["program"]["kernel_sha256"] == hashlib.sha256(outcome.source.text.encode()).hexdigest()
        assert record["program"]["rank"] == outcome.rank
        assert record["result"]["status"] == "ok"
        assert median(record["result"]["times_ms"]) == pytest.approx(outcome.wall_s * 1e3)
        assert len(record["result"]["times_ms"]) == outcome.rounds
        assert record["pred"]["micro_ms"] == pytest.approx(outcome.predicted_s * 1e3)
        assert record["pred"]["terms"] and all(ms > 0 for ms in record["pred"]["terms"].values())
        assert record["op"] | {"expr": ""} == {
            "class": "matmul", "expr": "", "extents": {"i": 33, "j": 47, "k": 65}, "dtype": "float32",
        }  # fmt: skip
        assert record["group"].split("/")[1:] == [record["device"]["id"], "float32"]
        assert record["env"]["driver"] and record["env"]["compiler"] and record["env"]["rollergen"]


def test_operators_of_one_form_share_a_group_whatever_their_tensors_are_called():
    rg.build(product(), "cpu", top_k=1)
    x, y = rg.tensor("x", (33, 65)), rg.tensor("y", (65, 47))
    rg.build(rg.ops.matmul(x, y), "cpu", top_k=2)
    rg.build(rg.ops.relu(x), "cpu", top_k=1)
    groups = [record["group"] for record in kept()]
    assert len(groups) == 4 and groups[0] == groups[1] == groups[2] != groups[3]


def test_finding_a_kernel_and_not_profiling_add_no_record():
    rg.build(product(), "cpu", profile=False, top_k=1)
    assert kept() == []
    rg.build(product(), "cpu", top_k=1)
    rg.build(product(), "cpu", top_k=1)
    assert len(kept()) == 1


def test_the_same_measurement_delivered_twice_counts_once(monkeypatch):
    monkeypatch.setattr("rollergen.store.cache.time.time", lambda: 1e9)
    kernel = rg.build(product(), "cpu", top_k=1, cache=False)
    driver = "one | two"
    cache = Cache(canonicalize(product()), kernel.device, rg.BuildOptions(), 1, driver)
    cache.keep(kernel.candidates, kernel.candidates[0])
    cache.keep(kernel.candidates, kernel.candidates[0])
    (record,) = kept()
    assert (record["env"]["driver"], record["env"]["compiler"]) == ("one", "two")


def test_failed_candidates_are_recorded_and_untried_ones_are_not():
    kernel = rg.build(product(), "cpu", top_k=4, cache=False)
    first, second, third, fourth = (*kernel.candidates, *kernel.candidates)[:4]
    none = {"wall_s": None, "event_s": None, "rounds": 0, "times_s": ()}
    outcomes = (
        first,
        replace(second, rank=1, problems=("DeviceError: refused",), compile_s=None, **none),
        replace(third, rank=2, problems=("1 of 9 compared elements of out are wrong",), **none),
        replace(fourth, rank=3, **none),
    )
    assert [status(one) for one in outcomes[:3]] == ["ok", "compile", "wrong"]
    Cache(canonicalize(product()), kernel.device, rg.BuildOptions(), 4, "driver").keep(outcomes, first)
    assert [record["result"]["status"] for record in kept()] == ["ok", "compile", "wrong"]
    assert admin.verify(store_path()).problems == ()
