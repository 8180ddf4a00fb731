"""How emitted source is run: a protocol, and the executor over this process' runtimes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from rollergen.emit import Launch, Source, packed_names
from rollergen.errors import DeviceError
from rollergen.gate.memory import HOST, Memory
from rollergen.hal.errors import BuildError, MendableError, RuntimeUnavailableError
from rollergen.hal.runtime import runtime_for
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.protocol import InPlaceRuntime, LaunchLimits, Runtime
from rollergen.hal.spec import Device
from rollergen.runtime.opencl_session import OpenCLSession
from rollergen.runtime.session import Idle, PreparedLaunches, Reading, Session


class Compiled(Protocol):
    """One compiled program; may be shared between threads."""

    def session(self) -> Session:
        """A session of its own for the caller."""

    def launching(self, launches: Sequence[Launch]) -> Compiled:
        """The same machine code with these launches, of other sizes."""


class Executor(Protocol):
    """Compiles for one device."""

    @property
    def memory(self) -> Memory:
        """Whose arrays its sessions use in place."""

    def prepare(self, source: Source) -> Compiled:
        """Raises DeviceError with the compiler's message where it refuses the source, and where a launch asks for more
        than the runtime takes: beyond that, runtimes end the process."""


class RuntimeExecutor:
    """Runs sources through a runtime of this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.memory: Memory = HOST
        if isinstance(runtime, CudaRuntime):
            from rollergen.runtime.cuda_memory import CudaMemory  # and what writes CUDA, which CPUs need not wait for

            self.memory = CudaMemory(runtime)

    @property
    def driver(self) -> str:
        """Runtime, device and compiler with their versions, as they call themselves."""
        return f"{self._runtime.description} | {self._runtime.compiler}"

    @property
    def runtime(self) -> Runtime:
        """The runtime that compiles and launches."""
        return self._runtime

    @property
    def limits(self) -> LaunchLimits:
        """The limits of one launch."""
        return self._runtime.limits

    def prepare(self, source: Source) -> Compiled:
        if not source.launches:
            return Idle()
        check_launches(source.launches, self.limits)
        try:
            if isinstance(self._runtime, (CudaRuntime, BufferRuntime)):
                module: Any = self._runtime.compile(source.text)
            else:
                ways = [(True, False) if launch.sizes else (launch.alone,) for launch in source.launches]
                alone = {one for some in ways for one in some}  # at each size in its own way
                module = cast(InPlaceRuntime, self._runtime).compile(source.text, alone=alone)
        except BuildError as error:
            raise DeviceError(str(error)) from None
        return _Compiled(self._runtime, module, source.launches)


def check_launches(launches: Iterable[Launch], limits: LaunchLimits) -> None:
    """Raises DeviceError that names every launch beyond `limits`, and by how much."""
    found = [
        f"{launch.entry} takes {count} {what}, the runtime at most {most}"
        for launch in launches
        for what, count, most in _demands(launch, limits)
        if most is not None and count > most
    ]
    if found:
        raise DeviceError(f"not launched: {'; '.join(found)}")


def _demands(launch: Launch, limits: LaunchLimits) -> Iterator[tuple[str, int, int | None]]:
    yield "blocks", launch.blocks, limits.blocks
    yield "threads in a block", launch.threads, limits.threads
    yield "bytes of memory shared by a block", launch.local_bytes, limits.local_bytes
    yield "bytes of private arrays in a block", launch.private_bytes * launch.threads, limits.private_bytes


class _Compiled:
    def __init__(self, runtime: Runtime, module: Any, launches: Sequence[Launch]) -> None:
        self._runtime, self._module, self._launches = runtime, module, launches

    def launching(self, launches: Sequence[Launch]) -> Compiled:
        check_launches(launches, self._runtime.limits)
        return _Compiled(self._runtime, self._module, launches)

    def session(self) -> Session:
        if isinstance(self._runtime, CudaRuntime):
            from rollergen.runtime.cuda_session import CudaSession

            return CudaSession(self._runtime, self._module, self._launches)
        if isinstance(self._runtime, BufferRuntime):
            return OpenCLSession(self._runtime, self._module, self._launches)
        return _Session(cast(InPlaceRuntime, self._runtime), self._module, self._launches)


