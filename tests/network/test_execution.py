"""Calls of a model on the CPU: steps that are nothing but machine code run as one job, and find what those before made."""

import numpy as np
import pytest

import rollergen as rg

torch = pytest.importorskip("torch")
pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
nn = torch.nn


class SortedBetween(nn.Module):
    """Two layers, a step of the host, as a sort has no counterpart in rg.ops, and two layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((6, 40), (40, 9), (9, 33), (33, 5)))

    def forward(self, x):
        first, second, third, last = self.layers
        x = torch.sort(second(first(x)))[0]
        return last(third(x)).softmax(-1)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(7, 13, 2)

    def forward(self, x):
        return self.lstm(x)[0]


MODELS = {"host step between": (SortedBetween, (3, 6), 3), "recurrence": (Cells, (9, 1, 7), 1)}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """(model, compiled, how many jobs its calls are)."""
    made, shape, jobs = MODELS[request.param]
    torch.manual_seed(0)
    module = made().eval()
    with torch.no_grad():
        compiled = rg.compile(module, (torch.randn(shape),), device="cpu", profile=False)
        compiled(torch.randn(shape))  # what is called without a queue is there once it has run through it
    if not compiled._execution._groups:
        pytest.skip("launches go through PoCL's queue on this machine")
    return module, compiled, shape, jobs


def test_neighbouring_launches_are_one_job(case):
    _, compiled, _, jobs = case
    assert len(compiled._execution._jobs) == jobs < len(compiled.steps)


def test_a_call_gives_what_its_steps_give_one_by_one(case):
    module, compiled, shape, _ = case
    for _ in range(3):
        x = torch.randn(shape)
        with torch.no_grad():
            got, want = compiled(x).numpy(), module(x).numpy()
        *_, (_, (last, *_)) = compiled._execution.traced([x.numpy()])
        np.testing.assert_array_equal(got, last)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_jobs_find_the_arguments_of_each_call(case):
    _, compiled, shape, _ = case
    first, second = torch.randn(shape), torch.randn(shape)
    made = compiled(first)
    assert not torch.equal(made, compiled(second)) and torch.equal(made, compiled(first))
