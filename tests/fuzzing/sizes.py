"""Recipes of which one extent is known at the call: `rg.dim` in the place of a number, and the number again.

What a kernel computes at a size is held to the recipe that has the size written out, not to what `rg.dim` makes of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

from rollergen.errors import RollergenError
from rollergen.expr.dims import Sized
from tests.fuzzing.recipes import Recipe

LEAST = 7
"""Of an extent that is made a dim: smaller numbers are often axes and factors."""


@dataclass(frozen=True)
class SizedRecipe:
    """``recipe`` has the extent `known` at least once; kernels are built for sizes from ``low`` to ``high``."""

    recipe: Recipe
    known: int
    low: int
    high: int

    @property
    def opened(self) -> Recipe:
        """The recipe with the dim S."""
        return _rewritten(self.recipe, self.known, f'rg.dim("S", {self.low}, {self.high})')

    def at(self, size: int) -> Recipe:
        """The recipe with a number again."""
        return _rewritten(self.recipe, self.known, str(size))

    def sizes(self) -> tuple[int, ...]:
        """Those that are tried: the ends, and an odd one between."""
        return tuple(sorted({self.low, min((self.low + self.high) // 2 | 1, self.high), self.high}))


def sized(recipe: Recipe, seed: int) -> SizedRecipe | None:
    """The recipe with one of its inputs' extents known at the call; None where the language takes no other size."""
    random = Random(seed)
    extents = {extent for line in recipe.lines if line.given for extent in line.shape if extent >= LEAST}
    for known in random.sample(sorted(extents), len(extents)):
        found = SizedRecipe(recipe, known, random.choice([1, 2, known // 2]), known + random.choice([0, 1, 9]))
        try:
            told = [output.shape for output in found.opened.outputs() if isinstance(output, Sized)]
            for size in found.sizes():
                found.at(size).outputs()
        except RollergenError:
            continue
        if told:
            return found
    return None


def _rewritten(recipe: Recipe, number: int, text: str) -> Recipe:
    whole = rf"(?<![\w.]){number}(?![\w.])"
    return replace(recipe, lines=tuple(replace(line, text=re.sub(whole, text, line.text)) for line in recipe.lines))
