"""Where the values of a model lie: which of them kernels touch, from which step to which, and what lies in a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.joins import joined
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.network.arena import Arena, Lifetime
from rollergen.network.partition import Step


class Places:
    """What lies in the arena, and when: values that kernels read or write, and temporaries of their launches.

    ``alignment``: bytes of which multiples are places for parts of joins, which then lie within what they are joined
    to; 0: none does.  ``left_out``: of each such step, the results of the stages that have nothing to do any more.
    """

    def __init__(
        self, network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], alignment: int = 0
    ) -> None:
        made = (value for step in steps for value in step.outputs)
        values = {value.name: value for value in (*network.inputs, *made)}
        first = {one.name: 0 for one in network.inputs}
        last: dict[str, int] = {}
        self._inputs = frozenset(first)
        self.values: dict[str, Value] = {}
        self.lifetimes: dict[str, Lifetime] = {}
        for number, (step, kernel) in enumerate(zip(steps, kernels, strict=True)):
            first |= {value.name: number for value in step.outputs}
            last |= dict.fromkeys((*step.inputs, *(value.name for value in step.outputs)), number)
            if kernel is not None:
                touched = (*step.inputs, *(value.name for value in step.outputs))
                self.values |= {name: values[name] for name in touched if name in values}
                self._temporaries(number, kernel)
        last |= dict.fromkeys(network.outputs, len(steps))
        for name, value in self.values.items():
            if name in values:
                self.lifetimes[name] = Lifetime(value.size_bytes, first[name], last[name])
        self.left_out: dict[int, list[str]] = {}
        self._within: dict[str, tuple[str, int]] = {}
        for number, (step, kernel) in enumerate(zip(steps, kernels, strict=True)):
            if kernel is not None and alignment:
                self._join(number, step, kernel, alignment)

    @property
    def joined(self) -> set[str]:
        """Values that lie within others, and those that these lie within."""
        return {name for part, (whole, _) in self._within.items() for name in (part, whole)}

    def within(self, arena: Arena) -> Arena:
        """The arena with the places of what lies within another value."""
        inner = {name: arena.offsets[whole] + at for name, (whole, at) in self._within.items()}
        return replace(arena, offsets={**arena.offsets, **inner})

    def _join(self, number: int, step: Step, kernel: Kernel, alignment: int) -> None:
        """Lays parts of the step's joins into what they are joined to, where all of a join can lie there."""
        given = dict(zip((b.name for b in kernel.program.inputs), step.inputs, strict=True))
        outer = {whole for whole, _ in self._within.values()}
        for stage in kernel.program.stages:
            op = stage.op
            parts = {given.get(name, ""): at * ITEMSIZE[op.output.dtype] for name, at in (joined(op) or {}).items()}
            whole = step.outputs[0].name if op.output.kind == "output" else temporary(number, op.output.name)
            free = all(name in self.lifetimes and name not in outer for name in parts)
            given_by_callers = all(name in self._inputs for name in parts)  # a launch reads them where they lie
            if stage.once or not parts or given_by_callers or not free or any(at % alignment for at in parts.values()):
                continue
            lives = [self.lifetimes.pop(name) for name in parts] + [self.lifetimes[whole]]
            first, last = min(one.first for one in lives), max(one.last for one in lives)
            self.lifetimes[whole] = replace(self.lifetimes[whole], first=first, last=last)
            self._within |= {name: (whole, at) for name, at in parts.items()}
            self.left_out.setdefault(number, []).append(op.output.name)
            outer.add(whole)

    def _temporaries(self, number: int, kernel: Kernel) -> None:
        packed = {stage.op.output.name for stage in kernel.program.stages if stage.once}
        for buffer in kernel.program.temporaries:
            if buffer.name not in packed:
                value = Value(temporary(number, buffer.name), buffer.shape, buffer.dtype)
                self.values[value.name] = value
                self.lifetimes[value.name] = Lifetime(value.size_bytes, number, number)


def temporary(number: int, name: str) -> str:
    """A name that no value of a model has."""
    return f"step {number}: {name}"
