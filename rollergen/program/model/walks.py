"""The walks outward of one stage, of a program or of a batch of them."""

from __future__ import annotations

from rollergen.program.model.memory import Stream, Walk
from rollergen.program.model.nest import Nest, Waves, is_batch
from rollergen.program.model.stacked_walk import Outward, StackedWalk, outward_of


class Walks:
    """The walk outward for each line size, found once."""

    def __init__(self, nest: Nest, waves: Waves, streams: tuple[Stream, ...]) -> None:
        self._arguments = nest, waves, streams
        self._found: dict[int, Walk | StackedWalk] = {}
        self._outward: Outward | None = None

    def of_line(self, line: int) -> Walk | StackedWalk:
        found = self._found.get(line)
        if found is None:
            found = self._found[line] = self._walk(line)
        return found

    def _walk(self, line: int) -> Walk | StackedWalk:
        if not is_batch(self._arguments[0].loops):
            return Walk(*self._arguments, line)
        if self._outward is None:
            self._outward = outward_of(*self._arguments)
        return StackedWalk(*self._arguments, line, self._outward)