class _Session:
    def __init__(self, runtime: InPlaceRuntime, module: Any, launches: Sequence[Launch]) -> None:
        self._runtime, self._module, self._launches = runtime, module, launches
        kernels = [(launch, module.kernel(launch.entry)) for launch in launches]
        self._arrays: dict[str, np.ndarray] = {}
        self._once = [(launch, k) for launch, k in kernels if launch.once]
        self._each = [(launch, k) for launch, k in kernels if not launch.once]
        self._slots: dict[str, list[tuple[Any, int]]] = {}
        for launch, kernel in kernels:
            for position, name in enumerate(launch.arguments):
                self._slots.setdefault(name, []).append((kernel, position))
            _set_sizes(launch, kernel.raw.set_arg)
        self._packed = packed_names(launches)
        self._nothing = runtime.wrap(np.zeros(16, np.int32))
        self._timed: Callable[[], None] | None = None
        self._has_run = False

    def set(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._timed = None
        for name, array in arrays.items():
            self._arrays[name], buffer = array, self._runtime.wrap(array)
            for kernel, position in self._slots.get(name, ()):
                kernel.set_arg(position, buffer)

    def release(self, names: Iterable[str]) -> None:
        self._timed = None
        for name in names:
            self._arrays.pop(name, None)
            for kernel, position in self._slots.get(name, ()):
                kernel.set_arg(position, self._nothing)

    def once(self) -> None:
        self._launch(self._once)

    def run(self) -> None:
        self._launch(self._each)
        self._has_run = True

    def _launch(self, launches: Sequence[tuple[Launch, Any]]) -> None:
        for one, kernel in launches:
            self._runtime.launch(kernel, one.blocks, one.threads, alone=one.alone)
        self._runtime.finish()

    def event_seconds(self) -> float:
        launched = [
            self._runtime.launch(kernel, one.blocks, one.threads, timed=True, alone=one.alone)
            for one, kernel in self._each
        ]
        self._runtime.finish()
        return sum(one.seconds() for one in launched)

    def reading(self, sweep: Callable[[], None] | None) -> Reading:
        wall = self.repeat(1, sweep)
        if self._timed != self.run:  # a second launch, through a queue, would tell of the queue
            return Reading(wall, None)
        if sweep is not None:
            sweep()
        return Reading(wall, self.event_seconds())

    def repeat(self, calls: int, sweep: Callable[[], None] | None) -> float:
        if self._timed is None:
            if not self._has_run:
                self.run()  # what is called without a queue is there once it has run through it
            called = self._called()
            self._timed = called.run if called else self.run
        seconds, in_a_row = 0.0, calls if sweep is None else 1
        for _ in range(calls // in_a_row):
            if sweep is not None:
                sweep()
            start = time.perf_counter()
            for _ in range(in_a_row):
                self._timed()
            seconds += (time.perf_counter() - start) / calls
        return seconds

    def prepare(self) -> PreparedLaunches | None:
        if not self._runtime.takes_addresses:
            return None
        return self._called() or self._queued()

    def _queued(self) -> PreparedLaunches:
        each = [(launch, self._module.kernel(launch.entry)) for launch, _ in self._each]
        for launch, kernel in each:
            _set_sizes(launch, kernel.raw.set_arg)
            for position, name in enumerate(launch.arguments):
                if name in self._arrays:  # a temporary, which stays
                    kernel.set_arg(position, self._runtime.wrap(self._arrays[name]))
        run = self._runtime.prepared([(k, one.blocks, one.threads, one.alone) for one, k in each])
        setters = self._setters([kernel.raw.set_arg for _, kernel in each])
        return PreparedLaunches(run, setters, self._runtime.memory, packed=self._packed)

    def _called(self) -> PreparedLaunches | None:
        """Launches without a queue; None where the runtime has no such."""
        launches = [launch for launch, _ in self._each]
        pool = self._runtime.pool
        if pool is None or any(one.threads > 1 for one in launches):
            return None
        groups = [
            self._module.work_groups(one.entry, one.blocks, len(one.arguments), one.alone, one.sizes)
            for one in launches
        ]
        if not all(groups):
            return None
        for launch, one in zip(launches, groups, strict=True):
            for position, name in enumerate(launch.arguments):
                if name in self._arrays:
                    one.addresses[position] = self._arrays[name].ctypes.data
        setters = self._setters([one.addresses for one in groups])
        return PreparedLaunches(
            pool.job(groups), setters, self._runtime.memory, by_address=True,
            call_with=partial(pool.call_with, groups), packed=self._packed, groups=groups,
        )  # fmt: skip

    def _setters(self, launches: Sequence[Any]) -> dict[str, list[tuple[Any, int]]]:
        """What sets each input and output, wherever a launch takes it, given what sets an argument of each launch."""
        setters: dict[str, list[tuple[Any, int]]] = {}
        for (launch, _), arguments in zip(self._each, launches, strict=True):
            for position, name in enumerate(launch.arguments):
                if name not in self._arrays:
                    setters.setdefault(name, []).append((arguments, position))
        return setters


def _set_sizes(launch: Launch, set_arg: Callable[[int, Any], Any]) -> None:
    for position, size in enumerate(launch.sizes, start=len(launch.arguments)):
        set_arg(position, np.int32(size))


def is_present(device: Device) -> bool:
    """Whether kernels for the device can run in this machine."""
    try:
        executor_for(device)
    except DeviceError:
        return False
    return True


def executor_for(device: Device) -> RuntimeExecutor:
    """The executor of a device that is present in this machine.

    Raises DeviceError that says what is missing: the hardware, or the runtime.
    """
    try:
        return RuntimeExecutor(runtime_for(device))
    except RuntimeUnavailableError as error:
        raise DeviceError(str(error)) from (error if isinstance(error, MendableError) else None)
