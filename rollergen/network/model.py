"""A compiled model: a callable that says of each layer what it is and how long it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from rollergen.errors import ArgumentError, CheckFailedError, DeviceError, DtypeError, ShapeError, shown
from rollergen.explain.units import seconds_text
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.footprint import bytes_text
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.loading import load as load_kernel
from rollergen.network.checking import LayerCheck, layer_check
from rollergen.network.device_execution import CudaExecution, execution_for
from rollergen.network.execution import Execution, Shared
from rollergen.network.partition import Step
from rollergen.network.saving import is_model, read, save
from rollergen.program.model.prediction import predict
from rollergen.runtime.device_arrays import on_device
from rollergen.runtime.interop import is_torch, to_torch, view


@dataclass(frozen=True, slots=True)
class Layer:
    """One step of a model.

    ``source``: its nodes' names in the model; ``operators``: what they compute; ``kernel``: the number of its kernel
    among the distinct ones, from 0, None where the model's own library runs it, for the ``reason``.  ``predicted_s``
    by the device's model; ``measured_s``: median seconds within calls, where `Model.benchmark` has run, else of the
    kernel alone when it was built, None if it was not profiled.  ``bytes``: of what it reads and writes, weights
    included.  ``limiter``: what binds its longest launch.  ``share``: of the time of all layers, measured where all
    are, else predicted.
    """

    source: str
    operators: str
    kernel: int | None
    predicted_s: float | None
    measured_s: float | None
    bytes: int
    limiter: str
    share: float
    reason: str


@dataclass(frozen=True, slots=True)
class ModelTiming:
    """Medians in seconds: ``wall_s`` of a whole call, ``steps_s`` of each step within calls: between neighbouring
    launches of a CPU by the processor's ticks, which they read as they end, elsewhere by Python's clock.

    ``beside_s``: what a call takes beside its steps, both of the same call.  (The sum of ``steps_s`` may lie below the
    median of their sums: other programs disturb another step in each call.)"""

    wall_s: float
    steps_s: tuple[float, ...]
    rounds: int
    beside_s: float


BRIEF_LAYERS = 10


class Model:
    """A compiled model; made by `rollergen.compile`.

    ``model(*arrays)`` takes the arguments of the source model, as torch tensors or NumPy arrays, and returns what it
    returns, nested in the same way: torch tensors where all that went in are, else NumPy arrays.  On a CUDA GPU arrays
    that lie there (torch's, CuPy's) stay there, in torch's or CuPy's current stream.  Calls of several
    threads wait for each other: values between layers have one memory.

    A call raises ArgumentError for too few or too many arguments, ShapeError and DtypeError for arrays that are not as
    the example inputs were, and DeviceError where the device is not present.
    """

    def __init__(
        self, network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], device: Device,
        shared: Shared | None = None, told: str = "that of its example input (rg.compile with inputs of another shape "
        "makes a model for it)",
    ) -> None:  # fmt: skip
        """``shared``: memory that models of other sizes have too; ``told``: what the shapes of inputs are."""
        self.device, self._shared, self._told = device, shared or Shared(), told
        self.steps, self.kernels = tuple(steps), tuple(dict.fromkeys(one for one in kernels if one is not None))
        self._network, self._of = network, tuple(kernels)
        self._lock = threading.Lock()
        self._timing: ModelTiming | None = None

    def __repr__(self) -> str:
        counts = f"{len(self.steps)} steps, {len(self.kernels)} kernels"
        return f"<model {self._network.title} on {self.device.name}: {counts}>"

    @cached_property
    def _execution(self) -> Execution:
        return execution_for(self._network, self.steps, self._of, self.device, self._shared)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The source model's result for these arguments.

        Raises ArgumentError, ShapeError or DtypeError for arguments that do not fit, and DeviceError where the device
        is not present in this machine.
        """
        leaves = self._network.leaves(arrays, named)
        given = self._arranged(leaves)
        if (gpu := self._gpu_of(leaves)) is not None:
            with self._lock:
                return self._network.nested(list(gpu.called(given, leaves)))
        with self._lock:
            made = self._execution.run(given)
        torch = bool(leaves) and all(map(is_torch, leaves))
        return self._network.nested([to_torch(one) for one in made] if torch else made)

    def _gpu_of(self, leaves: Sequence[Any]) -> CudaExecution | None:
        """The model on a GPU in whose memory some of the arrays lie."""
        if not self.device.kind.threads or not any(map(on_device, leaves)):
            return None
        return self._execution if isinstance(self._execution, CudaExecution) else None

    def _arranged(self, leaves: Sequence[Any]) -> list[Any]:
        """Host arrays, or, where arrays lie on the GPU that the model runs on, their memory."""
        found, where = [], self._signature
        seen: Callable[[Any, str, object], Any] = view
        if (gpu := self._gpu_of(leaves)) is not None:
            seen = gpu.view
        for value, leaf in zip(self._network.inputs, leaves, strict=True):
            array = seen(leaf, value.name, where)
            if array.dtype != numpy_dtype(value.dtype):
                kind = array.dtype.name if array.dtype.isnative else array.dtype.str
                raise DtypeError(f"{value.name} has dtype {kind}; expected {value.dtype}: {where}")
            if array.shape != value.shape:
                raise ShapeError(
                    f"{value.name} has shape {array.shape}; expected {value.shape}, {self._told}: {where}"
                )
            found.append(array)
        return found

    @cached_property
    def _signature(self) -> str:
        inputs = (f"{one.name}: {one.dtype}[{', '.join(map(str, one.shape or ()))}]" for one in self._network.inputs)
        return f"{self._network.title}({', '.join(inputs)})"

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Names, shapes and dtypes of the arrays of a call."""
        return self._network.inputs

    @property
    def predicted_time(self) -> float:
        """Seconds of all kernels of one call by the device's model, launches included; steps that the model's own
        library runs are not counted."""
        return sum(kernel.predicted_time for kernel in self._of if kernel is not None)

    @property
    def measured_time(self) -> float | None:
        """Median seconds of one call, of the last `benchmark`; None before."""
        return None if self._timing is None else self._timing.wall_s

    def benchmark(self, /, *arrays: Any, rounds: int = 15, **named: Any) -> ModelTiming:
        """Times calls with these arguments after one that warms up; `layers` then has the times of each step."""
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ArgumentError(f"rounds is {shown(rounds)}; expected at least 1, an integer")
        self(*arrays, **named)
        walls, steps, beside = [], [], []
        with self._lock:
            self._execution.timed(self._arranged(self._network.leaves(arrays, named)))
        for _ in range(rounds):
            start = time.perf_counter()
            self(*arrays, **named)
            walls.append(time.perf_counter() - start)
            start = time.perf_counter()
            given = self._arranged(self._network.leaves(arrays, named))
            with self._lock:
                told = self._execution.timed(given)
                seconds = time.perf_counter() - start
                steps.append(told())
            beside.append(seconds - sum(steps[-1]))
        each = tuple(map(median, zip(*steps, strict=True)))
        self._timing = ModelTiming(median(walls), each, rounds, median(beside))
        return self._timing

    def check(self, /, *arrays: Any, **named: Any) -> tuple[LayerCheck, ...]:
        """Compares each kernel's result of one call with the float64 definition of its layer, within the gate's
        tolerance: at sampled points, corners and edges of tiles among them.  Steps that the model's own library runs
        are not checked.

        Raises CheckFailedError that names the first layer beyond its bound.
        """
        if any(step.defined is None and kernel for step, kernel in zip(self.steps, self._of, strict=True)):
            raise ArgumentError(f"{self!r} was loaded: only what rg.compile made has definitions to check against")
        given = self._arranged(self._network.leaves(arrays, named))
        found = []
        with self._lock:
            for step, kernel, (read, made) in zip(self.steps, self._of, self._execution.traced(given), strict=True):
                if kernel is None:
                    continue
                found.append(layer_check(step, kernel, read, made[0]))
                if found[-1].problem:
                    raise CheckFailedError(f"{step.source} ({step.operators}): {found[-1].problem}")
        return tuple(found)

    def save(self, directory: str | Path) -> Path:
        """Writes the model into a directory that runs without rollergen, and from which `rollergen.load` reads it.

        The directory must not exist, be empty, or be a saved model, which then is replaced; it is written whole or not
        at all: each distinct kernel as `Kernel.save` writes it, the weights with their SHA-256, and, where kernels have
        launchers (OpenCL C), run.py, which needs numpy and pyopencl, and run.c, which needs a C compiler.  What was
        nested in the source model is one array there, or a tuple of several.  Returns the directory's path.

        Raises BundleError where the directory is something else or cannot be written, ArgumentError for a model with
        steps that its own library runs, or without any.
        """
        return save(directory, self._network, self.steps, self._of, self.device)

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, memo: object) -> Model:
        return self  # nothing of a model changes but the times of `benchmark`

    def __reduce__(self) -> Any:
        raise DeviceError(
            f"{self!r} cannot be pickled: its code is compiled for this process; expected model.save(directory) here "
            "and rg.load(directory) there"
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The steps in the order in which they run."""
        numbers = {kernel: number for number, kernel in enumerate(self.kernels)}
        limiters = {kernel: _limiter(kernel) for kernel in self.kernels}
        predicted = [None if kernel is None else kernel.predicted_time for kernel in self._of]
        measured = [None if kernel is None else kernel.measured_time for kernel in self._of]
        if self._timing is not None:
            measured = list(self._timing.steps_s)
        times = predicted if None in measured else measured
        total = sum(one or 0.0 for one in times) or 1.0
        return tuple(
            Layer(
                step.source, step.operators, None if kernel is None else numbers[kernel], predicted[n], measured[n],
                self._bytes(step), "" if kernel is None else limiters[kernel], (times[n] or 0.0) / total, step.reason,
            )
            for n, (step, kernel) in enumerate(zip(self.steps, self._of, strict=True))
        )  # fmt: skip

    def _bytes(self, step: Step) -> int:
        read = (self._sizes[name] for name in step.inputs)
        return sum(read) + sum(self._sizes[value.name] for value in step.outputs)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return self._network.sizes()

    def facts(self) -> dict[str, Any]:
        """What `explain` says as plain dicts and lists, times in seconds; ``flops``: of each layer's kernel."""
        flops = {kernel: _flops(kernel) for kernel in self.kernels}
        return {
            "signature": self._signature,
            "device": self.device.name,
            "kernels": len(self.kernels),
            "predicted_s": self.predicted_time,
            "measured_s": self.measured_time,
            "layers": [
                {**asdict(one), "flops": 0 if kernel is None else flops[kernel]}
                for one, kernel in zip(self.layers, self._of, strict=True)
            ],
        }

    def explain(self, brief: bool = False) -> str:
        """What runs where, layer by layer, as text.  `brief`: the `BRIEF_LAYERS` layers that take longest, and the
        number of the others."""
        layers = self.layers
        shown = sorted(layers, key=lambda one: -one.share)[:BRIEF_LAYERS] if brief else layers
        host = sum(one.kernel is None for one in layers)
        measured = "" if self.measured_time is None else f", measured {seconds_text(self.measured_time)}"
        lines = [
            f"{self._signature} on {self.device.title} ({self.device.name})",
            f"{len(layers)} steps, {len(self.kernels)} distinct kernels, {host} steps run by the model's own library",
            f"predicted {seconds_text(self.predicted_time)}{' without these' if host else ''}{measured}",
            f"{'share':>6} {'predicted':>10} {'measured':>10} {'bytes':>10}  {'kernel':>6}  {'limiter':18} source",
        ]
        for one in shown:
            times = [("-" if s is None else seconds_text(s)) for s in (one.predicted_s, one.measured_s)]
            number = "host" if one.kernel is None else str(one.kernel)
            why = f" ({one.reason})" if one.reason else ""
            lines.append(
                f"{one.share:6.1%} {times[0]:>10} {times[1]:>10} {bytes_text(one.bytes):>10}  {number:>6}  "
                f"{one.limiter:18} {one.source}: {one.operators}{why}"
            )
        rest = len(layers) - len(shown)
        return "\n".join([*lines, f"{rest} steps more: explain() lists them"] if rest else lines)


def _limiter(kernel: Kernel) -> str:
    """What binds the kernel's longest launch."""
    stages = predict(kernel.program, kernel.device).stages
    return str(max(stages, key=lambda one: float(one.seconds)).binding) if stages else "nothing launched"


def _flops(kernel: Kernel) -> int:
    return sum(int(stage.flops) for stage in predict(kernel.program, kernel.device).stages if not stage.once)


def load(directory: str | Path) -> Model | Kernel:
    """What ``kernel.save(directory)`` or ``model.save(directory)`` wrote: the same source, times and explanation.

    Loading runs no code of it. Calling it runs its source: call only what you trust.
    Raises BundleError: nothing saved, another format, a file that was damaged or does not fit the others.
    """
    if isinstance(directory, (str, Path)) and is_model(directory):
        return Model(*read(directory))
    if isinstance(directory, (str, Path)) and (Path(directory) / "sizes.json").is_file():
        from rollergen.sizes.loading import load as load_sized  # which other kernels need not wait for

        return load_sized(directory)  # type: ignore[return-value]
    return load_kernel(directory)
