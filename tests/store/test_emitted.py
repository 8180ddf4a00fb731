"""A kernel that is known to be emitted as its text stands is found without what emits; any other is emitted."""

from types import SimpleNamespace

import pytest

from rollergen.emit import writing
from rollergen.store import cache, emitted
from rollergen.store.location import store_path
from tests.store.builders import build


@pytest.fixture
def emissions(monkeypatch):
    """Programs that were emitted, in a process that has read nothing."""
    found, whole = [], writing.emit
    monkeypatch.setattr(writing, "emit", lambda program, device: (found.append(program), whole(program, device))[1])
    return found


def built(emissions):
    cache._READ.clear()
    emissions.clear()
    kernel = build(0)
    return kernel, len(emissions)


def test_what_was_built_here_is_found_without_emitting(emissions):
    first, _ = built(emissions)
    second, count = built(emissions)
    assert second.source == first.source and count == 0


def test_without_a_note_it_is_emitted_once_and_noted(emissions):
    first, _ = built(emissions)
    store_path().with_name("emitted.json").unlink()
    assert [built(emissions)[1] for _ in range(2)] == [1, 0]
    assert built(emissions)[0].source == first.source


def test_a_note_of_another_numpy_does_not_count(emissions, monkeypatch, tmp_path):
    built(emissions)
    another = tmp_path / "__init__.py"
    another.touch()
    monkeypatch.setattr(emitted, "find_spec", lambda name: SimpleNamespace(origin=str(another)))
    assert [built(emissions)[1] for _ in range(2)] == [1, 0]
    another.write_text("installed anew")
    assert built(emissions)[1] == 1


def test_what_another_packages_language_printed_is_emitted_each_time(emissions, monkeypatch):
    monkeypatch.setattr("rollergen.store.entries.BUILT_IN", {"opencl": ""})
    assert [built(emissions)[1] for _ in range(3)][1:] == [1, 1]


@pytest.mark.parametrize("content", ["", "[]", '{"emitted": 3}', "{"])
def test_damaged_notes_say_nothing_and_are_replaced(emissions, content):
    built(emissions)
    store_path().with_name("emitted.json").write_text(content)
    assert [built(emissions)[1] for _ in range(2)] == [1, 0]


def test_the_latest_notes_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(emitted, "_MOST", 3)
    store = tmp_path / "kernels.sqlite"
    for row in "abcde":
        emitted.note(store, row)
    assert [emitted.is_known(store, row) for row in "abcde"] == [False, False, True, True, True]
