"""Wherever one candidate fails between the expression and the measured kernel, a build goes on without it and says so."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.copies import copy_stage
from rollergen.construct.space import Space
from rollergen.dropped import collected_drops, every_drop_raises
from rollergen.errors import CheckFailedError, DropWarning, ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.rprogram import GRID, RProgram
from rollergen.store.cache import forget_failures
from rollergen.verify.collect import programs_of
from rollergen.verify.judge import Verified

T = rg.tensor
MASK8 = KeyError("mask8")


def channels_last(x, w):
    image = rg.ops.permute(x, (0, 3, 1, 2))
    return rg.ops.permute(rg.ops.conv2d(image, w, padding=1), (0, 2, 3, 1))


EXPRESSIONS = {
    "elementwise": lambda: rg.ops.add(T("x", (48, 64)), rg.ops.t(T("y", (64, 48)))),
    "row": lambda: rg.ops.softmax(T("x", (48, 64))),
    "reduction": lambda: rg.ops.amax(T("x", (48, 64)), 1),
    "contraction": lambda: rg.ops.matmul(T("a", (48, 64)), T("b", (64, 40))),
    "matrix": lambda: rg.ops.matmul(T("a", (48, 64), "float16"), T("b", (64, 48), "float16")),
    "taps": lambda: channels_last(T("x", (1, 7, 7, 64)), T("w", (64, 64, 3, 3), constant=True)),
    "window": lambda: rg.ops.max_pool2d(T("x", (1, 3, 15, 17)), 3),
}


@pytest.fixture(autouse=True)
def _anew(drops_allowed):
    """Nothing that is kept of other tests, and nothing of these for others."""
    for kept in (choice, copy_stage):
        kept.cache_clear()
    yield
    for kept in (choice, copy_stage):
        kept.cache_clear()


def failing(monkeypatch, place, wrong, error=MASK8):
    """The function at ``module:name`` raises for what is `wrong` among its arguments; returns how often it did."""
    module, _, name = place.partition(":")
    owner = importlib.import_module(f"rollergen.{module}")
    right, raised = getattr(owner, name), []

    def replaced(*given, **named):
        if wrong(*given):
            raised.append(given)
            raise error
        return right(*given, **named)

    monkeypatch.setattr(owner, name, replaced)
    return raised


def every_third():
    """Says of every third call that it is wrong."""
    calls = iter(range(10**9))
    return lambda *given: next(calls) % 3 == 2


def with_extent(number, at=0):
    """Says of stages, of plans and of batches of either that they are wrong where one of their tiles is `number`."""

    def wrong(*given):
        some = given[at] if isinstance(given[at], (list, tuple)) else [given[at]]
        return any(number in np.ravel(size) for one in some for size in sizes(one))

    return wrong


def sizes(one):
    if hasattr(one, "loops"):
        return [loop.extent for loop in one.loops if loop.kind != GRID]
    return [one.rm, one.rn, one.pn]


def built(kind, device="v100", **options):
    return rg.build(EXPRESSIONS[kind](), device, profile=False, cache=False, **options)


def dropped(kernel):
    return [note for note in kernel.explain(as_dict=True)["construction"] if note.startswith("dropped: ")]


ASSEMBLED = [
    ("elementwise", "cpu", "construct.elementwise:elementwise_stage"),
    ("row", "cpu", "construct.reductions:row_stage"),
    ("reduction", "cpu", "construct.reductions:reduction_stage"),
    ("contraction", "v100", "construct.priced:contraction_stage"),
    ("contraction", "cpu", "construct.serial_structures:contraction_stage"),
    ("contraction", "cpu", "construct.serial_structures:pack_operand"),
    ("matrix", "v100", "construct.matrix_space:matrix_stage"),
    ("window", "v100", "construct.window_space:window_stage"),
    ("contraction", "ipu", "bsp.programs:_option"),
]


@pytest.mark.parametrize(("kind", "device", "place"), ASSEMBLED)
def test_a_tile_that_cannot_be_assembled_is_dropped_and_named(kind, device, place, monkeypatch):
    raised = failing(monkeypatch, place, every_third())
    kernel = built(kind, device)
    assert raised and "KeyError: 'mask8'" in dropped(kernel)[0]
    assert "dropped: " in kernel.explain()


AVX512 = str(Path(__file__).parents[2] / "benches" / "devices" / "cpu_avx512_2mb.json")
"""On others the extent is that of every vector."""

PRICED = [
    ("elementwise", "v100", "construct.elementwise:price_batches", 16),
    ("elementwise", AVX512, "construct.elementwise:price_batches", 8),
    ("row", AVX512, "construct.candidate:price_stages", 8),
    ("contraction", "v100", "construct.priced:price_batch", 16),
    ("contraction", AVX512, "construct.serial_space:price_batch", 2),
    ("contraction", AVX512, "construct.serial_space:least_seconds", 2),
    ("contraction", AVX512, "construct.copies:price_stages", 4),
    ("matrix", "v100", "construct.matrix_space:price_batch", 2),
    ("window", "v100", "construct.window_space:price_batch", 4),
]


@pytest.mark.parametrize(("kind", "device", "place", "extent"), PRICED)
def test_a_tile_that_has_no_price_does_not_take_its_batch_along(kind, device, place, extent, monkeypatch):
    raised = failing(monkeypatch, place, with_extent(extent), ValueError("The truth value of an array"))
    kernel = built(kind, device)
    assert raised and "ValueError: The truth value" in dropped(kernel)[0]
    assert len(kernel.candidates) > 1


def test_programs_stand_of_which_none_can_be_made_to_ask_ahead(monkeypatch):
    before = built("contraction", AVX512)
    choice.cache_clear()
    raised = failing(monkeypatch, "construct.prefetching:next_panel_prefetched", lambda *given: True)
    kernel = built("contraction", AVX512)
    assert raised and "prefetched: KeyError: 'mask8'" in dropped(kernel)[0]
    assert kernel.program == before.program


def test_a_convolution_by_its_taps_that_cannot_ask_for_the_next_panel_leaves_the_others(monkeypatch):
    calls = failing(monkeypatch, "construct.prefetching:next_panel_prefetched", has_taps_and(every_third()))
    kernel = built("taps", AVX512, options=rg.BuildOptions(winograd=0))
    assert calls and any("next panel prefetched: KeyError: 'mask8'" in note for note in dropped(kernel))
    assert any(len(stage.op.of_role("reduce")) > 1 and stage.prefetch >= 0 for stage in kernel.program.stages)


def has_taps_and(wrong):
    return lambda stage, axis: len(stage.op.of_role("reduce")) > 1 and wrong()


def test_a_batch_of_plans_one_of_which_cannot_be_assembled_is_priced_without_it(monkeypatch):
    failing(monkeypatch, "construct.priced:contraction_stage", with_extent(8, at=2))
    kernel = built("contraction")
    assert len(kernel.candidates) > 1
    assert "ContractionPlan: rm " in dropped(kernel)[0] and "KeyError: 'mask8'" in dropped(kernel)[0]


@pytest.mark.parametrize("place", ["variants", "serial_candidates", "matrix_candidates"])
def test_a_space_that_fails_leaves_the_others(place, monkeypatch):
    """The product of a vector has programs of reductions, too."""
    failing(monkeypatch, f"construct.choose:{place}", lambda *given: True)
    expr = rg.ops.matmul(T("a", (48, 256)), T("b", (256, 1)))
    assert dropped(rg.build(expr, "cpu", profile=False, cache=False))


def first_of(programs):
    """Says of the program that ranks first that it is wrong, alone or among others."""
    text = repr(programs[0].stages[-1].loops)
    same = lambda one: repr((one if isinstance(one, RProgram) else one.program).stages[-1].loops) == text
    return lambda some, *rest: any(map(same, some))


@pytest.mark.parametrize("device", ["v100", "cpu", "ipu"])
def test_programs_that_break_an_invariant_are_replaced_by_the_next_best(device, monkeypatch):
    before = built("contraction", device, top_k=4)
    wrong = first_of([one.program for one in before.candidates])
    failing(monkeypatch, "construct.choose:check_each", wrong, ProgramError("padding is 16; expected a multiple of 32"))
    kernel = built("contraction", device, top_k=4)
    assert len(kernel.candidates) == 4 and not wrong([kernel.program])
    assert "ProgramError: padding is 16; expected a multiple of 32" in dropped(kernel)[0]


@pytest.mark.parametrize("device", ["v100", "cpu"])
def test_programs_that_cannot_be_written_fail_by_name_and_are_replaced_by_the_next_best(device, monkeypatch):
    before = built("contraction", device, top_k=4)
    wrong = first_of([one.program for one in before.candidates])
    failing(monkeypatch, "measure.profiler:emit_all", wrong)
    kernel = built("contraction", device, top_k=4)
    failed = [one for one in kernel.candidates if one.problems]
    assert failed and failed[0].problems == ("KeyError: 'mask8'",) and kernel.candidates[0] in failed
    assert sum(not one.problems for one in kernel.candidates) == 4
    assert kernel.program is kernel.candidates[len(failed)].program and kernel.source
    assert "failed: candidate 1, tile " in kernel.explain()
    with pytest.raises(rg.errors.ArgumentError, match=r"candidate is 0, which has no source: KeyError: 'mask8'"):
        kernel.save("nowhere", candidate=0)


def test_a_kernel_found_in_the_store_tells_of_what_was_dropped(monkeypatch):
    failing(monkeypatch, "construct.reductions:row_stage", lambda op, plan, *given: plan.threads == 16)
    programs = [one.program for one in built("row").candidates]
    failing(monkeypatch, "measure.profiler:emit_all", first_of(programs))
    forget_failures()
    first, again = (rg.build(EXPRESSIONS["row"](), "v100", profile=False) for _ in range(2))
    assert again.program == first.program and json.loads(json.dumps(again.explain(as_dict=True)["construction"]))
    assert dropped(again) and "failed: candidate 1" in again.explain()


def test_where_no_candidate_stands_the_error_names_the_first_and_counts_the_others(monkeypatch):
    failing(monkeypatch, "construct.reductions:row_stage", lambda *given: True)
    with pytest.raises(ProgramError, match=r"v100: out \(48, 64\): no candidate stands: .*KeyError: 'mask8'; \d+ others"):
        built("row")


def test_where_no_source_can_be_written_the_error_names_the_first(monkeypatch):
    failing(monkeypatch, "measure.profiler:emit_all", lambda *given: True)
    with pytest.raises(ProgramError, match=r"v100: no candidate stands: candidate 1: KeyError: 'mask8'; \d+ others"):
        built("row")


def test_a_source_that_the_compiler_refuses_ends_no_build(monkeypatch):
    """The first candidate of all is refused by an error that is none of rollergen's own."""
    calls = iter(range(10**9))
    failing(monkeypatch, "runtime.executor:check_launches", lambda *given: next(calls) == 0, RuntimeError("clBuildProgram"))
    kernel = rg.build(EXPRESSIONS["row"](), "cpu", cache=False, top_k=2)
    assert [one.state for one in kernel.candidates] == ["failed", "passed"]
    assert "RuntimeError: clBuildProgram" in kernel.explain()
    x = np.ones((48, 64), np.float32)
    assert np.allclose(kernel(x), 1 / 64)


