"""Where nothing is measured, the chosen program alone is written: the others when somebody asks for them."""

import importlib

import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.emit import emit
from rollergen.measure.candidates import proposed

WRITING = importlib.import_module("rollergen.measure.profiler")


def product(name="x"):
    return rg.ops.matmul(rg.tensor(name, (64, 48)), rg.tensor("w", (48, 32)))


@pytest.fixture
def emitted(monkeypatch):
    """The programs written so far."""
    programs, right = [], WRITING.emit_all
    monkeypatch.setattr(WRITING, "emit_all", lambda some, *given: programs.extend(some) or right(some, *given))
    return programs


def test_the_chosen_program_alone_is_written_until_the_candidates_are_asked_for(emitted):
    kernel = rg.build(product(), "v100", profile=False, cache=False, top_k=4)
    assert emitted == [kernel.program] and kernel.explain() and len(emitted) == 1
    assert len(kernel.candidates) == len(emitted) == 4
    assert all(one.source == emit(one.program, kernel.device) for one in kernel.candidates)
    assert kernel.candidates[kernel.place].program is kernel.program


def test_what_is_left_unwritten_is_what_would_have_been_proposed():
    device, options = rg.load_device("v100"), BuildOptions()
    drafts = lambda wanted: importlib.import_module("rollergen.construct.choose").construct(
        planned(product(), device, options), device, options, wanted
    )
    kernel = rg.build(product(), device, profile=False, cache=False, top_k=4)
    assert kernel.candidates == proposed(drafts, 4, device, options)


def test_the_store_keeps_what_is_unwritten_so_and_gives_it_under_other_names(emitted):
    first = rg.build(product(), "v100", profile=False, top_k=3)
    found, other = rg.build(product(), "v100", profile=False, top_k=3), rg.build(product("y"), "v100", profile=False, top_k=3)
    assert len(emitted) == 1 and [one.unwritten for one in found.outcomes] == [False, True, True]
    assert found.candidates == first.candidates and found.source == first.source
    assert other.candidates == rg.build(product("y"), "v100", profile=False, cache=False, top_k=3).candidates


def test_one_that_cannot_be_written_later_says_why_and_the_kernel_is_saved_all_the_same(monkeypatch, drops_allowed, tmp_path):
    kernel, right = rg.build(product(), "v100", profile=False, cache=False, top_k=3), WRITING.emit_all
    second = kernel.outcomes[1].program

    def failing(programs, *given):
        if second in programs:
            raise KeyError("mask8")
        return right(programs, *given)

    monkeypatch.setattr(WRITING, "emit_all", failing)
    assert [one.problems for one in kernel.candidates] == [(), ("KeyError: 'mask8'",), ()]
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert loaded.candidates[1].problems == ("KeyError: 'mask8'",) and loaded.source == kernel.source
