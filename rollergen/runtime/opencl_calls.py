"""Calls of a kernel with what pyopencl has on a device: launches in the caller's queue and context, no more."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rollergen.emit import Source, packed_names
from rollergen.errors import ArgumentError, DeviceError, shown
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.probes.host import completed_on
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import runs_on
from rollergen.hal.runtimes.opencl_platforms import facts_of
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from rollergen.runtime.device_arrays import DeviceView
from rollergen.runtime.executor import RuntimeExecutor
from rollergen.runtime.opencl_arrays import (
    address,
    argument,
    as_array,
    free_after,
    in_shared_memory,
    is_opencl_array,
    is_shared,
    keep_host_memory,
    overlap,
)
from rollergen.runtime.packed import NEVER, Packed
from rollergen.runtime.signature import Parameter, Signature

_IN_ORDER = (
    "expected elements one behind the other, which pyopencl makes of no strided array: cut or turn it on the host, and "
    "pass pyopencl.array.to_device(queue, numpy.ascontiguousarray(host))"
)


MOST_LANES = 16
"""Queues of a thread, and contexts, whose sessions a kernel keeps: those used last.  Each holds temporaries there."""


class _Lane:
    """A thread's session in one queue, with temporaries of its own: calls of a queue run in order."""

    def __init__(self, queue: Any, compiled: Any, runtime: BufferRuntime, program: RProgram) -> None:
        self.queue, self.runtime, self.packed = queue, runtime, NEVER  # a queue that is kept has its address to itself
        self.session = compiled.session()
        sizes = {b.name: b.elements * numpy_dtype(b.dtype).itemsize for b in program.temporaries}
        self.session.point({name: runtime.empty(size) for name, size in sizes.items()})


