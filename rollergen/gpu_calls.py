"""Calls of a kernel with arrays that lie on the GPU: launches in the caller's stream, and nothing else."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.device_arrays import DeviceView, callers_stream, check_apart, device_view, in_kind, new_like
from rollergen.emit import Source
from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.spec import Device
from rollergen.measure.executor import RuntimeExecutor, executor_for
from rollergen.program.rprogram import RProgram
from rollergen.signature import Parameter, Signature


class _Lane:
    """A thread's session on one stream of one GPU, with temporaries of its own: calls of a stream run in order."""

    def __init__(self, runtime: Any, session: Any, program: RProgram) -> None:
        self.session, self.packed = session, (-1, ())
        self._temporaries = {
            b.name: runtime.empty(b.elements * numpy_dtype(b.dtype).itemsize) for b in program.temporaries
        }
        session.point({name: array.data.ptr for name, array in self._temporaries.items()})


class GpuCalls:
    """What `Kernel` does with device arrays.  Thread-safe.

    The first call of a thread on a stream compiles and allocates; later ones only launch, so that they can be captured
    into a CUDA graph (with ``out=``, and a call before the capture).
    """

    def __init__(self, device: Device, program: RProgram, signature: Signature, source: Source) -> None:
        self._device, self._program, self._signature, self._source = device, program, signature, source
        self._inputs = tuple(map(Parameter.of, program.inputs))
        self._outputs = tuple(map(Parameter.of, program.outputs))
        self._executors: dict[int, tuple[RuntimeExecutor, Any]] = {}
        self._lock, self._local = threading.Lock(), threading.local()

    def call(
        self, arrays: Sequence[Any], named: Mapping[str, Any], out: Any, stream: Any, version: int
    ) -> Any:  # fmt: skip
        """The outputs, in kind.  Raises as `Kernel` does, and ArgumentError for mixed or strided arrays."""
        passed = self._signature.passed(arrays, named)
        runtime, compiled = self._compiled()
        cupy = runtime.cupy
        views = [self._checked(parameter, one, cupy) for parameter, one in zip(self._inputs, passed, strict=True)]
        try:
            target = runtime.on(callers_stream(passed, stream))
            with target:
                results = self._results(out, passed, cupy)
                made = [self._checked(p, one, cupy, "out=") for p, one in zip(self._outputs, results, strict=True)]
                check_apart([(p.name, v) for p, v in zip(self._outputs, made, strict=True)], views, self._signature)
                self._launch(runtime, compiled, views, made, passed, version)
        except TypeError as error:
            raise ArgumentError(f"{error}: {self._signature}") from None
        returned = tuple(results) if out is not None else in_kind(results, passed)
        return returned[0] if len(returned) == 1 else returned

    def _launch(
        self, runtime: Any, compiled: Any, views: Sequence[DeviceView], made: Sequence[DeviceView],
        passed: Sequence[Any], version: int,
    ) -> None:  # fmt: skip
        current = runtime.cupy.cuda.get_current_stream()
        for view in views:
            _wait_for(runtime, view.stream, current)
        lane = self._lane(runtime, compiled, current.ptr)
        names = [p.name for p in (*self._inputs, *self._outputs)]
        lane.session.point({name: v.address for name, v in zip(names, (*views, *made), strict=True)})
        constants = [one for p, one in zip(self._inputs, passed, strict=True) if p.constant]
        if constants and not _same(lane.packed, version, constants):
            lane.session.once()
            lane.packed = version, tuple(map(_reference, constants))
        lane.session.run()

    def _compiled(self) -> tuple[Any, Any]:
        """Runtime and compiled program of the current GPU."""
        known = next(iter(self._executors.values()), None)
        number = int(known[0].runtime.cupy.cuda.runtime.getDevice()) if known else None  # type: ignore[attr-defined]
        if number is None or number not in self._executors:
            with self._lock:
                executor = executor_for(self._device)
                number = int(executor.runtime.cupy.cuda.runtime.getDevice())  # type: ignore[attr-defined]
                if number not in self._executors:
                    self._executors[number] = executor, executor.prepare(self._source)
        executor, compiled = self._executors[number]
        return executor.runtime, compiled

    def _lane(self, runtime: Any, compiled: Any, stream: int) -> _Lane:
        lanes = self._local.__dict__.setdefault("lanes", {})
        key = runtime.gpu.number, stream
        if key not in lanes:
            lanes[key] = _Lane(runtime, compiled.session(), self._program)
        found: _Lane = lanes[key]
        return found

    def _checked(self, parameter: Parameter, thing: Any, cupy: Any, prefix: str = "") -> DeviceView:
        view = device_view(thing, prefix + parameter.name, self._signature, cupy)
        parameter.refuse(view, self._signature)  # type: ignore[arg-type]
        return view

    def _results(self, out: Any, passed: Sequence[Any], cupy: Any) -> Sequence[Any]:
        if out is None:
            return [new_like(passed, p.shape, np.dtype(p.dtype), cupy) for p in self._outputs]
        given = out if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(self._outputs):
            raise ArgumentError(f"out has {len(given)} arrays; expected {len(self._outputs)}: {self._signature}")
        return given


def _wait_for(runtime: Any, producer: int | None, current: Any) -> None:
    """Later launches in the current stream come after what the producer's has now; the host does not wait.

    Streams 1 and 2 are the legacy and the per-thread default (CUDA array interface, version 3)."""
    if producer is None or producer == current.ptr or (producer == 1 and current.ptr == 0):
        return
    event = runtime.cupy.cuda.Event(disable_timing=True)
    event.record(runtime.stream(producer))
    current.wait_event(event)


def _reference(array: Any) -> Any:
    try:
        return weakref.ref(array)
    except TypeError:
        return lambda: array


def _same(packed: tuple[int, tuple[Any, ...]], version: int, constants: Sequence[Any]) -> bool:
    return packed[0] == version and all(a() is b for a, b in zip(packed[1], constants, strict=True))
