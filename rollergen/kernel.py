"""The result of a build: a callable that also says what it is, why, and how long it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollergen.emit import Launch, packed_names
from rollergen.errors import ArgumentError, BundleError, DeviceError, shown
from rollergen.explain.units import seconds_text
from rollergen.gate.memory import HOST, Memory
from rollergen.hal.languages import language
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.program.rprogram import RProgram
from rollergen.runtime.code import Code
from rollergen.runtime.device_arrays import on_device
from rollergen.runtime.ids import HostIds
from rollergen.runtime.interop import returned_arrays, view
from rollergen.runtime.mine import Local, Mine, not_made
from rollergen.runtime.packed import NEVER, Packed
from rollergen.runtime.session import Session, Timing
from rollergen.runtime.signature import Signature

if TYPE_CHECKING:
    from rollergen.bundle.references import References
    from rollergen.explain.plots import Plot
    from rollergen.measure.compile_report import CompileReport
    from rollergen.runtime.executor import Compiled
    from rollergen.runtime.gpu_calls import GpuCalls
    from rollergen.runtime.opencl_calls import OpenCLCalls


class Kernel:
    """A built kernel; made by `rollergen.build`.

    ``kernel(a, b)`` takes host arrays (NumPy's, torch's, any with DLPack) in the order of
    ``signature`` or by name and returns a new array of the inputs' kind (a tuple for several
    outputs); ``out=`` writes into the caller's instead and returns it.  Kernels for CUDA also take arrays of the GPU
    (CuPy's, torch's, any with DLPack or ``__cuda_array_interface__``).  Such calls return at once: their launches are
    queued in ``stream``, else in the current stream.  Calls are thread-safe: every thread has temporaries of its own,
    allocated at its first call and reused.  So a signal handler must not call a kernel with constant tensors that it
    may have interrupted.  A call raises ArgumentError for what is no such array or too few of them, ShapeError,
    DtypeError, and DeviceError where the device is not present.

    Constant tensors (weights) are packed at the first call, and again when another array object is passed, when the
    object refers to other memory (``weights.data = ...``), and when torch has counted a change of the tensor in
    place.  Other changes in place go unnoticed until `repack`: of NumPy arrays, through ``tensor.data`` or
    ``tensor.numpy()``, and of torch's inference tensors.
    """

    def __init__(
        self,
        device: Device,
        candidates: Sequence[Outcome],
        chosen: Outcome,
        cuts: Sequence[str] = (),
        growth: Callable[[], Sequence[str]] = tuple,
        *,
        references: References | None = None,
        code: Code | None = None,
    ) -> None:
        self.device = device
        self._growth, self._references = lru_cache(maxsize=1)(growth), references  # growth constructs again
        self.outcomes = tuple(candidates)
        self.signature = Signature(chosen.program.inputs, chosen.program.outputs)
        self._updates = self.signature.updates
        self._chosen, self._cuts = chosen, tuple(cuts)
        packed = packed_names(chosen.source.launches)
        self._packed_at = tuple(i for i, b in enumerate(chosen.program.inputs) if b.name in packed)
        self._names = tuple(b.name for b in (*chosen.program.inputs, *chosen.program.outputs))
        self._lock, self._local, self.code = threading.Lock(), Local(code), code
        self._compiled: Compiled | None = None
        self._memory: Memory = HOST
        self._gpu: GpuCalls | None = None
        self._cl: OpenCLCalls | None = None
        self._packs = 0
        self._ids = HostIds(chosen.program)

    @cached_property
    def candidates(self) -> tuple[Outcome, ...]:
        """All programs of the build in the model's order, with their sources.  (``outcomes`` has them as the build left
        them: where nothing was measured, the chosen one alone has its source.)

        Where they were measured, the chosen one alone was held to all of the gate's runs; ``rg.profile`` holds each."""
        from rollergen.measure.profiler import written_out

        return written_out(self.outcomes, self.device)

    @property
    def program(self) -> RProgram:
        """Every decision about the kernel, as one value."""
        return self._chosen.program

    @property
    def place(self) -> int:
        """The chosen program's place among `candidates`, from 0."""
        return next(number for number, one in enumerate(self.outcomes) if one is self._chosen)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Why each temporary exists."""
        return self._cuts

    @property
    def source(self) -> str:
        """The emitted source, all launches in one string."""
        return self._chosen.source.text

    @property
    def launches(self) -> tuple[Launch, ...]:
        """What is launched, in order: entry point, blocks, threads, buffers."""
        return self._chosen.source.launches

    @property
    def language(self) -> str:
        """Language of `source`."""
        return self._chosen.source.language

    @property
    def _on_device(self) -> bool:
        """Whether calls take arrays in the device's memory, in streams."""
        return language(self.language).calls_take_device_arrays

    @property
    def predicted_time(self) -> float:
        """Seconds of one call by the model, launches included."""
        return self._chosen.predicted_s

    @property
    def measured_time(self) -> float | None:
        """Median seconds of one call when the kernel was built, by the clock that ranks candidates: the host's, on a
        GPU the device's; None if it was not profiled."""
        return self._chosen.wall_s

    def __call__(self, /, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Runs the kernel and, where the arrays are in host memory, waits for it.

        Raises ArgumentError, ShapeError or DtypeError for arrays that do not fit ``signature``, and
        DeviceError where the device is not present in this machine.
        """
        mine = self._local.mine
        if named:
            arrays, named = self.signature.positional(arrays, named, out), {}
        if not named and stream is None:
            result = mine.call(arrays, out, mine.constants.packed, self._packs)
            if result is not None:
                return result
        if self._updates:
            arrays, named, out = self.signature.apart(arrays, named, out)  # type: ignore[assignment]
        if self._ids:
            arrays, named = self._ids.checked(arrays, named)  # type: ignore[assignment]
        return self._called(arrays, named, out, stream)

    def _called(self, arrays: tuple[Any, ...], named: Mapping[str, Any], out: Any, stream: Any) -> Any:
        """A call that is not prepared: a thread's first, and with arrays that are to be converted or refused."""
        from rollergen.runtime.gpu_calls import GpuCalls  # at the first call: finding a kernel needs no runtime
        from rollergen.runtime.opencl_calls import OpenCLCalls

        things = (*arrays, *named.values())
        if self._on_device and any(map(on_device, things)):
            with self._lock:
                self._gpu = self._gpu or GpuCalls(self.device, self.program, self.signature, self._chosen.source)
            results = self._gpu.call(arrays, named, out, stream, self._packs)
            if self._local.mine.call is not_made:
                self._local.mine.call = self._gpu.prepared()
            return results
        if OpenCLCalls.takes(self.device, things) and not self._on_device:
            with self._lock:
                self._cl = self._cl or OpenCLCalls(self.device, self.program, self.signature, self._chosen.source)
            return self._cl.call(arrays, named, out, stream, self._packs)
        if stream is not None and self._on_device:
            raise ArgumentError(f"stream={shown(stream)}: arrays in host memory are waited for; pass arrays of the GPU")
        if stream is not None:
            raise ArgumentError(
                f"stream={shown(stream)}: {self.device.name} has no streams for arrays in host memory; a call returns "
                "when it is done"
            )
        given = self.signature.arrange(arrays, named)
        passed = None if given is arrays else self.signature.passed(arrays, named)
        results = self.signature.results(out, given, passed)
        mine, session = self._local.mine, self._session()
        try:
            session.set(dict(zip(self._names, (*given, *results), strict=True)))
            if self._packed_at:
                self._pack(mine, session, self._originals(given if passed is None else passed))
            session.run()
        finally:
            session.release(self._names)
        self._prepare(mine, session, given if passed is None else passed)
        returned = returned_arrays(out, results, passed)
        return returned[0] if len(returned) == 1 else returned

    def _session(self) -> Session:
        """This thread's session for arrays in host memory, temporaries set."""
        mine = self._local.mine
        if mine.session is None:
            session = self.new_session()
            session.set(mine.constants.temporaries(self.program, self._memory))
            mine.session = session
        return mine.session

    def new_session(self, launches: Sequence[Launch] | None = None) -> Session:
        """A session for a caller that provides all buffers, temporaries included; of these `launches`, None: of all."""
        with self._lock:
            if self._compiled is None and self.code is not None:
                self._compiled, self._memory = self.code.launching(self.launches)
            if self._compiled is None:
                from rollergen.runtime.executor import executor_for

                executor = executor_for(self.device)
                self._compiled, self._memory = executor.prepare(self._chosen.source), executor.memory
            return (self._compiled if launches is None else self._compiled.launching(launches)).session()

    def _prepare(self, mine: Mine, session: Session, inputs: Sequence[Any]) -> None:
        """Prepares the calls that follow with arrays as these are."""
        mine.launches = mine.launches or session.prepare()
        if mine.launches is None:
            return
        from rollergen.runtime import prepared  # at a call, as it imports NumPy

        pairs = zip(self.program.inputs, inputs, strict=True)
        kind = prepared.arrays_like([one for buffer, one in pairs if buffer.name not in self._ids.scalars])
        if kind.array not in mine.calls:
            mine.calls[kind.array] = prepared.prepared_call(mine.launches, self.signature, kind, self._ids)
        mine.call = mine.calls[kind.array]

    def _originals(self, passed: Sequence[Any]) -> tuple[Any, ...]:
        """The constant arrays as they were passed (not the copies that strided ones become)."""
        return tuple(passed[i] for i in self._packed_at)

    def _pack(self, mine: Mine, session: Session, constants: tuple[Any, ...]) -> None:
        version = self._packs  # before packing: what is changed meanwhile is packed at the next call
        seen = [view(one, self._names[i], self.signature) for i, one in zip(self._packed_at, constants, strict=True)]
        if not mine.constants.packed.holds(version, constants, seen):
            mine.constants.packed = NEVER
            session.once()
            mine.constants.packed = Packed.of(version, constants, seen)

    def repack(self) -> None:
        """Packs constant tensors anew at the next call of every thread: after changing a NumPy array in place."""
        with self._lock:
            self._packs += 1

    def _arranged(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What a call with these arguments reads, and what it writes to: arrays of the caller's where it updates."""
        out = None
        if self._updates:
            arrays, named, out = self.signature.apart(arrays, named, None)
        arrays, named = self._ids.checked(arrays, named)
        given = self.signature.arrange(arrays, named)
        return given, self.signature.results(out, given)

    def interpret(self, /, *arrays: Any, **named: Any) -> Any:
        """The result computed by the interpreter, in NumPy, on any machine: exact and slow."""
        from rollergen.program.interpreter import interpret
        from rollergen.program.model.prediction import machine_of

        given, updated = self._arranged(arrays, named)
        inputs = dict(zip(self._names, (*given, *(updated if self._updates else ())), strict=False))
        machine = machine_of(self.program, self.device)
        outputs = (interpret if machine is None else machine.interpret)(self.program, inputs, self.device).outputs
        results = tuple(outputs[b.name] for b in self.program.outputs)
        return results[0] if len(results) == 1 else results

    def benchmark(self, /, *arrays: Any, rounds: int = 15, **named: Any) -> Timing:
        """Times calls with these host arrays after one call that warms up; the output is allocated once.

        ``wall_s`` includes the argument checks and the launch, ``event_s`` neither.
        """
        from statistics import median

        from rollergen.measure.profiler import cache_state

        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ArgumentError(f"rounds is {shown(rounds)}; expected at least 1, an integer")
        given, out = self._arranged(arrays, named)
        call = partial(self, *out, *given) if self._updates else partial(self, *given, out=out)
        call()
        walls, events = list[float](), list[float]()
        session = self._session()
        for _ in range(rounds):
            start = time.perf_counter()
            call()
            walls.append(time.perf_counter() - start)
            try:
                session.set(dict(zip(self._names, (*given, *out), strict=True)))
                event = session.event_seconds()
                events += [event] if event is not None else []
            finally:
                session.release(self._names)
        event_s = median(events) if events else None
        return Timing(median(walls), event_s, rounds, cache_state(self.program, self.device))

    def explain(self, as_dict: bool = False, brief: bool = False) -> Any:
        """Why the kernel is as it is: text (`brief` has the essentials), or the same facts as plain dicts and lists.

        Tiles of every level, bytes of every layer, waves and occupancy, the time of each limiter and
        which binds, how they join, the figures of the device that are assumed and move the time, the closed forms with
        numbers put in, the cuts, the runner-up and why it lost.
        """
        from rollergen.explain.assumed import assumed_figures
        from rollergen.explain.text import brief_text, explanation_text

        facts = self._facts()
        if brief and not as_dict:
            return f"{self.signature}\n{brief_text(facts)}"
        facts |= {"construction": list(self._growth()), "assumed": list(assumed_figures(self.program, self.device))}
        return facts if as_dict else f"{self.signature}\n{explanation_text(facts)}"

    def _facts(self) -> dict[str, Any]:
        """The facts of `explain` that are quick to find: all that short explanations and plots show."""
        from rollergen.explain.explanation import explanation

        facts = explanation(self._chosen, self.outcomes, self.device, self._cuts)
        if presence := language(self.language).mismatch(self.device):
            facts["presence"] = presence
        return {"signature": str(self.signature), "language": self.language, **facts}

    def compile_report(self) -> CompileReport:
        """What NVIDIA's compiler makes of the kernel for its real architecture, beside the model's prediction:
        registers, spills, shared memory, occupancy, and instructions where a disassembler is found.

        Needs ``rollergen[nvrtc]`` and no GPU.  Raises DeviceError for a device that is not programmed in CUDA,
        RuntimeUnavailableError where the compiler is not installed, BuildError where it does not support the
        architecture or refuses the source.
        """
        from rollergen.measure.compile_report import compile_report

        return compile_report(self.program, self.device, self._chosen.source)

    def save(self, directory: str | Path, *, candidate: int | None = None) -> Path:
        """Writes the kernel into a directory, from which `rollergen.load` reads it; OpenCL C runs without rollergen.

        ``candidate``: the number of another one of `candidates` to write in its place, so that they can be timed where
        rollergen does not run: the launchers tell the device's own time.

        The directory must not exist, be empty, or be a saved kernel, which then is replaced; whatever happens, it is
        written whole or not at all.  Beside source, program and manifest one in OpenCL C has launchers in Python
        (pyopencl) and C with a self-test: its README.md says how to run them.  Returns the directory's path.

        Raises BundleError where the directory is something else or cannot be written, ArgumentError where nothing
        says what a right result is (a kernel made of bare programs), and for a number that no candidate has.
        """
        from rollergen.bundle.manifest import Contents
        from rollergen.bundle.references import self_tests
        from rollergen.bundle.write import save

        count = len(self.outcomes)
        if candidate is not None and not (type(candidate) is int and 0 <= candidate < count):
            raise ArgumentError(f"candidate is {shown(candidate)}; expected None or an integer from 0 to {count - 1}")
        candidates = self.candidates  # once: another thread may write them, too
        chosen = self._chosen if candidate is None else candidates[candidate]
        if any(launch.sizes for launch in chosen.source.launches):
            raise BundleError("the kernel of one size has extents as arguments; expected save of that for all sizes")
        if not chosen.source.text:
            raise ArgumentError(f"candidate is {candidate}, which has no source: {'; '.join(chosen.problems)}")
        tests = (self._references or self_tests)(chosen.program)
        return save(Contents(self.device, candidates, chosen, self._cuts, tuple(self._growth()), tests), directory)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        return self  # nothing of a kernel changes but what `repack` is told

    def __reduce__(self) -> Any:
        raise DeviceError(
            f"{self!r} cannot be pickled: its code is compiled for this process; expected kernel.save(directory) here "
            "and rg.load(directory) there"
        )

    def __repr__(self) -> str:
        measured = "not measured" if self.measured_time is None else f"measured {seconds_text(self.measured_time)}"
        return f"<{self.signature} on {self.device.name}: predicted {seconds_text(self.predicted_time)}, {measured}>"

    def plot(self) -> Plot:
        """Bars of the limiters and a roofline, which notebooks show and ``.save("kernel.svg")`` writes.

        Needs ``rollergen[plots]``.  Raises DeviceError where matplotlib is missing, ArgumentError where nothing is
        launched.
        """
        from rollergen.explain.plots import plot_kernel

        return plot_kernel(repr(self), self._facts(), self.program, self.device)

    def _repr_html_(self) -> str:
        from rollergen.explain.notebook import notebook
        from rollergen.explain.rooflines import roofline

        facts = self._facts()
        launches = [one for one in facts["stages"] if not one["once"]]
        roofs = roofline(launches, self.program, self.device) if launches else None
        texts = (("explanation", self.explain()), (f"{self.language} source", self.source))
        return notebook(repr(self), facts, texts, roofs)
