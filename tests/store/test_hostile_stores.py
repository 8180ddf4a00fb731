"""A store or a file's name that nobody here made: an error that names it, nothing of it run, nothing written or lost."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rollergen.errors import RollergenError
from rollergen.store import admin, collection
from rollergen.store.database import StoreError
from rollergen.store.keys import sha256
from rollergen.store.record_files import RecordFile, RecordsError, append, check_record, read
from tests.verify.records import recorded

ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, x AS hash, x AS record FROM n"
)


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "kernels.sqlite"
    whole = recorded(2)
    collection.add(path, RecordFile(whole.devices, whole.records[:4]))
    return path


def changed(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_a_store_without_one_of_its_tables_is_damaged_and_cleared(store):
    changed(store, "DROP TABLE programs")
    with pytest.raises(StoreError, match=r"is damaged \(no table programs\); rollergen cache clear starts a new one"):
        admin.verify(store)
    assert admin.clear(store)["kernels"] is None and not store.exists()


@pytest.mark.parametrize(
    "statements",
    [
        "DROP TABLE records; CREATE VIEW records AS " + ENDLESS,
        "CREATE TRIGGER theirs AFTER INSERT ON records BEGIN DELETE FROM devices; END",
        "DROP TRIGGER records_stay; CREATE TRIGGER records_stay AFTER INSERT ON devices BEGIN SELECT 1; END",
    ],
)
def test_views_and_triggers_of_others_are_not_run(store, statements):
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(statements)
    before = store.read_bytes()
    whole = recorded(2)
    for ask in (collection.stored, admin.listing, admin.verify, lambda path: collection.add(path, whole)):
        with pytest.raises(StoreError, match="which no rollergen makes"):
            ask(store)
    assert store.read_bytes() == before


TEXTS = ["null", "[" * 100_000, "not json", '"text"', "1" * 5000, b"\xff\xfe", 3]


@pytest.mark.parametrize("text", TEXTS, ids=[str(text)[:9] for text in TEXTS])
def test_a_record_that_none_wrote_is_named(store, text):
    key = sha256(text) if isinstance(text, str) else "0" * 64
    changed(store, "INSERT INTO records (hash, record) VALUES (?, ?)", key, text)
    before = store.read_bytes()
    for ask in (collection.stored, lambda path: collection.prune(path, lambda record: True)):
        with pytest.raises(RollergenError, match="record 5"):
            ask(store)
    assert admin.verify(store).problems
    assert store.read_bytes() == before


@pytest.mark.parametrize("spec", ["null", "[" * 100_000, b"\xff", 3])
def test_a_device_that_none_wrote_is_named(store, spec):
    changed(store, "INSERT INTO devices VALUES ('abc', 'name', ?)", spec)
    with pytest.raises(RollergenError, match="device abc"):
        collection.stored(store)
    assert admin.verify(store).problems


def test_a_kernel_that_none_wrote_is_named(store):
    row = ("key", "e", "d", "{}", 1, "", "", "", "{}", "[]", 0, 1.0, "hash")
    changed(store, f"INSERT INTO kernels VALUES ({', '.join('?' * 13)})", *row)
    with pytest.raises(StoreError, match="kernel key is not what was written"):
        admin.listing(store)


def test_a_record_whose_campaign_is_of_another_kind_is_refused(store):
    record = recorded(2).records[0]
    for campaign in (None, [], {}, {"key": 3}, {"key": {}}):
        with pytest.raises(RecordsError, match="here: campaign is"):
            check_record({**record, "campaign": campaign}, "here")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_refused_and_nothing_is_written(tmp_path, name, monkeypatch):
    """SQLite would end it at the NUL, and make another file."""
    monkeypatch.chdir(tmp_path)
    whole = recorded(2)
    (device,) = whole.devices.values()
    for ending in (".jsonl", ".jsonl.gz", ".jsonl.xz"):
        path = Path(name + ending)
        with pytest.raises(RecordsError, match="cannot be read") as caught:
            read(path)
        assert repr(str(path)) in str(caught.value)
        with pytest.raises(RecordsError, match="cannot be written"):
            append(path, device, whole.records)
    for ask in (collection.stored, admin.listing, lambda path: collection.add(path, whole)):
        with pytest.raises(StoreError, match="cannot be a file's name") as caught:
            ask(Path(name))
        assert repr(name) in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.xz"])
def test_records_that_do_not_fit_the_disk_leave_the_file_as_it_was(tmp_path, ending):
    resource = pytest.importorskip("resource")
    whole, path = recorded(2), tmp_path / f"records{ending}"
    (device,) = whole.devices.values()
    append(path, device, whole.records)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))  # some bytes fit, and not all
    try:
        with pytest.raises(RecordsError, match="cannot be written"):
            append(path, device, whole.records)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    append(path, device, whole.records)
    assert len(read(path).records) == 2 * len(whole.records)


def test_a_damaged_store_that_may_not_be_removed_says_so(tmp_path, monkeypatch):
    path = tmp_path / "kernels.sqlite"
    path.write_bytes(b"no database" * 100)

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreError, match=r"kernels\.sqlite: Permission denied"):
        admin.clear(path)
    with pytest.raises(StoreError, match="File name too long"):
        admin.clear(tmp_path / ("x" * 300))
