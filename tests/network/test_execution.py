"""Calls of a model on the CPU: steps that are nothing but machine code run as one job, and find what those before made."""

import time
from itertools import count
from types import SimpleNamespace

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
    """Rows of 16 units end with a line of the cache, so that each step's can be written where all are joined."""

    def __init__(self, units=16):
        super().__init__()
        self.lstm = nn.LSTM(7, units, 2)

    def forward(self, x):
        return self.lstm(x)[0]


class Branches(nn.Module):
    """Joins channels that one more layer reads, and a join of these."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 16, size, padding=size // 2) for size in (1, 3, 5))
        self.last = nn.Conv2d(48, 16, 1)

    def forward(self, x):
        parts = [torch.relu(layer(x)) for layer in self.layers]
        whole = torch.cat(parts, 1)
        return torch.cat([whole, self.last(whole), parts[0]], 1)


MODELS = {
    "host step between": (SortedBetween, (3, 6), 3),
    "recurrence": (Cells, (9, 1, 7), 1),
    "recurrence of 13 units": (lambda: Cells(13), (9, 1, 7), 1),
    "branches": (Branches, (1, 3, 8, 8), 1),
}


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


def test_steps_are_timed_within_the_jobs_of_a_call(case, monkeypatch):
    _, compiled, shape, _ = case
    execution, x = compiled._execution, torch.randn(shape)
    want = compiled(x).numpy()
    refused = {run: lambda: pytest.fail("a launch by itself") for run in execution._groups}
    monkeypatch.setattr(execution, "_runs", [refused.get(run, run) for run in execution._runs])
    monkeypatch.setattr(execution, "_groups", {refused[run]: groups for run, groups in execution._groups.items()})
    results, made = [], execution._results
    monkeypatch.setattr(execution, "_results", lambda: results.append(made()))
    start = time.perf_counter()
    seconds = execution.timed([x.numpy()])()
    assert sum(seconds) <= time.perf_counter() - start
    assert [one > 0 for one in seconds] == [execution._groups.get(run) != () for run in execution._runs]
    np.testing.assert_array_equal(results[0][0], want)


def test_what_a_benchmark_finds_beside_the_steps_is_the_rest_of_the_same_call(case, monkeypatch):
    """A second passes from one reading of the clock to the next, of which each step takes a 256th."""
    _, compiled, shape, _ = case
    steps, readings = [1 / 256] * len(compiled.layers), count()
    monkeypatch.setattr("rollergen.network.model.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    monkeypatch.setattr(compiled._execution, "timed", lambda given: lambda: steps)
    timing = compiled.benchmark(torch.randn(shape), rounds=2)
    assert (timing.wall_s, timing.beside_s, list(timing.steps_s)) == (1.0, 1 - sum(steps), steps)


class SortedAndReturned(nn.Module):
    """Returns what a step of the host makes and launches read."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 9), nn.Linear(9, 5)

    def forward(self, x):
        x = torch.sort(self.first(x))[0]
        return x, self.last(x)


def test_what_a_step_of_the_host_makes_is_a_result_that_launches_read():
    torch.manual_seed(0)
    module = SortedAndReturned().eval()
    compiled = rg.compile(module, (torch.randn(3, 6),), device="cpu", profile=False)
    for _ in range(2):
        x = torch.randn(3, 6)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-6)


def odd_arrays(x):
    """Arrays with the same elements: in other orders in memory, read-only, and not where their elements belong."""
    yield x
    yield x[::-1].copy()[::-1]
    yield np.asfortranarray(x)
    yield np.repeat(x, 2, axis=-1)[..., ::2]
    frozen = x.copy()
    frozen.flags.writeable = False
    yield frozen
    misplaced = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    misplaced[...] = x
    yield misplaced


def test_inputs_are_read_however_they_lie_and_results_stay_as_they_were(case):
    _, compiled, shape, _ = case
    kept = []
    for _ in range(2):
        x = np.random.default_rng(len(kept)).standard_normal(shape).astype(np.float32)
        want = compiled(x.copy()).copy()
        for array in odd_arrays(x):
            kept.append((compiled(array), want))
            np.testing.assert_array_equal(array, x)
    for made, want in kept:
        np.testing.assert_array_equal(made, want)


JOINED = {"host step between": 0, "recurrence": 2, "recurrence of 13 units": 0}
"""Joins whose parts are written in place."""


@pytest.mark.parametrize("case", JOINED, indirect=True)
def test_parts_of_a_join_lie_where_it_has_them(case, request):
    _, compiled, _, _ = case
    execution = compiled._execution
    assert len(execution._left_out) == JOINED[request.node.callspec.params["case"]]
    for number in execution._left_out:
        step = compiled.steps[number]
        cells = [name for name in step.inputs if name not in compiled._network.constants]
        starts = [execution._arrays[name].ctypes.data for name in cells]
        assert len(cells) == 9 and np.ptp(np.diff(starts)) == 0 and starts[1] - starts[0] == 16 * 4


def test_every_other_step_walks_the_same_weight_backwards(case):
    module, compiled, _, _ = case
    execution = compiled._execution
    walks = {}
    for step, run in zip(compiled.steps, execution._runs, strict=True):
        weights = [name for name in step.inputs if compiled._network.constants.get(name, np.ones(0)).ndim > 1]
        for one in execution._groups.get(run, ()):
            walks.setdefault((one.function, *weights), []).append(one.backwards)
    for (_, *weights), backwards in walks.items():
        assert backwards == [bool(weights) and number % 2 == 1 for number in range(len(backwards))]
    repeats = max(len(backwards) for (_, *weights), backwards in walks.items() if weights)
    assert repeats == (8 if isinstance(module, Cells) else 1)  # of 9 steps, the first knows no state


def test_every_layer_is_right_where_joins_are_not_launched(case):
    _, compiled, shape, _ = case
    assert all(not one.problem for one in compiled.check(torch.randn(shape)))


def test_jobs_find_the_arguments_of_each_call(case):
    _, compiled, shape, _ = case
    first, second = torch.randn(shape), torch.randn(shape)
    made = compiled(first)
    assert not torch.equal(made, compiled(second)) and torch.equal(made, compiled(first))
