"""Kernels for all sizes of a range: one call, several programs, and which of them runs is told by the sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollergen.emit import Source
from rollergen.errors import ArgumentError, ShapeError
from rollergen.explain.explanation import seconds_text
from rollergen.expr.dims import Dim, checked_sizes, out_of_range
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Outcome
from rollergen.program.rprogram import RProgram
from rollergen.runtime.code import Code, code_of
from rollergen.sizes.plan import Plan
from rollergen.sizes.regime import RegimeMap, priced

MOST_KEPT = 512
"""Sizes whose kernels are kept, those called last: each has a few arrays of Python objects, and its own temporaries."""


@dataclass(frozen=True)
class Place:
    """Where a call tells a dim: dimension ``axis`` of argument ``position``, ``name``, is ``factor`` times it."""

    dim: Dim
    name: str
    position: int
    axis: int
    factor: int = 1

    def read(self, array: Any) -> int:
        """The size that this array has.  Raises ShapeError where it is none of the dim's."""
        shape = getattr(array, "shape", None)
        if shape is None or len(shape) <= self.axis:
            raise ShapeError(
                f"{self.name} has shape {None if shape is None else tuple(shape)}; expected one whose dimension "
                f"{self.axis} tells {self.dim.name}"
            )
        size, rest = divmod(int(shape[self.axis]), self.factor)
        if rest or not self.dim.low <= size <= self.dim.high:
            where = f"dimension {self.axis} of {self.name}, which is {shape[self.axis]}"
            raise out_of_range(self.dim, size if not rest else shape[self.axis] / self.factor, where)
        return size


@dataclass(frozen=True)
class Program:
    """One kept plan with the kernels of all sizes, ``source``, and their machine code."""

    plan: Plan
    source: Source
    code: Code


