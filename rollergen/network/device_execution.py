"""Calls of a model on an OpenCL device with memory of its own: values between steps stay there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.network.arena import arranged
from rollergen.network.execution import Execution, Places, temporary
from rollergen.network.partition import Step
from rollergen.runtime.executor import executor_for


def runs_there(device: Device) -> bool:
    """Whether the device is present and its kernels use OpenCL buffers.  DeviceError where it is not present."""
    return isinstance(executor_for(device).runtime, BufferRuntime)


class DeviceExecution(Execution):
    """As `Execution`, with one buffer as the arena, whose parts are the arguments of launches.

    A call copies the inputs there and the outputs back, and what a step of the model's own library reads and makes.
    """

    def _place(self, places: Places) -> None:
        runtime = executor_for(self._device).runtime
        assert isinstance(runtime, BufferRuntime)
        self._runtime, self._values = runtime, places.values
        self.arena = arranged(places.lifetimes, runtime.alignment)
        self._block = runtime.empty(self.arena.size_bytes)
        self._buffers = {name: self._part(value) for name, value in places.values.items()}
        self._weights: dict[str, Any] = {}

    def _part(self, value: Value) -> Any:
        if not value.size_bytes:
            return self._runtime.empty(0)
        return self._runtime.part(self._block, self.arena.offsets[value.name], value.size_bytes)

    def _keep(self, name: str, array: np.ndarray) -> None:
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
        packed = {stage.op.output.name for stage in program.stages if stage.once}
        given = dict(zip((b.name for b in program.inputs), step.inputs, strict=True))
        read = {name for launch in kernel.launches if not launch.once for name in launch.arguments}
        point: Callable[[dict[str, Any]], None] = session.point  # type: ignore[attr-defined]
        for buffer in program.temporaries:
            own = buffer.name in packed
            place = self._new(buffer) if own else self._buffers[temporary(number, buffer.name)]
            point({buffer.name: place})
        weights = {b.name: self._weight(given[b.name], b.name in read) for b in program.inputs if b.constant}
        values = {b.name: self._buffers[given[b.name]] for b in program.inputs if not b.constant}
        (output,) = program.outputs
        point({**weights, **values, output.name: self._buffers[step.outputs[0].name]})
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
            return self._runtime.wrap(np.ascontiguousarray(array))
        if name not in self._weights:
            self._weights[name] = self._runtime.wrap(np.ascontiguousarray(array))
        return self._weights[name]


def execution_for(
    network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], device: Device
) -> Execution:
    """Of a model on the device.  DeviceError where the device is not present, or takes no models."""
    there = device.kind.threads and any(kernel is not None for kernel in kernels) and runs_there(device)
    return (DeviceExecution if there else Execution)(network, steps, kernels, device)
