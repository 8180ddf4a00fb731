"""The smallest recipe that still fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from rollergen.errors import RollergenError
from tests.fuzzing.recipes import Line, Recipe, used

Fails = Callable[[Recipe], bool]


def minimised(recipe: Recipe, fails: Fails, tries: int = 80) -> Recipe:
    """Smaller recipes are tried, the boldest cuts first, until none of them fails or the tries are used up."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _smaller(recipe):
            tries -= 1
            if tries < 0:
                break
            if _means_something(candidate) and fails(candidate):
                recipe, smaller = candidate, True
                break
    return recipe


def _means_something(recipe: Recipe) -> bool:
    try:
        return all(tensor.producer is not None for tensor in recipe.outputs())
    except (RollergenError, NameError):
        return False


def _smaller(recipe: Recipe) -> Iterator[Recipe]:
    lines = recipe.lines
    if recipe.also:
        yield used(Recipe(lines))
        yield used(Recipe(lines[: [line.target for line in lines].index(recipe.also) + 1]))
    for end in range(1, len(lines)):
        if not lines[end - 1].given:
            yield used(Recipe(lines[:end]))
    for at, line in enumerate(lines[:-1]):
        if not line.given:
            given = replace(line, text=f'T("{line.target}", {line.shape}, "{line.dtype}")')
            yield used(Recipe((*lines[:at], given, *lines[at + 1 :])))
    for at, line in enumerate(lines):
        if not line.given:
            yield from (used(Recipe(_without(lines, at, other))) for other in lines[:at] if other.dtype == line.dtype)
    numbers = sorted({int(n) for line in lines for n in re.findall(r"\b\d+\b", line.text)}, reverse=True)
    for number in numbers:
        for less in sorted({1, 2, number // 2, number - 1}):
            if 0 < less < number:
                yield _renumbered(recipe, number, less)
    for dtype in {line.dtype for line in lines} - {"float32"}:
        yield Recipe(tuple(replace(line, text=line.text.replace(f'"{dtype}"', '"float32"')) for line in lines))


def _without(lines: tuple[Line, ...], at: int, other: Line) -> tuple[Line, ...]:
    """Line `at` left out, `other` in its place."""
    rest = tuple(replace(o, text=re.sub(rf"\b{lines[at].target}\b", other.target, o.text)) for o in lines[at + 1 :])
    return (*lines[:at], *rest) if rest else lines[:at]


def _renumbered(recipe: Recipe, number: int, less: int) -> Recipe:
    return Recipe(tuple(replace(one, text=re.sub(rf"\b{number}\b", str(less), one.text)) for one in recipe.lines))