class SizedKernel:
    """A built kernel of an expression with dims; made by `rollergen.build`.

    ``kernel(a, b)`` is called as every kernel is; the sizes are those of the arrays.  The first call with sizes takes
    some milliseconds: the model says which of the programs is best there, and the launches are made; later calls
    look the sizes up.  No call compiles a program anew but the first that runs it.

    Sizes at which the expression is another one (often 1, where an axis is dropped), and all where more than a count of
    rows depends on the sizes, have a kernel of their own, which is built and kept when they are first called.
    """

    def __init__(
        self,
        device: Device,
        text: str,
        places: Sequence[Place],
        regime: RegimeMap | None,
        programs: Sequence[Program],
        graph_at: Callable[[Mapping[str, int]], Graph | None],
        own: Callable[[Mapping[str, int]], Kernel],
        notes: Sequence[str] = (),
    ) -> None:
        self.device, self.signature, self.map = device, text, regime
        self._places, self._programs, self._notes = tuple(places), tuple(programs), tuple(notes)
        self._graph_at, self._own = graph_at, own
        self._kernels: dict[Any, Kernel] = {}
        self._alone: set[Any] = set()
        self._lock, self._packs = threading.Lock(), 0
        only = self._places[0] if len(self._places) == 1 and self._places[0].factor == 1 else None
        self._only = None if only is None else (only.position, only.axis)

    @property
    def dims(self) -> dict[str, Dim]:
        """The dims, by their names."""
        return {one.dim.name: one.dim for one in self._places}

    @property
    def programs(self) -> tuple[RProgram, ...]:
        """The kept programs, each as it was constructed at one size; none where every size has a kernel of its own."""
        return tuple(one.plan.program for one in self._programs)

    @property
    def sources(self) -> tuple[str, ...]:
        """The emitted source of each of the `programs`, in which extents are arguments."""
        return tuple(one.source.text for one in self._programs)

    def __call__(self, /, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Runs the kernel; arguments and errors as `Kernel` has them.  Raises ShapeError for a size out of range."""
        if self._only is not None and len(arrays) > self._only[0]:
            position, axis = self._only
            try:
                kernel = self._kernels[arrays[position].shape[axis]]
            except (KeyError, AttributeError, IndexError, TypeError):
                kernel = self._told_by(arrays, named)
        else:
            kernel = self._told_by(arrays, named)
        if not named and stream is None:  # as `Kernel` begins a call, but without another call of Python's
            mine = kernel._local.mine
            result = mine.call(arrays, out, mine.constants.packed, kernel._packs)
            if result is not None:
                return result
        return kernel(*arrays, out=out, stream=stream, **named)

    def at(self, **sizes: int) -> Kernel:
        """The kernel for these sizes, with program, source and explanation; it shares its code with others.

        Raises ShapeError for a size out of range, ExpressionError for a name that is no dim or is missing.
        """
        return self._at(checked_sizes(sizes, self.dims, "kernel.at"))

    def predicted_time(self, **sizes: int) -> float:
        """Seconds of one call with these sizes by the model, launches included; errors as `at`."""
        return self.at(**sizes).predicted_time

    def repack(self) -> None:
        """Packs constant tensors anew at the next call of every thread: after changing a NumPy array in place."""
        with self._lock:
            self._packs += 1
            for kernel in self._kernels.values():
                kernel.repack()

    def save(self, directory: str | Path) -> Path:
        """Writes the kernel for all sizes into a directory, from which `rollergen.load` reads it: programs, from which
        sources are written anew, and whole kernels of sizes that have their own.  Returns the directory's path.

        Every size is looked at, which takes some milliseconds each.  Raises BundleError where these are over 8192,
        where each has a kernel of its own, and as `Kernel.save`.
        """
        from rollergen.sizes.saving import save

        kept = [one.plan for one in self._programs]
        return save(self, kept, self.map, self._places, self._notes, self._graph_at, directory)

    def interpret(self, /, *arrays: Any, **named: Any) -> Any:
        """The result computed by the interpreter, in NumPy, on any machine: exact and slow."""
        return self._told_by(arrays, named).interpret(*arrays, **named)

    def _told_by(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Kernel:
        """The kernel for the sizes of these arrays."""
        sizes: dict[str, int] = {}
        for one in self._places:
            if one.position < len(arrays):
                array = arrays[one.position]
            elif one.name in named:
                array = named[one.name]
            else:
                raise ArgumentError(f"{one.name} is missing: {self.signature}")
            sizes[one.dim.name] = one.read(array)
        return self._at(sizes)

    def _key(self, sizes: Mapping[str, int]) -> Any:
        values = tuple(sizes[one.dim.name] for one in self._places)
        return values[0] if len(values) == 1 else values

    def _at(self, sizes: Mapping[str, int]) -> Kernel:
        key = self._key(sizes)
        with self._lock:
            kernel = self._kernels.pop(key, None)
            if kernel is None:
                kernel = self._made(sizes)
                for _ in range(self._packs):
                    kernel.repack()
            self._kernels[key] = kernel
            while len(self._kernels) > MOST_KEPT:
                self._kernels.pop(next(iter(self._kernels)))
        return kernel

    def _made(self, sizes: Mapping[str, int]) -> Kernel:
        """The kernel for sizes that were not called yet: of the program that the model finds fastest there."""
        graph = self._graph_at(sizes) if self._programs else None
        if graph is None:
            self._alone.add(self._key(sizes))
            return self._own(sizes)
        count = 1
        for one in self._places:
            count *= sizes[one.dim.name]
        able = [n for n, one in enumerate(self._programs) if count <= one.plan.most]
        if not able:
            self._alone.add(self._key(sizes))
            return self._own(sizes)
        some = [self._programs[n].plan.unchecked(count, self.device) for n in able]
        seconds = dict(zip(able, priced(some, self.device), strict=True))
        number = min(able, key=seconds.__getitem__)
        chosen = self._programs[number]
        program, source = chosen.plan.launched(chosen.source, count, self.device, graph)
        outcome = Outcome(number, program, source, seconds[number])
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        notes = (f"program {number + 1} of {len(self._programs)} for {told}, extents as arguments",)
        return Kernel(self.device, (outcome,), outcome, (), lambda: notes, code=chosen.code)

    def explain(self, as_dict: bool = False) -> Any:
        """The map: between which counts of rows which program is best, and its predicted time there; text, or the same
        facts as plain dicts and lists."""
        facts = self._facts()
        return facts if as_dict else _text(facts)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "signature": self.signature,
            "device": self.device.name,
            "dims": {name: [one.low, one.high] for name, one in self.dims.items()},
            "sizes with a kernel of their own": sorted(self._alone),
            "notes": list(self._notes),
        }
        if self.map is None or not self._programs:
            return facts | {"state": "built per size"}
        counts, seconds = list(self.map.counts), self.map.seconds
        facts["map"] = [
            {
                "from": first, "to": last, "program": number + 1,
                "seconds": [float(seconds[number, counts.index(first)]), float(seconds[number, counts.index(last)])],
            }
            for first, last, number in self.map.intervals()
        ]  # fmt: skip
        facts["programs"] = [
            {"program": n + 1, "constructed at": one.plan.count, "loops": _loops(one.plan)}
            for n, one in enumerate(self._programs)
        ]
        facts["loss"] = {"mean": float(self.map.loss.mean()), "max": float(self.map.loss.max())}
        count = len(self._programs)
        return facts | {"state": f"{count} program{'s' if count > 1 else ''} for all sizes"}

    def __repr__(self) -> str:
        return f"<{self.signature} on {self.device.name}: {self._facts()['state']}>"

    def __reduce__(self) -> Any:
        return self.at(**{name: one.high for name, one in self.dims.items()}).__reduce__()


def _loops(plan: Plan) -> list[str]:
    """Of each stage of a call: its loops, outermost first."""
    stages = [stage for stage in plan.program.stages if not stage.once]
    return [" ".join(f"{x.axis}:{x.kind} {x.extent}x{x.stride}" for x in stage.loops) for stage in stages]


def _text(facts: Mapping[str, Any]) -> str:
    lines = [facts["signature"], f"On {facts['device']}: {facts['state']}"]
    lines += [f"  {name} from {low} to {high}" for name, (low, high) in facts["dims"].items()]
    what = " x ".join(facts["dims"])
    if "map" in facts:
        lines += [f"{what}, program, predicted time"]
        for one in facts["map"]:
            first, last = (seconds_text(seconds) for seconds in one["seconds"])
            reach = f"{one['from']}" if one["from"] == one["to"] else f"{one['from']} to {one['to']}"
            time = first if one["from"] == one["to"] else f"{first} to {last}"
            lines.append(f"  {reach:<16} {one['program']:>3}   {time}")
        for one in facts["programs"]:
            lines.append(f"program {one['program']}, constructed at {one['constructed at']}")
            lines += [f"  {loops}" for loops in one["loops"]]
        loss = facts["loss"]
        lines.append(f"over the best constructed at sampled sizes: {loss['mean']:.3f} mean, {loss['max']:.3f} at most")
    if facts["sizes with a kernel of their own"]:
        lines.append(f"sizes with a kernel of their own: {facts['sizes with a kernel of their own']}")
    return "\n".join([*lines, *facts["notes"]])


def programs_of(regime: RegimeMap, low: int, device: Device) -> list[Program]:
    """The kept plans with their sources; nothing is compiled."""
    found = []
    for plan in regime.plans:
        source = plan.source(low, device)
        found.append(Program(plan, source, code_of(device, source)))
    return found
