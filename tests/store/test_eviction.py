"""The store has a bound: beyond it, what was used longest ago goes, the file shrinks, and what stays is whole."""

import os
import sqlite3
import threading
from contextlib import closing

import pytest

from rollergen.errors import CacheWarning
from rollergen.hal.files import user_cache
from rollergen.hal.files.user_cache import LIMIT_VARIABLE as VARIABLE
from rollergen.store import admin, cache, collection, eviction
from rollergen.store.cache import forget_failures
from rollergen.store.database import StoreError, writing
from rollergen.store.eviction import keep_below, limit_bytes, size_bytes
from rollergen.store.location import store_path
from tests.store.builders import build
from tests.verify.records import recorded


def kernels():
    return {one["key"]: one["made_at"] for one in admin.listing(store_path())["kernels"]}


def key_of(number):
    before = kernels()
    build(number)
    (key,) = kernels().keys() - before.keys()
    return key


def test_kernels_used_longest_ago_go_and_the_file_shrinks():
    keys = [key_of(number) for number in range(12)]
    build(0)  # found: used again
    before = size_bytes(store_path())
    keep_below(store_path(), before * 3 // 4)
    left = kernels().keys()
    assert size_bytes(store_path()) < before * 3 // 4 and not store_path().with_name("kernels.sqlite-wal").exists()
    assert keys[0] in left and keys[1] not in left and 1 < len(left) < 12
    assert left == {keys[0], *keys[-len(left) + 1 :]}
    assert admin.verify(store_path(), deep=True).problems == ()


def test_that_a_kernel_was_found_is_written_once_in_ten_minutes_by_whichever_process(monkeypatch):
    def used_at():
        with closing(sqlite3.connect(store_path())) as connection:
            return [time for (time,) in connection.execute("SELECT used_at FROM uses")]

    def found_by_another_process():
        eviction._NOTED.clear()
        cache._READ.clear()
        build(0)
        return used_at()

    build(0)
    [first] = found_by_another_process()
    assert found_by_another_process() == [first]
    monkeypatch.setattr(eviction, "_OFTEN_S", 0.0)
    [later] = found_by_another_process()
    assert later > first


def test_a_build_that_takes_the_store_beyond_its_bound_makes_room(monkeypatch):
    sizes = []
    monkeypatch.setattr(user_cache, "LEAST_BYTES", 1)
    monkeypatch.setenv(VARIABLE, "300KiB")
    for number in range(14):
        build(number)
        sizes.append(size_bytes(store_path()))
    assert max(sizes) <= 300 << 10 and 0 < len(kernels()) < 14
    assert build(13).candidates == build(13, cache=False).candidates
    assert admin.verify(store_path()).problems == ()


def test_below_the_bound_nothing_goes():
    build(0)
    keep_below(store_path(), size_bytes(store_path()))
    assert len(kernels()) == 1


def test_records_go_last_the_oldest_first_and_are_told():
    collection.add(store_path(), recorded())
    limit = size_bytes(store_path()) * 4 // 5
    build(0)
    before = collection.stored(store_path()).records
    with pytest.warns(CacheWarning, match=f"records were removed to keep it below .* {VARIABLE} names another bound"):
        keep_below(store_path(), limit)
    after = collection.stored(store_path()).records
    assert not kernels() and 0 < len(after) < len(before) and after == before[-len(after) :]
    assert admin.verify(store_path()).problems == ()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"), closing(sqlite3.connect(store_path())) as connection:
        connection.execute("DELETE FROM records")


def test_damaged_kernels_go_first():
    keys = [key_of(number) for number in range(4)]
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("UPDATE kernels SET candidates = 'no JSON' WHERE key = ?", (keys[3],))
        connection.commit()
    keep_below(store_path(), size_bytes(store_path()) - 1)
    with closing(sqlite3.connect(store_path())) as connection:
        assert keys[3] not in {key for (key,) in connection.execute("SELECT key FROM kernels")}


def test_builders_may_go_on_while_room_is_made(monkeypatch):
    monkeypatch.setattr(user_cache, "LEAST_BYTES", 1)
    monkeypatch.setenv(VARIABLE, "200KiB")
    wrong = []

    def work(first):
        for number in range(first, first + 6):
            if len(build(number % 9, f"x{first}").source) < 100:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and admin.verify(store_path()).problems == ()
    build(0)
    assert size_bytes(store_path()) <= 300 << 10


def test_a_kernel_is_found_at_once_while_another_process_writes():
    first = build(0)
    with writing(store_path()):
        assert build(0).candidates == first.candidates


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 1 << 30), ("4GiB", 4 << 30), (" 3 mib ", 3 << 20), ("2097152", 1 << 21), ("1TiB", 1 << 40), ("1048576B", 1 << 20)],
)
def test_the_bound_is_bytes_or_has_a_unit(text, expected, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    assert limit_bytes() == expected


@pytest.mark.parametrize("text", ["0", "-1", "1GB", "many", "1.5GiB", "1KiB", "9" * 30, "٤MiB"])
def test_another_bound_is_told_and_nothing_is_kept(text, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(StoreError, match=f"{VARIABLE} is .* expected at least 1 MiB, such as 1073741824 or 1GiB"):
        limit_bytes()
    forget_failures()
    with pytest.warns(CacheWarning, match=VARIABLE):
        build(0)
    assert not os.path.exists(store_path())
