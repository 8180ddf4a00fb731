"""A model with dims: one call for all sizes, and a `Model` for each, whose kernels share their code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rollergen.errors import BundleError, DeviceError
from rollergen.explain.units import seconds_text
from rollergen.expr.dims import Dim, checked_sizes
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network
from rollergen.kernel import Kernel
from rollergen.network.building import by_library
from rollergen.network.execution import Shared
from rollergen.network.model import Model
from rollergen.network.partition import Step
from rollergen.network.sizes import NOT_AT_ALL_SIZES, Sizes, Steps
from rollergen.sizes.build import places_of
from rollergen.sizes.kernel import SizedKernel

MOST_KEPT = 32
"""Sizes whose models are kept, those called last: they share weights and the memory between steps."""


class SizedModel:
    """A compiled model whose sizes are known at the call; made by `rollergen.compile`.

    ``model(*arrays)`` is called as every `Model` is; the sizes are those of the arrays.  The first call with sizes
    takes some milliseconds for each distinct step, in which it is looked at and its program chosen; later calls look
    the model up.  No call compiles a kernel anew but the first that runs it, and those of steps that `explain` says
    are built per size, and of sizes, often 1, at which a step is another expression.
    """

    def __init__(self, steps: Steps, device: Device, alone: Callable[[Network], Model]) -> None:
        """``alone``: compiles a network that at its sizes has other nodes than at the largest."""
        self.device, self._steps, self._alone_of = device, steps, alone
        networks = steps.networks
        self._networks, self._shared, self._lock = networks, Shared(), threading.RLock()
        self._places = places_of(networks.dims, [(sizes, networks.at(sizes).inputs) for sizes in networks.differing])
        self._signature = self._told(networks.largest)
        steps.forget()
        self._models: dict[tuple[int, ...], Model] = {}
        self._alone: list[dict[str, int]] = []

    @property
    def dims(self) -> dict[str, Dim]:
        """The dims, by their names."""
        return dict(self._networks.dims)

    @property
    def kernels(self) -> tuple[SizedKernel | Kernel, ...]:
        """The distinct kernels: for all sizes, or of steps on which no size has a bearing."""
        return tuple(dict.fromkeys(one.kernel for one in self._steps.families if one.kernel is not None))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps at the largest sizes."""
        return self._steps.largest

    @property
    def signature(self) -> str:
        """Names, dtypes and shapes of the arrays of a call."""
        return self._signature

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The source model's result for these arguments; errors as `Model` has them, and ShapeError for a size out of
        range, which names the dim."""
        leaves = self._networks.largest.leaves(arrays, named)
        with self._lock:
            return self._at({one.dim.name: one.read(leaves[one.position]) for one in self._places})(*arrays, **named)

    def at(self, **sizes: int) -> Model:
        """The model for these sizes, with layers, times and checks; it shares its kernels' code with others.

        Raises ShapeError for a size out of range, ExpressionError for a name that is no dim or is missing.
        """
        checked = checked_sizes(sizes, self._networks.dims, "model.at")
        with self._lock:
            return self._at(checked)

    def predicted_time(self, **sizes: int) -> float:
        """Seconds of one call with these sizes by the device's model, as `Model.predicted_time`; errors as `at`."""
        return self.at(**sizes).predicted_time

    def save(self, directory: object) -> NoReturn:
        """Raises BundleError: a directory holds a model of one size."""
        raise BundleError(
            f"{self!r} cannot be saved: its kernels have extents as arguments; expected a model of one size, which "
            "rg.compile makes of example inputs"
        )

    def _at(self, sizes: dict[str, int]) -> Model:
        key = self._networks.key(sizes)
        model = self._models.pop(key, None) or self._made(sizes)
        self._models[key] = model
        while len(self._models) > MOST_KEPT:
            self._models.pop(next(iter(self._models)))
        return model

    def _made(self, sizes: dict[str, int]) -> Model:
        try:
            network = self._networks.at(sizes)
            if not self._networks.is_like_the_largest(network):
                self._alone.append(sizes)
                return self._alone_of(network)
            made: list[tuple[Step, Kernel | None]] = []
            for number, step in enumerate(self._steps.at(sizes)):
                try:
                    made.append((step, self._steps.kernel(number, sizes)))
                except NOT_AT_ALL_SIZES as error:
                    made += [(one, None) for one in by_library(step, error)]
            told = ", ".join(
                f"{one.dim.name} = {sizes[one.dim.name]} by dimension {one.axis} of {one.name}" for one in self._places
            )
            steps, kernels = [step for step, _ in made], tuple(kernel for _, kernel in made)
            return Model(network, steps, kernels, self.device, self._shared, f"as {told}")
        finally:
            self._steps.forget()

    def _told(self, largest: Network) -> str:
        """The signature, with dims where extents are theirs and ... where they follow from sizes."""
        every = [(sizes, self._networks.at(sizes)) for sizes in self._networks.differing]

        def extent(position: int, axis: int) -> object:
            each = [(sizes, (network.inputs[position].shape or ())[axis]) for sizes, network in every]
            if len({one for _, one in each}) == 1:
                return each[0][1]
            return next((name for name in self.dims if all(at[name] == one for at, one in each)), "...")

        inputs = ", ".join(
            f"{one.name}: {one.dtype}[{', '.join(str(extent(n, axis)) for axis in range(len(one.shape or ())))}]"
            for n, one in enumerate(largest.inputs)
        )
        return f"{largest.title}({inputs})"

    def explain(self, as_dict: bool = False) -> Any:
        """Which steps have kernels for all sizes, and which are built per size, and why; predicted times of the sizes
        that were called last.  Text, or the same facts as plain dicts and lists.  ``model.at(...).explain()`` has the
        times of each step at one size, ``model.kernels[n].explain()`` the map of one kernel."""
        facts = self._facts()
        return facts if as_dict else _text(facts)

    def _facts(self) -> dict[str, Any]:
        numbers = {kernel: number for number, kernel in enumerate(self.kernels)}
        return {
            "signature": self._signature,
            "device": self.device.name,
            "dims": {name: [one.low, one.high] for name, one in self.dims.items()},
            "kernels": len(numbers),
            "steps": [
                {
                    "source": step.source, "operators": step.operators,
                    "kernel": None if family.kernel is None else numbers[family.kernel],
                    "state": _state(step, family.kernel), "reason": family.reason,
                }
                for step, family in zip(self._steps.largest, self._steps.families, strict=True)
            ],
            "predicted_s": [
                {"sizes": dict(zip(self.dims, key, strict=True)), "seconds": model.predicted_time}
                for key, model in sorted(self._models.items())
            ],
            "sizes with a model of their own": self._alone,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<model {self._signature} on {self.device.name}: {len(self._steps.largest)} steps>"

    def __copy__(self) -> SizedModel:
        return self

    def __deepcopy__(self, memo: object) -> SizedModel:
        return self

    def __reduce__(self) -> Any:
        raise DeviceError(f"{self!r} cannot be pickled: its code is compiled for this process")


def _state(step: Step, kernel: SizedKernel | Kernel | None) -> str:
    if step.defined is None:
        return "host"
    if isinstance(kernel, Kernel):
        return "the same at all sizes"
    if kernel is None or not kernel.programs:
        return "built per size"
    return f"{len(kernel.programs)} program{'s' if len(kernel.programs) > 1 else ''} for all sizes"


def _text(facts: dict[str, Any]) -> str:
    lines = [f"{facts['signature']} on {facts['device']}"]
    lines += [f"  {name} from {low} to {high}" for name, (low, high) in facts["dims"].items()]
    lines.append(f"{len(facts['steps'])} steps, {facts['kernels']} distinct kernels")
    lines.append(f"{'kernel':>6}  {'sizes':26} source")
    for one in facts["steps"]:
        number = "-" if one["kernel"] is None else one["kernel"]
        why = f" ({one['reason']})" if one["reason"] else ""
        lines.append(f"{number:>6}  {one['state']:26} {one['source']}: {one['operators']}{why}")
    for one in facts["predicted_s"]:
        lines.append(f"predicted {_sizes_text(one['sizes'])}: {seconds_text(one['seconds'])}")
    if facts["sizes with a model of their own"]:
        every: Sequence[Sizes] = facts["sizes with a model of their own"]
        lines.append(f"sizes with a model of their own: {'; '.join(map(_sizes_text, every))}")
    return "\n".join(lines)


def _sizes_text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
