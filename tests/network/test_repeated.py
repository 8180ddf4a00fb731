"""Steps that read the same weights again and again are built in several blocks, so that they can be walked backwards."""

import pytest

import rollergen as rg
from rollergen.construct.choose import limited
from rollergen.construct.options import RANKED
from rollergen.network.partition import steps_of
from rollergen.network.repeated import BLOCKS, SLOWER, in_blocks, repeated
from rollergen.targets import resolve

torch = pytest.importorskip("torch")
from rollergen.importers.torch_models import exported, imported  # noqa: E402

STEPS = 9
"""All but the first are one expression."""


class Cells(torch.nn.Module):
    def __init__(self, units):
        super().__init__()
        self.lstm = torch.nn.LSTM(units, units)

    def forward(self, x):
        return self.lstm(x)[0]


def network(units):
    with torch.no_grad():
        return imported(exported(Cells(units).eval(), (torch.zeros(STEPS, 1, units),)), "cells")


@pytest.fixture(scope="module")
def cpu():
    """One core of it."""
    return limited(resolve("cpu"), rg.BuildOptions(max_units=1))


@pytest.mark.parametrize("units, found", [(256, True), (64, False)], ids=["1 MiB", "64 KiB"])
def test_weights_count_that_several_steps_read_and_that_fill_half_of_the_second_cache(cpu, units, found):
    one = network(units)
    made = steps_of(one)
    again = {step.alike for step in made if step.alike in repeated(one, made, cpu)}
    assert len(again) == found
    assert not repeated(one, made, resolve("v100"))  # its blocks are dealt by the device


@pytest.mark.parametrize("others, found", [(0, True), (1, False)], ids=["alone", "another weight between"])
def test_weights_do_not_count_that_others_have_driven_out(cpu, others, found):
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(1 + others))

        def forward(self, x):
            for _ in range(4):
                for layer in self.layers:
                    x = layer(x)
            return x

    with torch.no_grad():
        one = imported(exported(Shared().eval(), (torch.zeros(1, 512),)), "shared")
    assert bool(repeated(one, steps_of(one), cpu)) == found


def test_programs_of_several_blocks_come_first_unless_the_user_ranks(cpu):
    one = network(256)
    made = steps_of(one)
    again = repeated(one, made, cpu)
    expression, _ = next(step for step in made if step.alike in again).defined()
    settings = in_blocks({"options": rg.BuildOptions(), "top_k": None}, cpu)
    some = rg.construct(expression, cpu, RANKED)
    fine = [p for p in some if p.stages[-1].launched_blocks >= BLOCKS]
    fastest = min(rg.predict(program, cpu).seconds for program in some)
    fine = [p for p in fine if rg.predict(p, cpu).seconds <= SLOWER * fastest]
    assert fine
    (first,) = rg.construct(expression, cpu, settings["top_k"], options=settings["options"])
    assert first in fine
    as_fast = [p for p in fine if rg.predict(p, cpu).seconds <= 1.005 * rg.predict(first, cpu).seconds]
    assert first.stages[-1].launched_blocks == max(p.stages[-1].launched_blocks for p in as_fast)
    own = {"options": rg.BuildOptions(rank=lambda some: [0.0] * len(some)), "top_k": 3}
    assert in_blocks(own, cpu) == own
