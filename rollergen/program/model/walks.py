"""The walks outward of one stage, of a program or of a batch of them."""

from __future__ import annotations

from dataclasses import replace

from rollergen.program.model.costs import Costs
from rollergen.program.model.memory import Cache, Stream, Walk
from rollergen.program.model.nest import Nest, Waves, is_batch
from rollergen.program.model.numeric import Number
from rollergen.program.model.stacked_walk import Outward, StackedWalk, outward_of


class Walks:
    """The walk outward for each line size, and what it fetches past each cache, found once."""

    def __init__(self, nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> None:
        self.waves = waves
        self._arguments = replace(nest, unbuffered={}), waves, streams  # which holds these walks: no cycle
        self._found: dict[int, Walk | StackedWalk] = {}
        self._fetched: dict[tuple[int, Cache | None], list[Number]] = {}
        self._batch = is_batch(nest.loops)
        self._outward: Outward | None = None

    def of_line(self, line: int) -> Walk | StackedWalk:
        found = self._found.get(line)
        if found is None:
            found = self._found[line] = self._walk(line)
        return found

    def fetched(self, line: int, cache: Cache | None, costs: Costs) -> list[Number]:
        """As `Walk.fetched`."""
        if self._batch:
            return self.of_line(line).fetched(cache, costs)
        found = self._fetched.get((line, cache))
        if found is None:
            found = self._fetched[line, cache] = self.of_line(line).fetched(cache, costs)
        return found

    def _walk(self, line: int) -> Walk | StackedWalk:
        if not self._batch:
            return Walk(*self._arguments, line)
        if self._outward is None:
            self._outward = outward_of(*self._arguments)
        return StackedWalk(*self._arguments, line, self._outward)


def walked_anew(nest: Nest) -> Nest:
    """The nest for other waves: whose walks are not those found before."""
    return replace(nest, unbuffered={key: found for key, found in nest.unbuffered.items() if key is not Walks})


def walks_of(nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> Walks:
    """Those of a nest that differs in its tiles' buffers alone, where as many blocks run together."""
    found: Walks | None = nest.unbuffered.get(Walks)
    if found is None or found.waves.together != waves.together:
        found = nest.unbuffered[Walks] = Walks(nest, waves, streams)
    return found
