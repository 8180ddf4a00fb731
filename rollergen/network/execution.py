"""Calls of a model on a device whose kernels use host memory: buffers, weights and arguments are set once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from itertools import groupby, islice
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.errors import DeviceError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.languages import language
from rollergen.hal.runtimes.pocl_work_groups import WorkGroups
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.network.addressed import Addressed, fits
from rollergen.network.arena import ALIGNMENT_BYTES, Arena, arranged
from rollergen.network.partition import Step
from rollergen.network.places import Places, temporary
from rollergen.network.repeated import weight_of
from rollergen.network.weights_memory import WeightsMemory
from rollergen.runtime.executor import executor_for
from rollergen.runtime.ids import HostIds
from rollergen.runtime.session import Session


@dataclass
class Shared:
    """What the executions of a model at several sizes have in common, of which one runs at a time: ``block``, the
    memory of values between steps, as large as the largest of them so far; ``packed``: memory of packed weights, by the
    code of several sizes that reads them and the weights; ``weights``: those that calls read; both with the arrays they
    were made of.  ``memory``: where both lie on the host."""

    block: Any = None
    size_bytes: int = 0
    packed: dict[Any, tuple[dict[str, Any], tuple[Any, ...]]] = field(default_factory=dict)
    weights: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    memory: WeightsMemory = field(default_factory=WeightsMemory)

    def of_size(self, size_bytes: int, make: Callable[[int], Any]) -> Any:
        """A block of at least so many bytes."""
        if self.block is None or self.size_bytes < size_bytes:
            self.block, self.size_bytes = make(size_bytes), size_bytes
        return self.block


class Execution:
    """The steps of one model, ready to run; for one call at a time.

    What kernels read and write lies in one arena, but for inputs and results where launches are given addresses
    (`Addressed`).  Each step has launches of its own, all other arguments of which are set once.  Weights are packed
    once, for all steps of a kernel that read the same, and kept only where the launches of a call read them.  What a
    stage would join (`expr.joins`) lies joined, and the stage is not launched.

    In a call, neighbouring steps are one job where their launches are machine code (`Pool.job`): a launch that reads
    as much as the second cache holds drives Python's own code out of it, which takes 2 us of each step to come back.
    Of steps that read the same weights every other one walks them backwards, as its caches hold the last of them.
    """

    _joins_in_place = True

    def __init__(
        self, network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], device: Device, shared: Shared
    ) -> None:
        self._network, self._steps, self._device, self._shared = network, steps, device, shared
        self._held: dict[str, np.ndarray] = {}
        self._packed: dict[Any, tuple[dict[str, Any], tuple[Any, ...]]] = {}  # of kernels of this size alone
        self._read: dict[str, Any] = {}  # constants that are others at other sizes
        self._sessions: list[Session] = []  # they keep what launches know by its address
        self._groups: dict[Callable[[], None], Sequence[WorkGroups]] = {}
        self._walks: Counter[tuple[Kernel, str]] = Counter()  # of a weight by the steps of a kernel
        self._addressed = Addressed()
        self._place(places := Places(network, steps, kernels, ALIGNMENT_BYTES if self._joins_in_place else 0))
        self._left_out = places.left_out
        self._runs = [
            self._host(step) if kernel is None else self._launched(number, step, kernel)
            for number, (step, kernel) in enumerate(zip(steps, kernels, strict=True))
        ]
        self._jobs = [run for runs in self._together() for run in self._job(runs)]
        self._addressed.choose(network, places.values, places.joined)

    def _together(self) -> list[list[Callable[[], None]]]:
        """The steps, in groups of neighbours that are no more than calls of code, and of others."""
        return [list(runs) for _, runs in groupby(self._runs, self._groups.__contains__)]

    def _launches_of(self, runs: Sequence[Callable[[], None]]) -> list[WorkGroups]:
        """Of steps that are no more than calls of code."""
        return [one for run in runs for one in self._groups.get(run, ())]

    def _job(self, runs: list[Callable[[], None]]) -> list[Callable[[], None]]:
        """What a call runs of one group: all launches as one job, or each step."""
        if runs[0] not in self._groups:
            return runs
        groups = self._launches_of(runs)
        return [self._pool.job(groups)] if groups else []

    @property
    def _pool(self) -> Any:
        runtime: Any = executor_for(self._device).runtime
        return runtime.pool

    def _place(self, places: Places) -> None:
        """Gives each value its memory.  DeviceError on a device whose memory is not the host's."""
        device = self._device
        beside_the_host = device.kind.threads or language(device.kind.language).calls_take_device_arrays
        if beside_the_host and places.values:
            raise DeviceError(
                f"{device.name}: models are called on devices that use host memory (such as 'cpu'), OpenCL or CUDA, "
                "on this one their kernels (model.kernels) run one by one"
            )
        self.arena = places.within(arranged(places.lifetimes))
        make = lambda size: WeightsMemory().empty((size,), np.dtype(np.uint8))  # freed where it grows
        self._block = self._shared.of_size(max(self.arena.size_bytes, 1), make)
        self._arrays = {name: _placed(self._block, self.arena, value) for name, value in places.values.items()}

    def run(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """New arrays of the outputs."""
        self._take(inputs)
        for run in self._jobs:
            run()
        return self._results()

    def timed(self, inputs: Sequence[Any]) -> Callable[[], list[float]]:
        """One call, launches of neighbouring steps made as one job as in every call; what tells the seconds of each
        step, until the next: thousands of them take milliseconds to read, which are none of the call's."""
        jobs = self._timed_jobs
        self._take(inputs)
        told = [job() for job in jobs]
        self._results()
        return lambda: [seconds for one in told for seconds in one()]

    @cached_property
    def _timed_jobs(self) -> list[Callable[[], Callable[[], list[float]]]]:
        return [self._timed(runs) for runs in self._together()]

    def _timed(self, runs: list[Callable[[], None]]) -> Callable[[], Callable[[], list[float]]]:
        """What runs the steps of one group as `_job` does, and gives what tells the seconds of each."""
        groups = self._launches_of(runs)
        if not groups:
            return lambda: partial(list, [_seconds(run) for run in runs])
        job, counts = self._pool.timed(groups), [len(self._groups[run]) for run in runs]

        def of_steps(launches: Callable[[], list[float]]) -> list[float]:
            seconds = iter(launches())
            return [sum(islice(seconds, count)) for count in counts]

        return lambda: partial(of_steps, job())

    def traced(self, inputs: Sequence[Any]) -> Iterator[tuple[dict[str, np.ndarray], list[np.ndarray]]]:
        """(what a step read, what it made) after each step of one call, valid until the next."""
        self._take(inputs)
        for run, step in zip(self._runs, self._steps, strict=True):
            run()
            made = [self._array(value.name) for value in step.outputs]
            yield {name: self._array(name) for name in step.inputs}, made
        self._held.clear()
        self._addressed.given.clear()

    def _take(self, inputs: Sequence[Any]) -> None:
        """``inputs``: arrays of the host, or of where the model runs."""
        beside = 0
        for value, array in zip(self._network.inputs, inputs, strict=True):
            if value.name not in self._addressed.inputs:
                self._keep(value.name, array)
                continue
            if not fits(array):
                self._keep(value.name, array)
                array = self._arrays[value.name]
            beside = self._addressed.give(value.name, array)
        self._addressed.make_results(beside)

    def _keep(self, name: str, array: Any) -> None:
        if name in self._arrays:
            self._arrays[name][...] = array
        else:
            shares = isinstance(array, np.ndarray) and np.may_share_memory(array, self._block)
            self._held[name] = array.copy() if shares else array

    def _array(self, name: str) -> np.ndarray:
        for found in (self._addressed.given, self._arrays):
            if name in found:
                return found[name]
        return self._held_or_constant(name)

    def _held_or_constant(self, name: str) -> np.ndarray:
        return self._held[name] if name in self._held else self._network.constants[name]

    def _results(self) -> list[np.ndarray]:
        new = self._addressed.results
        made = [self._array(name) if name in new else self._array(name).copy() for name in self._network.outputs]
        self._held.clear()
        self._addressed.given.clear()
        return made

    def _host(self, step: Step) -> Callable[[], None]:
        (node,) = step.nodes
        self._addressed.add({value.name: value.name for value in step.outputs}, (), ())

        def run() -> None:
            made = node.host({name: self._array(name) for name in node.inputs})
            for value, array in zip(node.outputs, made, strict=True):
                self._keep(value.name, array)

        return run

    def _launched(self, number: int, step: Step, kernel: Kernel) -> Callable[[], None]:
        """The launches of a step, behind the check of the ids that they read by; of constants once."""
        run = self._arguments(number, step, kernel)
        if not (ids := HostIds(kernel.program)):
            return run
        given = dict(zip((b.name for b in kernel.program.inputs), step.inputs, strict=True))
        if not ids.scalars and {given[name] for name in ids.looks} <= set(self._network.constants):
            ids.check((), {name: self._network.constants[given[name]] for name in ids.looks})
            return run

        def checked() -> None:
            ids.check((), {name: self._array(own) for name, own in given.items()})
            run()

        return checked

    def _arguments(self, number: int, step: Step, kernel: Kernel) -> Callable[[], None]:
        """The launches of a step with all their arguments, once weights are packed."""
        if not (launches := self._launches(number, kernel)):
            self._groups[_nothing] = ()
            return _nothing
        session, program = kernel.new_session(launches), kernel.program
        given = dict(zip((b.name for b in program.inputs), step.inputs, strict=True))
        packed, fresh = self._packs(kernel, given)
        own = [b.name for b in program.temporaries if b.name not in packed]
        temporaries = {name: self._arrays[temporary(number, name)] for name in own}
        read = {name for launch in launches if not launch.once for name in launch.arguments}
        held = [b.name for b in program.inputs if b.constant and (fresh or b.name in read)]
        weights = {name: self._weight(given[name], name in read) for name in held}
        values = {b.name: self._memory(given[b.name]) for b in program.inputs if not b.constant}
        (output,) = program.outputs
        session.set({**packed, **temporaries, **weights, **values, output.name: self._arrays[step.outputs[0].name]})
        if fresh:
            session.once()
        session.run()
        session.release(name for name in weights if name not in read)
        self._sessions.append(session)
        prepared = session.prepare()
        groups = prepared.groups if prepared is not None and not kernel.signature.updates else ()
        changing = {name: given[name] for name in values} | {output.name: step.outputs[0].name}
        self._addressed.add(changing, launches, groups)
        if prepared is None:
            return session.run
        if prepared.groups:
            walk = kernel, weight_of(self._network, step.inputs)
            self._walks[walk] += 1
            back = bool(walk[1]) and self._walks[walk] % 2 == 0
            self._groups[prepared.run] = [one._replace(backwards=back) for one in prepared.groups]
        return prepared.run

    def _launches(self, number: int, kernel: Kernel) -> list[Launch]:
        """Those of a step's kernel that have something to do."""
        done, pairs = self._left_out.get(number, ()), zip(kernel.launches, kernel.program.stages, strict=True)
        return [launch for launch, stage in pairs if stage.op.output.name not in done]

    def _packs(self, kernel: Kernel, given: Mapping[str, str]) -> tuple[dict[str, Any], bool]:
        """(memory of what the kernel's launches pack, whether it is new): the same for all steps that pack the same
        weights.  ``given``: the values of the kernel's inputs."""
        once = {name for launch in kernel.launches if launch.once for name in launch.arguments}
        weights = tuple(self._network.constants[value] for name, value in given.items() if name in once)
        packed = self._packed if kernel.code is None else self._shared.packed
        key = kernel.code or kernel, *map(id, weights)
        fresh = key not in packed
        if fresh:
            made = {stage.op.output.name for stage in kernel.program.stages if stage.once}
            packed[key] = {b.name: self._new(b) for b in kernel.program.temporaries if b.name in made}, weights
        return packed[key][0], fresh

    def _memory(self, name: str) -> Any:
        """Of a value that launches read."""
        return self._arrays[name] if name in self._arrays else self._constant(name)

    def _constant(self, name: str) -> Any:
        """A constant that is no weight of the launches that read it."""
        if name not in self._read:
            self._read[name] = self._copied(self._network.constants[name])
        return self._read[name]

    def _copied(self, array: np.ndarray) -> Any:
        """An array as launches take it."""
        copy = self._shared.memory.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def _new(self, buffer: Buffer) -> Any:
        return self._shared.memory.empty(buffer.shape, numpy_dtype(buffer.dtype))

    def _weight(self, name: str, kept: bool) -> np.ndarray:
        """A weight as launches take it; one that they read in every call is copied, so that it stays as it is."""
        array = self._network.constants[name]
        if not kept:
            return np.require(array, requirements=("C", "A", "W"))
        if id(array) not in self._shared.weights:
            self._shared.weights[id(array)] = self._copied(array), array
        return self._shared.weights[id(array)][0]


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _nothing() -> None:
    """The launches of a step that has none."""


def _placed(block: np.ndarray, arena: Arena, value: Value) -> np.ndarray:
    start = arena.offsets[value.name]
    return block[start : start + value.size_bytes].view(numpy_dtype(value.dtype)).reshape(value.shape)
