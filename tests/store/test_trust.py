"""Who may write the store may run code: one that others may write or own is not used, and no edited row is run."""

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from rollergen.errors import CacheWarning
from rollergen.hal.files.kept import read_kept
from rollergen.hal.files.trusted import distrusted
from rollergen.hal.files.user_cache import DIRECTORY_VARIABLE
from rollergen.store import admin
from rollergen.store.cache import forget_failures
from rollergen.store.entries import COLUMNS, row_hash
from rollergen.store.keys import sha256
from rollergen.store.location import store_path
from tests.store.builders import build

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no users as POSIX has them")
AS_ROOT = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root gives files away")


def refuse_with(text):
    forget_failures()
    with pytest.warns(CacheWarning, match=text):
        assert len(build(0).source) > 100


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o707, 0o1777])
def test_a_directory_that_others_may_write_is_told_and_not_used(mode, monkeypatch):
    monkeypatch.setattr("rollergen.hal.files.trusted._is_private", lambda step, info: False)
    store_path().parent.mkdir()
    store_path().parent.chmod(mode)
    refuse_with(f"may be written by others .mode {mode:o}.; chmod go-w .*who may write the store may run code")
    assert not store_path().exists()


def test_a_file_that_others_may_write_is_told_and_neither_read_nor_written(monkeypatch):
    build(0)
    store_path().chmod(0o666)
    before = store_path().read_bytes()
    refuse_with("may be written by others")
    assert store_path().read_bytes() == before
    store_path().chmod(0o600)
    forget_failures()
    assert build(0).source


@AS_ROOT
@pytest.mark.parametrize("which", ["file", "directory", "directory above"])
def test_what_another_user_owns_is_told_and_not_used(which, tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "above" / "cache"))
    build(0)
    path = {"file": store_path(), "directory": store_path().parent, "directory above": tmp_path / "above"}[which]
    os.chown(path, 12345, -1)
    refuse_with(f"{path} belongs to user 12345; expected one that user 0 or root owns")


def test_a_directory_above_that_others_may_write_is_refused_unless_it_is_sticky(tmp_path, monkeypatch):
    above = tmp_path / "above"
    (above / "cache").mkdir(parents=True)
    above.chmod(0o777)
    assert str(above) in distrusted(above / "cache" / "kernels.sqlite")
    above.chmod(0o1777)  # as /tmp: others cannot replace what is there
    assert distrusted(above / "cache" / "kernels.sqlite") is None
    assert str(above) in distrusted(above / "kernels.sqlite")  # but add what SQLite looks for beside it


def test_the_way_of_a_link_is_looked_at_too(tmp_path):
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "link").symlink_to("open/cache")
    assert distrusted(tmp_path / "link" / "kernels.sqlite") is None
    (tmp_path / "open").chmod(0o777)
    assert str(tmp_path / "open") in distrusted(tmp_path / "link" / "kernels.sqlite")


def test_a_store_behind_a_link_is_used(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "link" / "deeper"))
    assert build(0).candidates == build(0).candidates
    assert (tmp_path / "real" / "deeper" / "kernels.sqlite").exists()


@pytest.mark.parametrize("target", ["elsewhere", "kernels.sqlite", "/tmp/rollergen-not-there/x"])
def test_a_link_to_nothing_is_not_followed(target, tmp_path):
    store_path().parent.mkdir()
    store_path().symlink_to(target)
    refuse_with("symbolic link")
    assert os.listdir(store_path().parent) == ["kernels.sqlite"] and store_path().is_symlink()


def test_a_new_store_is_private_whatever_the_umask():
    before = os.umask(0)
    try:
        build(0)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (store_path().parent, store_path())}
    assert modes == {store_path().parent.name: 0o700, "kernels.sqlite": 0o600}
    others = {one for one in store_path().parent.iterdir() if not one.name.startswith("kernels.sqlite")}
    assert {one.name for one in others} <= {"emitted.json", "modules.json"}
    assert {stat.S_IMODE(one.stat().st_mode) for one in others} == {0o600}


def test_kept_figures_that_others_could_have_written_are_not_believed(tmp_path):
    path = tmp_path / "cache" / "host.json"
    path.parent.mkdir()
    path.write_text('{"key": {}}')
    path.chmod(0o600)
    assert read_kept(path) == {"key": {}}
    path.parent.chmod(0o777)
    assert read_kept(path) == {}


def edited(change):
    """The one kernel's row and its chosen source changed by `change`, and every hash computed anew."""
    with closing(sqlite3.connect(store_path())) as connection:
        row = dict(zip(COLUMNS, connection.execute(f"SELECT {', '.join(COLUMNS)} FROM kernels").fetchone(), strict=True))
        candidates = json.loads(row["candidates"])
        source = candidates[row["chosen"]]["source"]
        (text,) = connection.execute("SELECT text FROM sources WHERE hash = ?", (source,)).fetchone()
        text = change(row, candidates, text)
        candidates[row["chosen"]]["source"] = sha256(text)
        connection.execute("INSERT OR REPLACE INTO sources VALUES (?, 'cuda', ?)", (sha256(text), text))
        row["candidates"] = json.dumps(candidates)
        columns = ", ".join(f"{name} = ?" for name in COLUMNS)
        values = [row[name] for name in COLUMNS]
        connection.execute(f"UPDATE kernels SET {columns}, hash = ?", (*values, row_hash(values)))
        connection.commit()


def _other_columns(row, candidates, text):
    row["options"] = row["options"].replace("false", "true")
    return text


EDITS = {
    "source": lambda row, candidates, text: text.replace("0.0f", "1.0f"),
    "launches": lambda row, candidates, text: (candidates[row["chosen"]]["launches"][0].update(blocks=7), text)[1],
    "language": lambda row, candidates, text: (candidates[row["chosen"]].update(language="opencl"), text)[1],
    "chosen": lambda row, candidates, text: (row.update(chosen=-1), text)[1],
    "columns": _other_columns,
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_row_is_found_by_verify_and_replaced_by_the_next_build(edit):
    first = build(0)
    edited(EDITS[edit])
    assert admin.verify(store_path()).problems
    with pytest.warns(CacheWarning, match="this kernel is built and stored anew"):
        assert build(0).source == first.source
    assert not [text for text in admin.verify(store_path()).problems if text.startswith("kernels")]
    assert build(0).candidates == first.candidates


@pytest.mark.parametrize("statement", ["UPDATE devices SET spec = '{}'", "DELETE FROM devices",
                                       "UPDATE expressions SET expression = '{}'", "DELETE FROM expressions"])  # fmt: skip
def test_damaged_rows_beside_a_kernel_are_replaced_by_its_next_build(statement):
    build(0)
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.warns(CacheWarning, match="this kernel is built and stored anew"):
        build(0)
    assert admin.verify(store_path()).problems == ()


def test_records_of_a_store_that_others_own_can_be_merged(tmp_path):
    from rollergen.store.collection import stored

    build(0)
    store_path().chmod(0o666)
    assert stored(store_path(), own=False).records == ()
    assert Path(store_path()).exists()
