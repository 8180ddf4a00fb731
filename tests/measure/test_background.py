"""Compiling ahead: begun before it is asked for, never twice, with the compiler's own errors."""

import threading

import pytest

import rollergen as rg
from rollergen.emit import Source
from rollergen.errors import DeviceError
from rollergen.gate.memory import HOST
from rollergen.measure import background as module
from rollergen.measure import clocks
from rollergen.measure.background import BackgroundCompiler, compiled_in_background
from rollergen.runtime.executor import executor_for
from rollergen.targets import resolve

pytest.importorskip("pyopencl", reason="compiling needs pyopencl")

ONE, TWO, THREE = (Source(text, (), "opencl") for text in ("one", "two", "three"))
PATIENCE_S = 60.0


class Recorder:
    """Compiles a source when it is let; refuses what it was told to."""

    memory = HOST

    def __init__(self, refused=()):
        self.seen, self.refused, self.begun, self.go_on = [], refused, threading.Event(), threading.Event()

    def prepare(self, source):
        self.seen.append((source.text, threading.current_thread()))
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        if source.text in self.refused:
            raise DeviceError(f"{source.text} is refused")
        return f"compiled {source.text}"


def test_the_first_source_is_begun_before_it_is_asked_for_and_compiled_once():
    recorder = Recorder()
    ahead = BackgroundCompiler(recorder, [ONE, TWO])
    assert recorder.begun.wait(PATIENCE_S)
    recorder.go_on.set()
    assert [ahead.prepare(source) for source in (ONE, TWO)] == ["compiled one", "compiled two"]
    ahead.close()
    assert [text for text, _ in recorder.seen] == ["one", "two"]
    assert all(thread is not threading.main_thread() for _, thread in recorder.seen)


def test_what_it_was_not_told_of_or_is_asked_for_again_is_compiled_by_the_caller():
    recorder = Recorder()
    recorder.go_on.set()
    ahead = BackgroundCompiler(recorder, [ONE])
    for source in (ONE, ONE, THREE):
        assert ahead.prepare(source) == f"compiled {source.text}"
    ahead.close()
    assert [(text, thread is threading.main_thread()) for text, thread in recorder.seen] == [
        ("one", False), ("one", True), ("three", True),
    ]  # fmt: skip


def test_a_refused_source_is_an_error_of_its_own_candidate():
    recorder = Recorder(refused={"one"})
    recorder.go_on.set()
    ahead = BackgroundCompiler(recorder, [ONE, TWO])
    with pytest.raises(DeviceError, match="one is refused"):
        ahead.prepare(ONE)
    assert ahead.prepare(TWO) == "compiled two"
    ahead.close()


def test_closing_begins_nothing_more():
    recorder = Recorder()
    ahead = BackgroundCompiler(recorder, [ONE, TWO])
    assert recorder.begun.wait(PATIENCE_S)
    given_up = threading.Event()
    ahead._begun["two"].add_done_callback(lambda future: given_up.set())
    closing = threading.Thread(target=ahead.close)
    closing.start()
    assert given_up.wait(PATIENCE_S)  # while the first one is still being compiled
    recorder.go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert [text for text, _ in recorder.seen] == ["one"]


@pytest.mark.parametrize("cores", [1, 2])
def test_a_second_core_is_what_it_takes(cores, monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: cores)
    executor = executor_for(resolve("cpu"))
    threads = []
    monkeypatch.setattr(executor, "prepare", lambda source: threads.append(threading.current_thread()))
    with compiled_in_background(executor, [ONE]) as ahead:
        ahead.prepare(ONE)
    assert [thread is threading.main_thread() for thread in threads] == [cores == 1]


def test_nothing_is_compiled_any_more_when_candidates_are_timed(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 2)
    closed, timed = [], []
    close, time_calmly = BackgroundCompiler.close, clocks.time_calmly
    monkeypatch.setattr(BackgroundCompiler, "close", lambda self: (closed.append(len(timed)), close(self)))
    monkeypatch.setattr(clocks, "time_calmly", lambda *rest: (timed.append(len(closed)), time_calmly(*rest)))
    rg.build(rg.ops.relu(rg.tensor("X", (1000,)), name="Y"), "cpu", cache=False, profile=True)
    assert (closed[0], timed) == (0, [1])


@pytest.mark.parametrize("cores", [1, 2])
def test_a_profiled_build_finds_the_same_candidates_either_way(cores, monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: cores)
    expression = rg.ops.relu(rg.tensor("X", (1000,)), name="Y")
    kernel = rg.build(expression, "cpu", cache=False, profile=True)
    assert all(one.state == "passed" and one.compile_s >= 0 for one in kernel.candidates)
    assert kernel.candidates == tuple(sorted(kernel.candidates, key=lambda one: one.rank))