class OpenCLCalls:
    """What `Kernel` does with pyopencl's arrays and shared virtual memory.  Thread-safe.

    The first call in a context compiles there; the first of a thread in a queue allocates temporaries.  Nobody waits.
    """

    def __init__(self, device: Device, program: RProgram, signature: Signature, source: Source) -> None:
        self._device, self._program, self._signature, self._source = device, program, signature, source
        self._inputs = tuple(map(Parameter.of, program.inputs))
        self._outputs = tuple(map(Parameter.of, program.outputs))
        self._packed = packed_names(source.launches)
        self._compiled: dict[tuple[int, int], tuple[BufferRuntime, Any]] = {}
        self._lock, self._mine = threading.Lock(), threading.local()

    @staticmethod
    def takes(device: Device, things: Sequence[Any]) -> bool:
        """Whether a call with these is for such arrays: kernels of the host's CPU work in the host's memory."""
        return completed_on(device) is None and any(is_opencl_array(one) or is_shared(one) for one in things)

    def call(self, arrays: Sequence[Any], named: Mapping[str, Any], out: Any, stream: Any, version: int) -> Any:
        """The outputs: ``out``, or new arrays of pyopencl's in the queue.

        Raises as `Kernel` does, and ArgumentError for arrays of several contexts, strided ones, and such as have no
        queue where none is given.
        """
        passed = self._signature.passed(arrays, named)
        queue = self._queue(passed, stream)
        lane = self._lane(queue)
        results = self._results(out, queue)
        given = [as_array(one, queue) for one in results]
        passed = tuple(as_array(one, queue) for one in passed)
        buffers = {p.name: self._buffer(p, one, p.name, lane) for p, one in zip(self._inputs, passed, strict=True)}
        for parameter, one in zip(self._outputs, given, strict=True):
            self._check_apart(parameter, one, [*passed, *(other for other in given if other is not one)])
            buffers[parameter.name] = self._buffer(parameter, one, f"out={parameter.name}", lane)
        lane.session.point(buffers)
        self._wait(queue, (*passed, *given))
        if self._packed:
            self._pack(lane, passed, version)
        try:
            launched = lane.session.enqueue(queue)
        finally:
            lane.session.release(buffers)
        if launched:
            self._launched(launched[-1].event, queue, passed, given)
        return results[0] if len(results) == 1 else tuple(results)

    def _queue(self, passed: Sequence[Any], stream: Any) -> Any:
        import pyopencl

        if stream is not None and not isinstance(stream, pyopencl.CommandQueue):
            raise self._error(f"stream is {shown(stream)}; expected a pyopencl.CommandQueue")
        queue = stream or next((one.queue for one in passed if is_opencl_array(one) and one.queue is not None), None)
        if queue is None:
            raise self._error("the arrays have no queue; expected stream=, a pyopencl.CommandQueue")
        if queue.properties & pyopencl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise self._error("the queue runs out of order; expected one that runs in order")
        return queue

    def _lane(self, queue: Any) -> _Lane:
        lanes: dict[int, _Lane] = self._mine.__dict__.setdefault("lanes", {})
        found = lanes.get(queue.int_ptr)
        if found is None:
            runtime, compiled = self._in_context(queue)
            found = _Lane(queue, compiled, runtime, self._program)
        _keep(lanes, queue.int_ptr, found)
        return found

    def _in_context(self, queue: Any) -> tuple[BufferRuntime, Any]:
        """The runtime and the compiled source of the queue's context and device."""
        key = queue.context.int_ptr, queue.device.int_ptr
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                facts = facts_of(queue.device)
                if facts is None or not runs_on(self._device, facts):
                    asked = f"device={facts.selector!r}" if facts else "one that pyopencl.get_platforms() lists"
                    raise DeviceError(
                        f"the queue is of {queue.device.name}, on which kernels for {self._device.name} do not run; "
                        f"expected a kernel that rg.build made for it: {asked}"
                    )
                runtime = BufferRuntime(facts, queue.device, queue.context)
                found = runtime, RuntimeExecutor(runtime).prepare(self._source)
            _keep(self._compiled, key, found)
            return found

    def _results(self, out: Any, queue: Any) -> Sequence[Any]:
        if out is None:
            from pyopencl.array import Array

            return [Array(queue, p.shape, p.dtype) for p in self._outputs]
        given = out if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(self._outputs):
            raise self._error(f"out has {len(given)} arrays; expected {len(self._outputs)}")
        return given

    def _buffer(self, parameter: Parameter, thing: Any, name: str, lane: _Lane) -> Any:
        """The array's memory as an argument of a launch."""
        if not is_opencl_array(thing):
            what = f"{type(thing).__module__}.{type(thing).__qualname__}"
            advice = f"expected a pyopencl.array.Array, such as pyopencl.array.to_device(queue, {parameter.name})"
            raise self._error(f"{name} is a {what}, and another array of the call on the device; {advice}")
        parameter.refuse(thing, self._signature)
        if not thing.flags.c_contiguous:
            raise self._error(f"{name} has strides {thing.strides}; {_IN_ORDER}")
        if thing.context.int_ptr != lane.queue.context.int_ptr:
            raise self._error(f"{name} is of another context than the queue; expected one context")
        if not parameter.size_bytes:
            return lane.runtime.empty(0)
        try:
            return argument(thing, lane.runtime, parameter.size_bytes)
        except ValueError as error:
            raise self._error(f"{name} {error}") from None

    def _error(self, text: str) -> ArgumentError:
        return ArgumentError(f"{text}: {self._signature}")

    def _check_apart(self, parameter: Parameter, one: Any, others: Sequence[Any]) -> None:
        for other in others:
            if is_opencl_array(one) and is_opencl_array(other) and overlap(one, other):
                raise self._error(f"out={parameter.name} overlaps another array of the call; give it memory of its own")

    def _wait(self, queue: Any, arrays: Sequence[Any]) -> None:
        """What follows in the queue comes after what other queues do with the arrays."""
        events = [event for one in arrays for event in one.events]
        if events:
            import pyopencl

            pyopencl.enqueue_barrier(queue, wait_for=events)

    @staticmethod
    def _launched(event: Any, queue: Any, passed: Sequence[Any], given: Sequence[Any]) -> None:
        for one in given:
            one.add_event(event)
        for one in (*passed, *given):
            if in_shared_memory(one):
                free_after(one, queue, event)
            else:
                keep_host_memory(one, event)

    def _pack(self, lane: _Lane, passed: Sequence[Any], version: int) -> None:
        constants = [one for p, one in zip(self._inputs, passed, strict=True) if p.name in self._packed]
        views = [DeviceView(address(one), one.shape, one.dtype, one) for one in constants]
        if not lane.packed.holds(version, constants, views):
            lane.packed = NEVER
            lane.session.enqueue(lane.queue, once=True)
            lane.packed = Packed.of(version, constants, views)


def _keep(latest: dict[Any, Any], key: Any, value: Any) -> None:
    """As the last one of the `MOST_LANES` that are kept."""
    latest.pop(key, None)
    latest[key] = value
    if len(latest) > MOST_LANES:
        del latest[next(iter(latest))]
