"""Calls of a model on a device with memory of its own, by OpenCL or CUDA: values between steps stay there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.network.arena import arranged
from rollergen.network.execution import Execution, Shared
from rollergen.network.partition import Step
from rollergen.network.places import Places, temporary
from rollergen.runtime.device_arrays import DeviceView, callers_stream, device_view, in_kind, new_like
from rollergen.runtime.executor import executor_for
from rollergen.runtime.gpu_calls import is_captured, wait_for
from rollergen.runtime.interop import is_torch


class DeviceExecution(Execution):
    """As `Execution`, with one buffer of the device as the arena, whose parts are the arguments of launches.

    A call copies the inputs there and the outputs back, and what a step of the model's own library reads and makes.
    """

    _joins_in_place = False  # parts of its buffers may overlap no others

    def _place(self, places: Places) -> None:
        runtime: Any = executor_for(self._device).runtime
        self._runtime = runtime
        self._values = places.values
        self.arena = arranged(places.lifetimes, runtime.alignment)
        self._block = self._shared.of_size(self.arena.size_bytes, runtime.empty)
        self._buffers = {name: self._part(value) for name, value in places.values.items()}

    def _part(self, value: Value) -> Any:
        if not value.size_bytes:
            return self._runtime.empty(0)
        return self._runtime.part(self._block, self.arena.offsets[value.name], value.size_bytes)

    def _keep(self, name: str, array: Any) -> None:
        if name in self._buffers:
            self._runtime.write(self._buffers[name], 0, array)
        else:
            self._held[name] = array

    def _array(self, name: str) -> np.ndarray:
        if name not in self._buffers:
            return self._held_or_constant(name)
        value = self._values[name]
        found = self._runtime.read(self._buffers[name], 0, value.size_bytes)
        return found.view(numpy_dtype(value.dtype)).reshape(value.shape)

    def _arguments(self, number: int, step: Step, kernel: Kernel) -> Callable[[], None]:
        session, program = kernel.new_session(), kernel.program
        given = dict(zip((b.name for b in program.inputs), step.inputs, strict=True))
        packed, fresh = self._packs(kernel, given)
        read = {name for launch in kernel.launches if not launch.once for name in launch.arguments}
        point: Callable[[dict[str, Any]], None] = session.point  # type: ignore[attr-defined]
        point(packed)
        for buffer in program.temporaries:
            if buffer.name not in packed:
                point({buffer.name: self._buffers[temporary(number, buffer.name)]})
        held = [b.name for b in program.inputs if b.constant and (fresh or b.name in read)]
        weights = {name: self._weight(given[name], name in read) for name in held}
        values = {b.name: self._memory(given[b.name]) for b in program.inputs if not b.constant}
        (output,) = program.outputs
        point({**weights, **values, output.name: self._buffers[step.outputs[0].name]})
        if fresh:
            session.once()
        session.release(name for name in weights if name not in read)
        self._sessions.append(session)
        return session.run

    def _new(self, buffer: Buffer) -> Any:
        return self._runtime.empty(int(np.prod(buffer.shape, dtype=np.int64)) * ITEMSIZE[buffer.dtype])

    def _weight(self, name: str, kept: bool) -> Any:
        """A weight on the device: once for all steps whose calls read it, for the packing alone else."""
        array = self._network.constants[name]
        if not kept:
            return self._copied(array)
        if id(array) not in self._shared.weights:
            self._shared.weights[id(array)] = self._copied(array), array
        return self._shared.weights[id(array)][0]

    def _memory(self, name: str) -> Any:
        return self._buffers[name] if name in self._buffers else self._constant(name)

    def _copied(self, array: np.ndarray) -> Any:
        return self._runtime.wrap(np.ascontiguousarray(array))


class CudaExecution(DeviceExecution):
    """On a CUDA GPU.  Arrays that lie there are copied within it, in the caller's stream: nothing waits for the GPU but
    what a step of the model's own library reads, and ids that are checked."""

    def view(self, array: Any, name: str, where: object) -> DeviceView:
        return device_view(array, name, where, self._runtime.cupy)

    def called(self, given: Sequence[DeviceView], arrays: Sequence[Any], out: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The outputs as what the arrays are, whose ``given`` memory this is, in ``out`` where there are such; in
        torch's stream for tensors."""
        runtime = self._runtime
        runtime.bind_thread()
        with runtime.on(callers_stream(arrays, None)):
            self._take(given)
            for run in self._runs:
                run()
            made = list(out or self.outputs(arrays))
            for name, array in zip(self._network.outputs, made, strict=True):
                self._give(name, array)
            self._held.clear()
        return in_kind(made, arrays)

    def _timed(self, runs: list[Callable[[], None]]) -> Callable[[], Callable[[], list[float]]]:
        """After each step the GPU is waited for."""
        return super()._timed([partial(_finished, run, self._runtime) for run in runs])

    def _keep(self, name: str, array: Any) -> None:
        if not isinstance(array, DeviceView):
            super()._keep(name, array)
            return
        wait_for(self._runtime, array.stream, self._runtime.cupy.cuda.get_current_stream())
        size = array.end - array.address
        if name in self._buffers:
            self._runtime.copy(self._buffers[name].data.ptr, array.address, size)
        else:
            self._refuse_capture(name)
            self._held[name] = self._of_device(array, size)

    def _array(self, name: str) -> np.ndarray:
        if name in self._buffers:
            self._refuse_capture(name)
        return super()._array(name)

    def _refuse_capture(self, name: str) -> None:
        if is_captured(self._runtime.cupy.cuda.get_current_stream()):
            raise ArgumentError(
                f"{name} is read on the host, by a check of ids or a step of the model's own library, and the stream "
                f"is being captured into a CUDA graph; expected a call outside of one: {self._network.title}"
            )

    def _of_device(self, array: DeviceView, size: int) -> np.ndarray:
        part = self._runtime.empty(size)
        self._runtime.copy(part.data.ptr, array.address, size)
        return self._runtime.read(part, 0, size).view(array.dtype).reshape(array.shape)

    def outputs(self, arrays: Sequence[Any]) -> list[Any]:
        """New arrays for the outputs, of the kind of the arguments."""
        made = []
        for name in self._network.outputs:
            value = self._values.get(name)
            shape, dtype = (value.shape, value.dtype) if value else _of_host(self._held_or_constant(name))
            made.append(new_like(arrays, shape or (), numpy_dtype(dtype), self._runtime.cupy))
        return made

    def _give(self, name: str, array: Any) -> None:
        if name in self._buffers:
            self._runtime.copy(_address(array), self._buffers[name].data.ptr, self._values[name].size_bytes)
            return
        host = self._held_or_constant(name)
        part = self._runtime.wrap(np.ascontiguousarray(host).reshape(-1).view(np.uint8))
        self._runtime.copy(_address(array), part.data.ptr, host.nbytes)


def _of_host(array: np.ndarray) -> tuple[tuple[int, ...], str]:
    return array.shape, array.dtype.name


def _finished(run: Callable[[], None], runtime: Any) -> None:
    run()
    runtime.finish()


def _address(array: Any) -> int:
    """Of an array of torch or CuPy on the GPU."""
    return int(array.data_ptr() if is_torch(array) else array.data.ptr)


_BY: Sequence[tuple[type, type[Execution]]] = ((CudaRuntime, CudaExecution), (BufferRuntime, DeviceExecution))
"""Runtimes of devices with memory of their own, and who executes models there."""


def execution_for(
    network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], device: Device, shared: Shared
) -> Execution:
    """Of a model on the device.  DeviceError where the device is not present, or takes no models."""
    there: type[Execution] = Execution
    if device.kind.threads and any(kernel is not None for kernel in kernels):
        runtime = executor_for(device).runtime
        there = next((execution for kind, execution in _BY if isinstance(runtime, kind)), Execution)
    return there(network, steps, kernels, device, shared)
