"""The stand-in's clock, and what is enqueued: streams, events, graphs that are captured."""

from __future__ import annotations

import ctypes

from cupy.facts import LOG, CUDARuntimeError


class _Clock:
    """The host asks and goes on; the device begins when it has done what was asked before.

    Seconds that pass for both: a launch takes the host `LAUNCH_S`, an event the device `EVENT_S`, and waiting as long as the device needs; what
    this process does beside takes none.
    """

    def __init__(self):
        self.host, self.free = 0.0, {}

    def computed(self, seconds, stream):
        self.free[stream] = self.device(stream) + seconds

    def device(self, stream):
        """When the device comes to what is enqueued now."""
        return max(self.host, self.free.get(stream, 0.0))

    def wait(self, stream):
        self.host = self.device(stream)


LAUNCH_S, EVENT_S = 5e-6, 1e-7
CLOCK = _Clock()


_CAPTURES = {}
"""What is captured, by the pointer of each stream that is; as in CUDA's global mode, nothing else may happen then."""


def _refuse_capture(what):
    if _CAPTURES:
        raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what} while a stream is captured")


class Graph:
    def __init__(self, captured):
        self._captured = tuple(captured)

    def launch(self, stream=None):
        LOG.append(("replay", len(self._captured)))
        for one in self._captured:
            one()


def _refuse_legacy(stream):
    """The legacy stream waits for all others, so while these are captured it cannot be used."""
    if stream.ptr in (0, 1) and _CAPTURES:
        raise CUDARuntimeError("cudaErrorStreamCaptureImplicit: the legacy stream would wait for a captured one")


class Stream:
    def __init__(self, ptr=None):
        self.ptr = id(self) if ptr is None else ptr

    def __enter__(self):
        _STREAMS.append(self)
        return self

    def __exit__(self, *_):
        _STREAMS.pop()

    def synchronize(self):
        _refuse_capture("a synchronization")
        LOG.append(("synchronize", self.ptr))
        CLOCK.wait(self.ptr)

    def wait_event(self, event):
        if _CAPTURES.get(self.ptr) is not None and event.captured is not _CAPTURES[self.ptr]:
            raise CUDARuntimeError("cudaErrorStreamCaptureIsolation: the event is of no stream of the capture")
        if event.captured is not None:
            _CAPTURES[self.ptr] = event.captured  # the stream joins the capture
        LOG.append(("wait", self.ptr))

    def begin_capture(self, mode=None):
        if self.ptr in (0, 1):
            raise RuntimeError("cannot capture on the default (legacy) stream")
        _CAPTURES[self.ptr] = []

    def end_capture(self):
        captured = _CAPTURES[self.ptr]
        for pointer in [pointer for pointer, own in _CAPTURES.items() if own is captured]:
            del _CAPTURES[pointer]
        return Graph(captured)

    def is_capturing(self):
        _refuse_legacy(self)
        return self.ptr in _CAPTURES


class ExternalStream(Stream):
    pass


class Event:
    @property
    def done(self):
        """Whether the device has come to it."""
        return CLOCK.host >= self.at

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.at = self.captured = None

    def record(self, stream=None):
        stream = stream or get_current_stream()
        _refuse_legacy(stream)
        self.captured = _CAPTURES.get(stream.ptr)
        self.at = CLOCK.device(stream.ptr)
        CLOCK.computed(EVENT_S, stream.ptr)


_STREAMS = [Stream(0)]


def get_current_stream():
    return _STREAMS[-1]


def _copied(to, from_, size, kind, stream):
    """On the device; into the graph where the stream is captured."""
    assert kind == 3
    LOG.append(("copy", size))
    copy = lambda: ctypes.memmove(to, from_, size)
    if stream in _CAPTURES:
        _CAPTURES[stream].append(copy)
    else:
        copy()
