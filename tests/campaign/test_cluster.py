"""A campaign on a Dask cluster of this machine's own processes (needs the extra ``dask``)."""

import os
import signal

import pytest

import rollergen as rg
from rollergen.__main__ import main
from rollergen.store import admin
from rollergen.store.collection import stored
from rollergen.store.deliveries import finished
from rollergen.store.location import store_path

pytest.importorskip("distributed")

PLAN = """
name = "small"
device = "cpu"
programs = 2
top_k = 2
seconds = 0.01
[[operators]]
problem = "relu shape=31x7"
[[operators]]
problem = "softmax shape=13x37"
"""


@pytest.fixture(scope="module")
def cluster():
    from rollergen.campaign.cluster import local_cluster

    with local_cluster(1, rg.load_device("cpu"), dashboard_address=None) as cluster:
        yield cluster


def test_a_campaign_outlives_the_death_of_its_worker(cluster, tmp_path, monkeypatch):
    from rollergen.campaign import run as running
    from rollergen.campaign.cluster import connected, workers_with
    from rollergen.campaign.plan import read_plan

    path = tmp_path / "ops.toml"
    path.write_text(PLAN)
    plan = read_plan(path)
    killed = []

    def kill_once(*_):
        if not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    with connected(cluster.scheduler_address, 1, plan.device) as client:
        assert workers_with(client, plan.device) == 1
        found = running.run(plan, store_path(), client, kill_once)
    assert killed and (found.delivered, found.failed) == (2, ())
    records = stored(store_path()).records
    assert {one["result"]["status"] for one in records} == {"ok"}
    assert len({one["campaign"]["key"] for one in records}) == len(records) == found.records
    assert len(finished(store_path())) == 2 and admin.verify(store_path()).problems == ()
    # Nothing is left to do, so no cluster is started.
    monkeypatch.setattr("rollergen.campaign.cluster.connected", lambda *_: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        main(["campaign", "run", str(path), "--json"])
    assert ended.value.code == 0


def test_profile_takes_a_clusters_executor(cluster):
    from distributed import Client

    expression = rg.ops.relu(rg.tensor("x", (31, 7)))
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        executor = client.get_executor(resources={"cpu": 1})
        outcomes = rg.profile(rg.construct(expression, "cpu", 2), "cpu", executor=executor, expr=expression)
    assert all(one.state in ("passed", "not believed") for one in outcomes)


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rollergen.campaign.cluster.CONNECT_S", 1)
    path = tmp_path / "ops.toml"
    path.write_text(PLAN)
    with pytest.raises(SystemExit) as ended:
        main(["campaign", "run", str(path), "--scheduler", "tcp://127.0.0.1:9"])
    assert ended.value.code == 2 and "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
