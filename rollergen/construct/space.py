"""The aligned space of an expression's heaviest tensor op: how large it is, and samples of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import islice

from rollergen.construct.candidate import Candidate
from rollergen.construct.choose import op_candidates, program_of, some_candidates
from rollergen.construct.drafts import SIZES
from rollergen.construct.ledger import Ledger
from rollergen.construct.options import BuildOptions
from rollergen.construct.roles import CONTRACTION, kind_of
from rollergen.construct.serial_space import exact, grid
from rollergen.construct.serial_structures import Structure, structures
from rollergen.construct.variants import variants
from rollergen.dropped import Drop, collected_drops, standing, tell
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram
from rollergen.space.engine import Points
from rollergen.tile.rules import AlignmentRules


@dataclass(frozen=True)
class Space:
    """All aligned programs of one tensor op (the others stay at their best).

    ``points`` counts them, and so does ``len``; iterating makes each that stands.  ``sample(count, seed)`` draws
    distinct ones uniformly, others for those that fail when they are made, which a `DropWarning` tells of.
    """

    points: int
    _at: Callable[[int], RProgram] = field(repr=False)

    def __len__(self) -> int:
        return self.points

    def __iter__(self) -> Iterator[RProgram]:
        every: list[Drop] = []
        for number in range(self.points):
            with collected_drops() as dropped:
                found = list(self._standing([number]))
            every += dropped
            yield from found
        tell(every)

    def sample(self, count: int, seed: int = 0) -> list[RProgram]:
        drawn = random.Random(seed)
        numbers = drawn.sample(range(self.points), min(count, self.points))
        with collected_drops() as dropped:
            found = list(self._standing(numbers))
            if dropped:
                known = set(numbers)
                others = drawn.sample(range(self.points), self.points)
                found += islice(self._standing([n for n in others if n not in known]), len(numbers) - len(found))
        tell(dropped)
        return found

    def _standing(self, numbers: Sequence[int]) -> Iterator[RProgram]:
        for number in numbers:
            yield from (one for _, one in standing([number], self._at, lambda number: f"point {number}"))


def space(graph: Graph, device: Device, options: BuildOptions = BuildOptions()) -> Space:
    """The aligned space of the tensor op that the model finds slowest."""
    rules = options.rules
    firsts = [some_candidates(d, device, options, 10)[0] for d in graph.tensor_ops]
    at = max(range(len(firsts)), key=lambda i: firsts[i].seconds)
    op = graph.tensor_ops[at]
    make = lambda one: program_of(graph, device, (*firsts[:at], one, *firsts[at + 1 :])).program
    if kind_of(op) == CONTRACTION and not device.kind.threads:
        blocks = list(_serial_blocks(op, device, rules))
        total = sum(len(points) for _, points in blocks)
        return Space(total, lambda number: make(_serial_point(blocks, number, device, rules)))
    candidates = op_candidates(op, device, rules, 10_000)
    return Space(len(candidates), lambda number: make(candidates[number]))


def _serial_blocks(op: TensorOp, device: Device, rules: AlignmentRules) -> Iterator[tuple[Structure, Points]]:
    for variant in variants(op, device, rules):
        for structure in structures(variant, device, rules):
            yield structure, grid(structure, device, rules, Ledger())


def _serial_point(
    blocks: list[tuple[Structure, Points]], number: int, device: Device, rules: AlignmentRules
) -> Candidate:
    for structure, points in blocks:
        if number < len(points):
            sizes = (int(points[name][number]) for name in SIZES)
            return exact(structure, structure.plan(*sizes), device, rules)
        number -= len(points)
    raise IndexError(number)
