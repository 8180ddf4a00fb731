"""Whatever happens to the store, the kernel is right, one warning says what is wrong, and nothing is half-written."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path

import pytest

import rollergen as rg
from rollergen.errors import CacheWarning, ProgramError
from rollergen.hal.files.user_cache import DIRECTORY_VARIABLE
from rollergen.store import admin, database
from rollergen.store.cache import forget_failures
from rollergen.store.database import StoreError, reading, writing
from rollergen.store.keys import fingerprint
from rollergen.store.location import store_path
from rollergen.store.schema import STATEMENTS
from tests.store.builders import build

ROOT = Path(__file__).resolve().parents[2]


def build_quietly(number=0):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return build(number)


def build_with_one_warning(text):
    """Two builds: the first one warns, both give what a build without cache gives."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kernels = [build(0), build(0)]
    told = [w for w in seen if issubclass(w.category, CacheWarning)]
    assert [str(w.message) for w in told if text in str(w.message)] and len(told) == 1, [str(w.message) for w in told]
    assert Path(told[0].filename).name == "builders.py"
    expected = build(0, cache=False)
    for kernel in kernels:
        assert len(kernel.source) > 100
        assert len(kernel.candidates) == len(expected.candidates)
    return str(told[0].message)


def sql(*statements):
    with closing(sqlite3.connect(store_path())) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_missing_directory_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "not" / "yet" / "there"))
    build_quietly()
    assert store_path().exists()


def test_a_directory_whose_name_is_no_utf8_is_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    build_quietly()
    assert b"kernels.sqlite" in os.listdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    with reading(store_path()) as found:
        assert found is not None


def test_a_directory_that_cannot_be_made_is_told_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "file" / "below"))
    text = build_with_one_warning("Not a directory")
    assert "ROLLERGEN_CACHE_DIR names another directory" in text


@pytest.mark.parametrize("content", [b"not a database at all" * 99, b"SQLite format 3\0" + bytes(4000), b"\0" * 100])
def test_a_file_that_is_no_database_is_told_and_left_alone(content):
    store_path().parent.mkdir()
    store_path().write_bytes(content)
    assert "rollergen cache clear starts a new one" in build_with_one_warning("is damaged")
    assert store_path().read_bytes() == content


def test_clearing_makes_room_for_a_new_store():
    store_path().parent.mkdir()
    store_path().write_bytes(b"not a database at all" * 99)
    assert admin.clear(store_path())["kernels"] is None
    forget_failures()
    build_quietly()
    assert admin.verify(store_path()).checked["kernels"] == 1


@pytest.mark.parametrize("where", ["page", "tail"])
def test_a_store_with_overwritten_or_missing_pages_is_told(where):
    build_quietly()
    size = store_path().stat().st_size
    with store_path().open("r+b") as file:
        if where == "page":
            file.seek(4096)
            file.write(random.Random(0).randbytes(size - 4096))
        else:
            file.truncate(size // 2)
    build_with_one_warning("damaged")


@pytest.mark.parametrize("change", ["PRAGMA user_version=2", "PRAGMA user_version=0"])
def test_a_store_of_another_version_is_told_and_left_alone(change):
    build_quietly()
    sql(change)
    before = store_path().read_bytes()
    assert "rollergen cache clear" in build_with_one_warning("this rollergen reads 1")
    assert store_path().read_bytes() == before


def test_a_database_of_another_program_is_never_touched():
    store_path().parent.mkdir()
    sql("CREATE TABLE letters (text)")
    build_with_one_warning("is a database of another program")
    with pytest.raises(StoreError, match="another program"):
        admin.clear(store_path())
    with closing(sqlite3.connect(store_path())) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("letters",)]


