"""Of candidates that took about as long alone, the one is taken that is quicker within calls of the model."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.build import terms_of
from rollergen.construct.options import BuildOptions
from rollergen.importers.graph import Network
from rollergen.network.choosing import MOST, NEAR, ROUNDS, _taking, chosen, chosen_in_calls, rivals_of
from rollergen.network.partition import Step
from rollergen.targets import resolve

torch = pytest.importorskip("torch")
from rollergen.importers.torch_models import exported, imported  # noqa: E402


class Timed:
    """A kernel as choosing sees it: seconds of its candidates alone, None where one was not timed."""

    def __init__(self, *alone, place=0, note=""):
        self.alone, self.place, self.note = alone, place, note
        self.outcomes = tuple(Outcome(seconds) for seconds in alone)
        self.measured_time = alone[place]

    def taking(self, one, note=""):
        return Timed(*self.alone, place=self.outcomes.index(one), note=note)


class Outcome:
    def __init__(self, wall_s):
        self.wall_s = wall_s


def take(kernels, within, right=lambda kernel, one: True, noise=lambda number: 0.0):
    """What is chosen where candidates take, within calls, the seconds that ``within`` says of (kernel, place)."""

    def timed(*models):
        found = []
        for of in models:
            own = [(kernel, within[kernels.index(kernel)][of[kernel].place]) for kernel in kernels]
            found.append({kernel: [seconds * (1 + noise(n)) for n in range(ROUNDS)] for kernel, seconds in own})
        return found

    return chosen(kernels, lambda kernel, one, note="": kernel.taking(one, note), timed, right)


def test_the_candidate_that_is_quickest_within_calls_is_taken():
    first, second = Timed(1.0, 1.05, 1.02), Timed(2.0, 2.1)
    best = take([first, second], [(3.0, 2.5, 2.8), (2.0, 2.2)])
    assert best[first].place == 1 and best[second] is second
    assert best[first].note == "taken for 2.5 s within calls, beside 2.8 s of candidate 3"


def test_candidates_that_were_far_slower_alone_are_not_timed_again():
    one = Timed(1.0, 1.01 * NEAR, None, *(1.0 + n / 100 for n in range(1, 7)))
    found = rivals_of(one)
    assert [outcome.wall_s for outcome in found] == [1.01, 1.02, 1.03] and len(found) == MOST
    assert rivals_of(Timed(None, None)) == []


def test_a_quicker_candidate_that_the_gate_refuses_is_not_taken():
    one = Timed(1.0, 1.05, 1.1)
    best = take([one], [(3.0, 2.5, 2.8)], right=lambda kernel, outcome: outcome.wall_s != 1.05)
    assert best[one].place == 2


def test_what_is_quicker_in_every_other_round_is_not_taken():
    one = Timed(1.0, 1.0)
    rounds = iter(range(10**6))
    best = take([one], [(3.0, 3.0)], noise=lambda n: (next(rounds) * 7 % 5 - 2) / 100)
    assert best[one] is one


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(96, 128), torch.nn.Linear(128, 48)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@pytest.mark.in_place
def test_a_model_with_other_candidates_is_right_and_is_found_again(monkeypatch):
    """Each kernel's last candidate is made the quickest within calls."""
    module, x = Two().eval(), torch.randn(32, 96)
    looked: list[Network] = []

    def last(kernels, taking, timed, right):
        looked.append(kernels)
        others = [next((one for one in reversed(k.outcomes) if one.wall_s and one is not k._chosen), None) for k in kernels]
        made = {k: taking(k, one, "as asked") for k, one in zip(kernels, others, strict=True) if one and right(k, one)}
        now, then = timed(dict(zip(kernels, kernels, strict=True)), made)
        assert {len(seconds) for times in (now, then) for seconds in times.values()} == {ROUNDS}
        return made

    monkeypatch.setattr("rollergen.network.choosing.chosen", last)
    monkeypatch.setattr("rollergen.network.choosing.SECONDS", float("inf"))  # all rounds, however slow this machine
    network = imported(exported(module, (x,)), "Two")
    for _ in range(2):  # compiled, then found
        model = rg.compile(network, None, "cpu", profile=True)
        assert len(looked) == 1
        assert all(kernel._chosen.note == "as asked" and kernel.place for kernel in model.kernels)
        np.testing.assert_allclose(np.asarray(model(x)), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)
        assert sum(one.compared for one in model.check(x)) > 100
        assert model.kernels[0].explain()


class Reversed(torch.nn.Module):
    """Reads rows from the last one back, which none of number 0 is."""

    def __init__(self):
        super().__init__()
        self.rows, self.linear = torch.nn.Embedding(50, 64), torch.nn.Linear(64, 48)

    def forward(self, ids):
        return self.linear(self.rows(50 - ids))


@pytest.mark.in_place
def test_a_model_that_refuses_invented_ids_is_compiled_as_it_was_built(monkeypatch):
    module, ids = Reversed().eval(), torch.randint(1, 51, (2, 16))
    tried = []

    def refused(kernels, taking, timed, right):
        tried.append(kernels)
        timed(dict(zip(kernels, kernels, strict=True)))
        pytest.fail("row 50 of 50 was read")

    monkeypatch.setattr("rollergen.network.choosing.chosen", refused)
    model = rg.compile(imported(exported(module, (ids,)), "Reversed"), None, "cpu", profile=True, top_k=1)
    assert tried == [list(model.kernels)]
    np.testing.assert_allclose(np.asarray(model(ids)), module(ids).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_candidate_that_is_taken_keeps_what_was_said_of_its_clock():
    expression = rg.einsum("mk,kn->mn", rg.tensor("A", (16, 16)), rg.tensor("B", (16, 16)))
    terms = terms_of(resolve("v100"), 2, False, BuildOptions())
    kernel = rg.build(expression, "v100", profile=False, top_k=2)
    found = replace(kernel.outcomes[1], note="clock 3000 MHz before and 2100 MHz after")
    built = terms.kernel((kernel.outcomes[0], found), kernel.outcomes[0], kernel.cuts, lambda: None)
    taken = _taking(built, found, "taken", Step((), (), ()), terms)
    assert taken.outcomes[taken.place].note == "clock 3000 MHz before and 2100 MHz after; taken"


@pytest.mark.parametrize(
    "device, kernel",
    [("cpu", None), ("v100", Timed(0.1, 0.1)), ("cpu", Timed(1.1, 1.1))],
    ids=["run by a library", "on a GPU", "long"],
)
def test_models_keep_what_was_built(monkeypatch, device, kernel):
    monkeypatch.setattr("rollergen.network.choosing.chosen", lambda *_: pytest.fail("candidates were timed"))
    network = imported(exported(Two().eval(), (torch.randn(32, 96),)), "Two")
    made = [("a step", kernel)]
    assert chosen_in_calls(network, made, terms_of(resolve(device), None, False, BuildOptions())) is made