def test_a_build_in_tests_fails_where_a_measured_candidate_does(monkeypatch):
    calls = iter(range(10**9))
    failing(monkeypatch, "runtime.executor:check_launches", lambda *given: next(calls) == 0, RuntimeError("clBuildProgram"))
    with every_drop_raises(), pytest.raises(CheckFailedError, match="RuntimeError: clBuildProgram"):
        rg.build(EXPRESSIONS["row"](), "cpu", cache=False, top_k=2)


def test_researchers_are_warned_of_what_is_dropped(monkeypatch):
    failing(monkeypatch, "construct.serial_structures:contraction_stage", every_third())
    with pytest.warns(DropWarning, match=r"\d+ candidates? dropped: .*KeyError: 'mask8'; the others stand"):
        assert len(rg.construct(EXPRESSIONS["contraction"](), "cpu", 3)) == 3


def test_samples_of_a_space_are_as_many_without_those_that_fail(monkeypatch):
    space = rg.space(EXPRESSIONS["contraction"](), "cpu")
    failing(monkeypatch, "construct.serial_structures:contraction_stage", every_third())
    with pytest.warns(DropWarning, match="point "):
        assert len(set(space.sample(9))) == 9


def test_a_space_is_walked_through_whole_without_those_that_fail():
    made = ["first", None, "third"]

    def at(number):
        if made[number] is None:
            raise ProgramError("fails")
        return made[number]

    space = Space(3, at)
    assert len(space) == 3
    with pytest.warns(DropWarning, match="1 candidate dropped: point 1"):
        assert list(space) == ["first", "third"]


