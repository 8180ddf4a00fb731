"""An expression on all devices, and on the way from one device's figures to others."""

import json
from itertools import pairwise

import pytest

import rollergen as rg
from rollergen.explain.what_if import across, limiter, on_the_way, turns
from rollergen.hal.changes import changed
from rollergen.hal.load import load_device
from rollergen.program.model import predict
from tests.cli.test_cli import ok

V100 = load_device("v100")


@pytest.fixture(scope="module")
def product():
    a, b = rg.tensor("A", (256, 256)), rg.tensor("B", (256, 256))
    return rg.construct(rg.ops.matmul(a, b), V100, top_k=1)[0]


def test_devices_come_by_their_time_and_what_does_not_fit_last():
    wide = rg.ops.relu(rg.tensor("X", (60_000, 1024)))
    rows = across(wide, map(load_device, ("ipu", "k80", "v100")))
    assert [one.device for one in rows] == ["v100", "k80", "ipu"]
    assert rows[0].seconds < rows[1].seconds and "bytes too many" in rows[2].missing and not rows[0].missing
    assert rows[0].limiter == "dram bandwidth"


def test_every_turn_on_the_way_is_found_where_the_limiter_changes(product):
    settings = {"fma.per_clock": 4096.0, "shared.bytes_per_clock": 4.0}
    found = turns(product, V100, settings)
    way = on_the_way(product, V100, settings)
    assert len(found) == sum(a.limiter != b.limiter for a, b in pairwise(way)) >= 1
    for turn in found:
        assert turn.before != turn.after
        assert limiter(predict(product, changed(V100, turn.settings))) == turn.after
    assert [turn.before for turn in found[1:]] == [turn.after for turn in found[:-1]]


def test_the_way_begins_at_the_device_and_ends_at_the_figures(product):
    way = on_the_way(product, V100, {"units": 9}, points=5)
    assert [point.settings["units"] for point in way] == [80, 62, 44, 27, 9]
    assert way[0].seconds == float(predict(product, V100).seconds) < way[-1].seconds


def test_both_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'rollergen[plots]'")
    one, every = tmp_path / "one.svg", tmp_path / "every.svg"
    words = ["relu", "shape=4096x1024", "--json"]
    ok("devices", "what-if", "v100", *words, "--set", "dram.bandwidth_gb_s=9000", "--plot", str(one))
    found = json.loads(ok("devices", "what-if", "all", *words, "--plot", str(every)))
    assert {"v100", "cpu", "ipu"} <= {row["device"] for row in found["devices"]}
    assert all("<svg" in file.read_text() for file in (one, every))
