"""Files are written whole or not at all, and of what a write that failed began nothing is left."""

import errno
import os
import stat

import pytest

from rollergen.hal.files.kept import keep, read_kept, write_kept, write_whole


def test_a_file_takes_the_mode_that_the_umask_leaves_unless_it_is_private(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "shown", b"1")
        write_whole(tmp_path / "private", b"1", mode=0o600)
    finally:
        os.umask(before)
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {
        "shown": 0o640, "private": 0o600,
    }  # fmt: skip


@pytest.mark.parametrize("failing", ["os.replace", "json.dumps"])
def test_where_a_write_fails_the_file_is_what_it_was_and_nothing_lies_beside_it(tmp_path, monkeypatch, failing):
    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "kept.json"
    write_kept(path, {"a": 1})
    with monkeypatch.context() as disk:
        disk.setattr(failing, full)
        write_kept(path, {"a": 2})
    assert read_kept(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_cannot_be_made_or_written_to_costs_nothing_but_what_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    write_kept(tmp_path / "file" / "kept.json", {"a": 1})
    with pytest.raises(OSError):
        write_whole(tmp_path / "absent" / "kept.json", b"")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_of_many_values_the_latest_are_kept(tmp_path):
    path = tmp_path / "kept.json"
    for name in "abcb":
        keep(path, name, name.upper(), most=2)
    assert read_kept(path) == {"c": "C", "b": "B"}
    keep(path, "c", None, most=2)
    assert read_kept(path) == {"b": "B"}