def test_collected_programs_are_as_many_without_those_that_fail(monkeypatch):
    graph = canonicalize(EXPRESSIONS["contraction"]())
    device = rg.load_device("cpu")
    failing(monkeypatch, "construct.serial_structures:contraction_stage", every_third())
    with pytest.warns(DropWarning):
        assert len(programs_of(graph, device, 12, 4, 0)[0]) == 12


def test_what_cannot_be_written_is_a_failed_outcome_of_a_profile(monkeypatch):
    programs = rg.construct(EXPRESSIONS["row"](), "cpu", 2)
    failing(monkeypatch, "measure.profiler:emit_all", first_of(programs))
    first, second = rg.profile(programs, "cpu")
    assert first.problems == ("KeyError: 'mask8'",) and second.state == "passed"


def test_a_verifier_that_fails_leaves_the_models_order(monkeypatch):
    class Confused:
        identity = "confused"

        def rerank(self, *given):
            raise ValueError("features")

    expr, device = EXPRESSIONS["row"](), rg.load_device("v100")
    graph = canonicalize(expr)
    judge = Verified(Confused())
    with collected_drops() as drops:
        ranked = judge.programs(graph, device, rg.BuildOptions(), 3)
        notes = judge.notes(graph, device, rg.BuildOptions(), 3)
    assert [one.program for one in ranked] == [one.program for one in construct(graph, device, top_k=3)]
    assert drops[0].text.endswith("programs: ValueError: features") and "the model's order stands: it failed" in notes[0]