DAMAGES = {
    "kernels": "UPDATE kernels SET chosen = 1",
    "candidates": "UPDATE kernels SET candidates = replace(candidates, '\"blocks\":', '\"blocks\":1')",
    "sources": "UPDATE sources SET text = replace(text, '0.0f', '1.0f')",
    "programs": "UPDATE programs SET rprogram = replace(rprogram, 'max', 'min')",
    "lost sources": "DELETE FROM sources",
    "lost programs": "DELETE FROM programs",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
def test_a_row_that_was_changed_is_noticed_told_and_replaced(statement):
    first = build_quietly()
    sql(statement)
    assert admin.verify(store_path()).problems
    with pytest.warns(CacheWarning, match="this kernel is built and stored anew"):
        second = build(0)
    assert second.candidates == first.candidates
    assert admin.verify(store_path()).problems == ()
    assert build_quietly().candidates == first.candidates


def test_a_kernel_that_the_store_cannot_hold_is_told(monkeypatch):
    def refuse(program):
        raise ProgramError("the program holds 3")

    monkeypatch.setattr("rollergen.store.entries.to_text", refuse)
    build_with_one_warning("cannot hold this kernel: the program holds 3")
    assert admin.verify(store_path()).problems == ()


def test_a_full_disk_keeps_what_is_there_and_writes_no_half_kernel(monkeypatch):
    build_quietly(0)
    before = admin.listing(store_path())["kernels"]
    connected = database.connected

    def small(path, mode, seconds=None):
        connection = connected(path, mode, seconds)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}")
        return connection

    monkeypatch.setattr(database, "connected", small)
    with pytest.warns(CacheWarning, match="full"):
        build(1)
    assert admin.listing(store_path())["kernels"] == before
    assert admin.verify(store_path()).problems == ()
    monkeypatch.setattr(database, "connected", connected)
    build_quietly(2)  # it is tried again once there is room
    assert len(admin.listing(store_path())["kernels"]) == 2


LIMITED = """
import resource, sys, warnings
from tests.store.builders import build
build(1, cache=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    kernels = [build(1), build(2)]
print(len(seen), all(len(k.source) > 100 for k in kernels))
"""


@pytest.mark.parametrize("most_bytes", [0, 5_000, 40_000])
def test_a_process_that_may_write_little_gives_right_kernels_and_one_warning(most_bytes):
    run = _python(LIMITED, str(most_bytes))
    assert run.stdout.split() == ["1", "True"], run.stderr
    build_quietly(1)
    assert admin.verify(store_path()).problems == ()


READ_ONLY = """
import os, sys, warnings
from tests.store.builders import build
from rollergen.store import keys
keys.fingerprint = lambda: sys.argv[1]
build(3, cache=False)
if os.geteuid() == 0:
    os.setuid(65534)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    found, made = build(0), build(3)
print(len(seen), len(found.source), len(made.source) > 100, [str(w.message) for w in seen])
"""


