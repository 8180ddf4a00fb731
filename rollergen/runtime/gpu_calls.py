"""Calls of a kernel with arrays that lie on the GPU: launches in the caller's stream, and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rollergen.emit import Source, packed_names
from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from rollergen.runtime.device_arrays import DeviceView, callers_stream, check_apart, device_view, in_kind, new_like
from rollergen.runtime.executor import RuntimeExecutor, executor_for
from rollergen.runtime.mine import Call
from rollergen.runtime.packed import NEVER, Packed
from rollergen.runtime.prepared import Arrays, prepared_call
from rollergen.runtime.session import PreparedLaunches
from rollergen.runtime.signature import Parameter, Signature


class _Lane:
    """A thread's session on one stream of one GPU, with temporaries of its own: calls of a stream run in order.

    ``captured``: CUDA graphs replay launches that use the temporaries, which therefore are theirs from then on.
    ``calls``: its prepared calls, by the class of their arrays; ``capturing``: whether the stream is being captured,
    None where that makes no difference.
    """

    def __init__(self, runtime: Any, session: Any, program: RProgram) -> None:
        self.calls: dict[type | None, Call] = {}
        self.session, self.packed, self.captured = session, NEVER, False
        self.capturing: Callable[[], bool] | None = None
        self._temporaries = {
            b.name: runtime.empty(b.elements * numpy_dtype(b.dtype).itemsize) for b in program.temporaries
        }
        session.point({name: array.data.ptr for name, array in self._temporaries.items()})


class _Mine(threading.local):
    """What a thread keeps: its sessions by GPU and stream, and what tells the current stream, by the arrays' class."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, int], _Lane] = {}
        self.streams: dict[type | None, Callable[[], int]] = {}


class GpuCalls:
    """What `Kernel` does with device arrays.  Thread-safe.

    The first call of a thread on a stream compiles and allocates; later ones only launch, so that they can be captured
    into a CUDA graph, with ``out=``: after a call of any stream, or, for programs with temporaries, of the same thread
    on the same stream.  A graph keeps the temporaries of that call, also from the calls that follow; another graph
    captured there has the same, so that the two must not run at the same time.
    """

    def __init__(self, device: Device, program: RProgram, signature: Signature, source: Source) -> None:
        self._device, self._program, self._signature, self._source = device, program, signature, source
        self._inputs = tuple(map(Parameter.of, program.inputs))
        self._outputs = tuple(map(Parameter.of, program.outputs))
        self._executors: dict[int, tuple[RuntimeExecutor, Any]] = {}
        self._lock, self._mine = threading.Lock(), _Mine()
        self._replayed: list[_Lane] = []
        self._ran: set[int] = set()
        self._packed = packed_names(source.launches)

    def call(
        self, arrays: Sequence[Any], named: Mapping[str, Any], out: Any, stream: Any, version: int
    ) -> Any:  # fmt: skip
        """The outputs, in kind.  Raises as `Kernel` does, and ArgumentError for mixed or strided arrays, and for a call
        that is captured into a CUDA graph and would allocate or pack constants."""
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
        if stream is None:
            self._prepare(runtime, passed)
        returned = tuple(results) if out is not None else in_kind(results, passed)
        return returned[0] if len(returned) == 1 else returned

    def prepared(self) -> Call:
        """Calls of this thread with arrays, a GPU and a current stream as an earlier call had them."""
        lanes, streams = self._mine.lanes, self._mine.streams
        get_device: Callable[[], int] = self._compiled()[0].cupy.cuda.runtime.getDevice

        def call(arrays: tuple[Any, ...], out: Any, packed: Packed, version: int) -> Any:
            kind = arrays[0].__class__ if arrays else None
            stream = streams.get(kind)
            if stream is None:
                return None
            lane = lanes.get((get_device(), stream()))
            if lane is None or kind not in lane.calls or (lane.capturing is not None and lane.capturing()):
                return None
            return lane.calls[kind](arrays, out, lane.packed, version)

        return call

    def _prepare(self, runtime: Any, passed: Sequence[Any]) -> None:
        """Prepares the calls that follow on the current stream with arrays as these are."""
        found = arrays_like(passed, runtime.gpu.number, runtime.cupy)
        if found is None:
            return
        kind, stream = found
        address = stream()
        lane = self._mine.lanes.get((runtime.gpu.number, address))
        if lane is None or lane.captured or kind.array in lane.calls:
            return
        launches = PreparedLaunches(
            lane.session.launches_on(address), lane.session.setters(), packed=self._packed
        )
        lane.calls[kind.array] = prepared_call(launches, self._signature, kind)
        self._mine.streams[kind.array] = stream
        if self._program.temporaries and address not in (0, 1):
            lane.capturing = runtime.cupy.cuda.ExternalStream(address).is_capturing

    def _launch(
        self, runtime: Any, compiled: Any, views: Sequence[DeviceView], made: Sequence[DeviceView],
        passed: Sequence[Any], version: int,
    ) -> None:  # fmt: skip
        current = runtime.cupy.cuda.get_current_stream()
        for view in views:
            wait_for(runtime, view.stream, current)
        captured = is_captured(current)
        lane = (self._replayed_lane if captured else self._lane)(runtime, compiled, current.ptr)
        names = [p.name for p in (*self._inputs, *self._outputs)]
        lane.session.point({name: v.address for name, v in zip(names, (*views, *made), strict=True)})
        if self._packed and not lane.packed.holds(version, *(constants := self._constants(passed, views))):
            if captured:
                raise self._too_late("has not packed these constants")
            lane.session.once()
            lane.packed = Packed.of(version, *constants)
        lane.session.run()

    def _constants(self, passed: Sequence[Any], views: Sequence[DeviceView]) -> tuple[list[Any], list[DeviceView]]:
        """The constant arrays as they were passed, and their memory."""
        at = [number for number, parameter in enumerate(self._inputs) if parameter.name in self._packed]
        return [passed[number] for number in at], [views[number] for number in at]

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
        lanes, key = self._mine.lanes, (runtime.gpu.number, stream)
        found = lanes.get(key)
        if found is None or found.captured:
            found = lanes[key] = _Lane(runtime, compiled.session(), self._program)
            self._ran.add(runtime.gpu.number)
        return found

    def _replayed_lane(self, runtime: Any, compiled: Any, stream: int) -> _Lane:
        """The lane of a call that a graph will replay: its temporaries stay as long as the kernel.  None are made
        while a stream is captured, nor is a kernel's first launch, at which CUDA may still load its code, allowed."""
        if not self._program.temporaries:
            if runtime.gpu.number not in self._ran:
                raise self._too_late("has not run yet")
            return self._lane(runtime, compiled, stream)
        found = self._mine.lanes.get((runtime.gpu.number, stream))
        if found is None:
            raise self._too_late("has no temporaries there")
        if not found.captured:
            found.captured = True
            found.calls.clear()
            with self._lock:
                self._replayed.append(found)
        return found

    def _too_late(self, why: str) -> ArgumentError:
        return ArgumentError(
            f"the stream is being captured into a CUDA graph, and the kernel {why}; call it with these arrays on this "
            f"stream, in this thread, before the capture: {self._signature}"
        )

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


