"""Every task is delivered once, whoever is lost and however often the plan is run."""

import pytest

from rollergen.campaign.run import ClusterLostError, all_delivered, run
from rollergen.store import admin
from rollergen.store.collection import add, prune, stored
from rollergen.store.deliveries import deliver, finished
from rollergen.store.location import store_path
from tests.campaign.clients import Client, plan, pretend, refuse


def keys():
    return sorted(one["campaign"]["key"] for one in stored(store_path()).records)


def test_a_plan_is_performed_and_running_it_again_performs_nothing():
    client, tasks = Client(), plan(30, 40, 50)
    first = run(tasks, store_path(), client, task=pretend)
    assert (first.before, first.delivered, first.failed) == (0, 3, ()) and first.records == len(keys()) >= 3
    assert client.asked[0] == (f"rollergen-{tasks.tasks[0].id}", {"v100": 1})
    assert all_delivered(tasks, store_path()) and not all_delivered(plan(30, 60), store_path())
    second = run(tasks, store_path(), again := Client(), task=pretend)
    assert (second.before, second.delivered, second.records, again.asked) == (3, 0, 0, [])
    assert len(set(keys())) == len(keys()) == first.records and admin.verify(store_path()).problems == ()


def test_after_the_scheduler_died_what_was_delivered_stays_and_the_rest_is_performed():
    tasks = plan(30, 40, 50, 60)
    with pytest.raises(ClusterLostError, match="run the same plan again"):
        run(tasks, store_path(), Client(dies_after=2), task=pretend)
    assert 1 <= len(finished(store_path())) < 4
    rest = run(tasks, store_path(), Client(), task=pretend)
    assert rest.before + rest.delivered == 4
    undisturbed = store_path().with_name("other.sqlite")
    run(tasks, undisturbed, Client(), task=pretend)
    assert keys() == sorted(one["campaign"]["key"] for one in stored(undisturbed).records)


def test_a_scheduler_that_forgot_its_tasks_is_lost():
    with pytest.raises(ClusterLostError, match="forgot"):
        run(plan(30), store_path(), Client(forgets=True), task=pretend)
    assert not store_path().exists()


def test_a_task_that_is_performed_twice_counts_once_though_its_times_differ():
    (task,) = plan(30).tasks
    assert deliver(store_path(), pretend(task, 1e-3))
    before = keys()
    assert not deliver(store_path(), pretend(task, 2e-3))
    assert keys() == before

    class Slow(Client):
        """Another client delivers while this one waits."""

        def submit(self, function, task, **how):
            deliver(store_path(), pretend(task, 3e-3))
            return super().submit(function, task, **how)

    found = run(plan(40), store_path(), Slow(), task=pretend)
    assert (found.delivered, found.twice, found.records) == (0, 1, 0)
    assert admin.verify(store_path()).problems == ()


def test_a_task_that_fails_is_told_and_tried_again_next_time():
    found = run(plan(30), store_path(), Client(), task=refuse)
    assert found.failed == (("relu shape=30 float32", "DeviceError: v100 is on holiday"),) and found.delivered == 0
    assert run(plan(30), store_path(), Client(), task=pretend).delivered == 1


def test_an_error_of_python_in_one_task_is_its_own():
    def confused(task):
        raise KeyError("mask8")

    found = run(plan(30), store_path(), Client(), task=confused)
    assert found.failed == (("relu shape=30 float32", "KeyError: 'mask8'"),) and found.delivered == 0


def test_records_of_another_store_are_merged_by_their_keys():
    other = store_path().with_name("other.sqlite")
    for path, wall_s in ((store_path(), 1e-3), (other, 2e-3)):
        deliver(path, pretend(plan(30).tasks[0], wall_s))
    deliver(other, pretend(plan(40).tasks[0]))
    before = len(keys())
    added = add(store_path(), stored(other))
    assert 0 < added == len(keys()) - before and len(set(keys())) == len(keys())
    assert add(store_path(), stored(other)) == 0


def test_removed_records_stay_removed_and_a_cleared_store_begins_anew():
    tasks = plan(30, 40)
    run(tasks, store_path(), Client(), task=pretend)
    prune(store_path(), lambda record: record["op"]["extents"] == {"i0": 30})
    assert admin.verify(store_path()).problems == () and keys()
    assert run(tasks, store_path(), Client(), task=pretend).delivered == 0
    admin.clear(store_path(), with_records=True)
    assert run(tasks, store_path(), Client(), task=pretend).delivered == 2


def test_a_delivery_that_breaks_off_leaves_nothing(monkeypatch):
    (task,) = plan(30).tasks
    delivery = pretend(task)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr("rollergen.store.deliveries._marked", lambda record, delivery: 1 / 0)
        deliver(store_path(), delivery)
    assert finished(store_path()) == frozenset() and stored(store_path()).records == ()


def test_verify_names_a_key_whose_record_is_missing():
    import sqlite3
    from contextlib import closing

    run(plan(30), store_path(), Client(), task=pretend)
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("UPDATE measured SET record = 'none'")
        connection.commit()
    assert any("keys are of records that are missing" in text for text in admin.verify(store_path()).problems)
