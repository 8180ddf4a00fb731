"""Candidates on a GPU are ranked by its own clock: all launches are enqueued while the stream is held.

CuPy is `fake`, whose device computes while the host goes on; `SECONDS` says how long a kernel of some text takes it.
"""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.runtimes.held_stream import LEAST_HOLD_S, MOST_HOLD_S, HeldStream
from rollergen.measure.noise import PAUSES_S, time_calmly
from rollergen.measure.outcome import Outcome
from rollergen.measure.timing import Timed
from rollergen.runtime.cuda_session import HOST_BOUND
from rollergen.runtime.device_session import IN_A_ROW_S, MOST_LAUNCHES
from rollergen.runtime.executor import executor_for
from rollergen.runtime.session import Reading
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy, product  # noqa: F401 (a fixture)
from tests.cuda.test_graphs import built, on_gpu

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
TWO_KERNELS = "a split sum and its second kernel"
EACH_S = 1e-5


def near(seconds):
    """But for the share of two events in one call of a row."""
    return pytest.approx(seconds, rel=0.01)


def session_of(cupy, case):  # noqa: F811
    """A session over arrays of the device, each of whose launches takes the device `EACH_S`."""
    kernel = built(case)
    _, given, out = on_gpu(cupy, kernel)
    program, executor = kernel.program, executor_for(kernel.device)
    session = executor.prepare(kernel.candidates[0].source).session()
    arrays = dict(zip([b.name for b in (*program.inputs, *program.outputs)], (*given, out), strict=True))
    arrays |= {b.name: cupy.empty(b.shape, b.dtype) for b in program.temporaries}
    session.point({name: array.data.ptr for name, array in arrays.items()})
    session.arrays = arrays
    cupy.SECONDS[kernel.source] = EACH_S
    cupy.IDLE.add(kernel.source)
    return session, executor.runtime, len(kernel.launches)


def slowly(monkeypatch, cupy, seconds):  # noqa: F811
    """Every launch takes the host so long."""
    launch = cupy.cuda.driver.launchKernel

    def slow(*arguments):
        cupy.CLOCK.host += seconds
        launch(*arguments)

    monkeypatch.setattr(cupy.cuda.driver, "launchKernel", slow)


@pytest.mark.parametrize(("case", "launches"), [("one kernel", 1), (TWO_KERNELS, 2)])
def test_a_call_takes_what_its_launches_take_the_device(cupy, case, launches, monkeypatch):  # noqa: F811
    session, _, count = session_of(cupy, case)
    assert count == launches
    slowly(monkeypatch, cupy, 3 * EACH_S)  # the host is slower: a second launch is not charged its time
    reading = session.reading(None)
    assert reading == (near(launches * EACH_S), near(launches * EACH_S), "")
    assert session.repeat(300, None) == near(launches * EACH_S) and session.event_seconds() == near(launches * EACH_S)


def test_so_many_calls_in_a_row_that_events_do_not_count(cupy):  # noqa: F811
    session, _, _ = session_of(cupy, "one kernel")
    session.reading(None)
    cupy.LOG.clear()
    session.reading(None)
    names = [what[1] for what in cupy.LOG if what[0] == "launch"]
    in_a_row = names[::-1].index("hold")  # the stream may have been held anew before
    assert in_a_row in (100, 101) and pytest.approx(in_a_row, abs=1) == IN_A_ROW_S / EACH_S < MOST_LAUNCHES


def test_cold_calls_find_the_l2_cache_full_of_something_else(cupy):  # noqa: F811
    session, runtime, _ = session_of(cupy, TWO_KERNELS)
    runtime.held  # noqa: B018 (compiled)
    cupy.LOG.clear()
    reading = session.reading(runtime.flush)
    kinds = [what[1] if what[0] == "launch" else what[0] for what in cupy.LOG if what[0] in ("launch", "fill")]
    assert kinds[:2] == ["fill", "hold"] and len(kinds) == 4  # one call, swept before and not in the time
    assert reading.event_s == near(2 * EACH_S)


def test_the_stream_is_held_longer_where_the_host_is_slow(cupy, monkeypatch):  # noqa: F811
    session, runtime, _ = session_of(cupy, "one kernel")
    slowly(monkeypatch, cupy, 1e-3)
    assert session.reading(None) == (near(EACH_S), near(EACH_S), "")
    assert LEAST_HOLD_S < runtime.held.hold_s <= MOST_HOLD_S * 2


def test_a_time_that_is_the_hosts_all_the_same_says_so(cupy, monkeypatch):  # noqa: F811
    session, _, _ = session_of(cupy, "one kernel")
    slowly(monkeypatch, cupy, 2 * MOST_HOLD_S)
    assert session.reading(None).host_bound == HOST_BOUND


def test_an_idle_stream_is_seen_to_be_the_hosts(cupy):  # noqa: F811
    held = HeldStream(CudaRuntime(), 1e-7)

    def nothing():
        cupy.CLOCK.host += cupy.LAUNCH_S

    took, late = held.once(nothing)
    assert late and took > 0 and held.seconds(nothing) == (near(cupy.EVENT_S), False)


def test_candidates_that_the_host_bound_are_marked():
    class Slow:
        def time(self, candidate):
            return Reading(1e-5, 1e-5, HOST_BOUND)

    waited = []
    one = Timed(Outcome(0, None, None, 1e-5))
    time_calmly([one], Slow(), lambda *_: None, waited.append)
    assert one.finished(lambda outcome, seconds: "").noisy == HOST_BOUND and len(waited) == len(PAUSES_S)


def test_the_candidate_that_is_fastest_on_the_device_is_chosen(cupy):  # noqa: F811
    first, second = rg.build(product(), "cuda", profile=False, top_k=2, cache=False).candidates
    cupy.SECONDS.update({first.source.text: 5e-3, second.source.text: 2e-3})
    kernel = rg.build(product(), "cuda", profile=True, top_k=2, cache=False)
    assert kernel.source == second.source.text
    assert kernel.measured_time == near(2e-3) and kernel.candidates[1].event_s == near(2e-3)
    assert kernel.candidates[0].wall_s == near(5e-3)


@pytest.mark.parametrize("caches", ["warm", "cold"])
def test_builds_time_warm_or_cold_caches_as_asked(cupy, caches):  # noqa: F811
    rg.build(product(), "cuda", profile=True, top_k=1, cache=False, options=rg.BuildOptions(caches=caches))
    assert any(what[0] == "fill" and what[1] >= 2 << 20 for what in cupy.LOG) == (caches == "cold")