def test_a_directory_that_may_only_be_read_gives_what_it_has(tmp_path_factory, monkeypatch):
    if os.geteuid() == 0:  # the kernel lets root write anywhere: the process gives that up
        directory = Path(f"/tmp/rollergen-read-only-{os.getpid()}")
    else:
        directory = tmp_path_factory.mktemp("read-only") / "cache"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    try:
        source = build_quietly(0).source
        store_path().chmod(0o444)
        directory.chmod(0o555)
        run = _python(READ_ONLY, fingerprint())
        assert run.stdout.split()[:3] == ["1", str(len(source)), "True"], run.stdout + run.stderr
        assert len(admin.listing(store_path())["kernels"]) == 1
    finally:
        directory.chmod(0o755)
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def test_a_transaction_of_another_process_is_waited_for_but_not_for_ever(monkeypatch):
    build_quietly(0)
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    with closing(sqlite3.connect(store_path(), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        build_quietly(0)  # readers do not wait
        start = time.monotonic()
        with pytest.warns(CacheWarning, match="locked"):
            build(1)
        assert time.monotonic() - start < 60
    build_quietly(1)
    assert len(admin.listing(store_path())["kernels"]) == 2


def test_an_exception_within_a_transaction_leaves_nothing_of_it():
    build_quietly(0)
    with pytest.raises(KeyError), writing(store_path()) as connection:
        connection.execute("DELETE FROM kernels")
        raise KeyError("in the middle")
    assert len(admin.listing(store_path())["kernels"]) == 1


def test_records_can_only_be_appended():
    rg.build(rg.ops.relu(rg.tensor("x", (64,))), "cpu", top_k=1)
    for statement in ("DELETE FROM records", "UPDATE records SET record = '{}'"):
        with pytest.raises(sqlite3.IntegrityError, match="records are append-only"):
            sql(statement)
    assert admin.verify(store_path()).problems == ()


def test_an_empty_file_becomes_a_store():
    store_path().parent.mkdir()
    store_path().write_bytes(b"")
    build_quietly(0)
    assert admin.verify(store_path()).checked["kernels"] == 1


def test_statements_that_died_half_way_are_made_again():
    store_path().parent.mkdir()
    with closing(sqlite3.connect(store_path(), isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute(STATEMENTS[0])  # never committed
    build_quietly(0)
    assert admin.verify(store_path()).problems == ()


def test_the_first_of_two_kernels_that_were_built_at_once_stays():
    first = build_quietly(0)
    key = admin.listing(store_path())["kernels"][0]["key"]
    made = admin.listing(store_path())["kernels"][0]["made_at"]
    from rollergen.store.cache import Cache

    find = Cache.find
    try:
        Cache.find = lambda self: None
        build_quietly(0)
    finally:
        Cache.find = find
    (kept,) = admin.listing(store_path())["kernels"]
    assert (kept["key"], kept["made_at"]) == (key, made)
    assert build_quietly(0).candidates == first.candidates


def test_threads_of_one_process_share_a_store():
    from concurrent.futures import ThreadPoolExecutor

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(4) as pool:
            kernels = list(pool.map(build, [0, 3, 6, 9, 0, 3, 6, 9]))
    assert all(len(k.source) > 100 for k in kernels)
    assert admin.verify(store_path(), deep=True).problems == ()


def test_a_store_that_is_created_while_it_is_looked_at_is_empty_or_whole(tmp_path, monkeypatch):
    path = tmp_path / "store.sqlite"
    path.touch()

    def create():
        with database.writing(path):
            pass

    class Interrupted(sqlite3.Connection):
        def execute(self, sql, *more):
            if sql == "PRAGMA application_id":
                creating.start()
                creating.join(0.5)
            return super().execute(sql, *more)

    def connected(path, mode):
        return sqlite3.connect(path, timeout=10, isolation_level=None, factory=Interrupted)

    creating, plain = threading.Thread(target=create), database.connected
    monkeypatch.setattr(database, "connected", lambda path, mode, *_: (connected if mode == "rw" else plain)(path, mode))
    with database.reading(path) as connection:
        assert connection is None
    creating.join()
    monkeypatch.undo()
    with database.reading(path) as connection:
        assert connection is not None


TOGETHER = """
import os, traceback, warnings
from tests.store.builders import build
build(0, cache=False)
children = []
for number in range(16):
    child = os.fork()
    if not child:
        status = 1
        try:
            warnings.simplefilter("error")
            kernels = [build(0), build(3 + number % 4), build(20 + number)]
            status = int(not all(len(kernel.source) > 100 for kernel in kernels))
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_sixteen_processes_build_the_same_and_different_kernels_at_once():
    run = _python(TOGETHER)
    assert json.loads(run.stdout) == [0] * 16, run.stderr
    assert len(admin.listing(store_path())["kernels"]) == 1 + 4 + 16
    assert admin.verify(store_path(), deep=True).problems == ()
    assert build_quietly(0).candidates == build(0, cache=False).candidates


def test_killed_builders_leave_a_store_that_is_whole_and_right():
    run = subprocess.run([sys.executable, "-m", "tests.store.killing", "6", "3", "0"], cwd=ROOT, capture_output=True)
    found = json.loads(run.stdout)
    assert found["problems"] == []
    assert all(found["announced"].values()) and found["kernels"] and found["tasks_delivered"]


def _python(text, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text, *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_reading_a_store_that_is_not_there_makes_none():
    with reading(store_path()) as connection:
        assert connection is None
    assert not store_path().parent.exists()