def wait_for(runtime: Any, producer: int | None, current: Any) -> None:
    """Later launches in the current stream come after what the producer's has now; the host does not wait.

    Streams 1 and 2 are the legacy and the per-thread default (CUDA array interface, version 3).  What is captured can
    wait for nothing outside its graph: whoever launches the graph orders that."""
    if producer is None or producer == current.ptr or (producer == 1 and current.ptr == 0):
        return
    source = runtime.stream(producer)
    if is_captured(current) and not is_captured(source):
        return
    event = runtime.cupy.cuda.Event(disable_timing=True)
    event.record(source)
    current.wait_event(event)


def is_captured(stream: Any) -> bool:
    """Whether launches in the stream go into a CUDA graph; those of the legacy default stream cannot."""
    return stream.ptr not in (0, 1) and bool(stream.is_capturing())


def arrays_like(inputs: Sequence[Any], gpu: int, cupy: Any) -> tuple[Arrays, Callable[[], int]] | None:
    """The kind of arrays that the inputs all are, for prepared calls on this GPU, and what tells the current stream's
    address for them; None for those of other libraries, and of several."""
    if inputs and all(type(one) is cupy.ndarray for one in inputs):
        new = lambda shape, dtype: lambda beside: cupy.empty(shape, dtype)
        current = cupy.cuda.get_current_stream
        return replace(_CUPY, array=cupy.ndarray, new=new, names={"gpu": gpu}), lambda: current().ptr
    torch = sys.modules.get("torch")
    if torch is not None and inputs and all(type(one) is torch.Tensor for one in inputs):
        of = lambda dtype: getattr(torch, dtype.name)
        new = lambda shape, dtype: partial(_new_tensor, shape, of(dtype), inputs[0].device)
        stream = torch.cuda.current_stream
        return replace(_TORCH, array=torch.Tensor, dtype=of, new=new, names={"gpu": gpu}), lambda: stream().cuda_stream
    return None


def _new_tensor(shape: tuple[int, ...], dtype: Any, device: Any, beside: int) -> Any:
    return sys.modules["torch"].empty(shape, dtype=dtype, device=device)


_ALIGNED = f"if at_{{a}} % {ARGUMENT_BYTES}: return None"
_CUPY = Arrays(
    object,
    unfit="{a}.strides != strides_{a} or {a}.data.device_id != gpu",
    taken=("at_{a} = {a}.data.ptr", _ALIGNED),
    set="set_{a}_{i}({position}, at_{a})",
    place="shape_{a}",
)
_TORCH = Arrays(
    object,
    unfit="{a}.requires_grad or not {a}.is_contiguous() or {a}.is_neg() or {a}.is_conj() or {a}.get_device() != gpu",
    taken=("at_{a} = {a}.data_ptr()", _ALIGNED),
    set="set_{a}_{i}({position}, at_{a})",
    place="shape_{a}",
)
