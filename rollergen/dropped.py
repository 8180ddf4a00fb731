"""Candidates that fail while they are made: dropped and told, and never the end of a build while another one stands.

What makes candidates does it through the functions below: an error that is one candidate's own, whatever its type, ends
that candidate alone.  What the user asked for wrongly is refused before any candidate is made, or where none is left.
Running out of memory, an interrupt and an exit pass through.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from rollergen.errors import DropWarning, ProgramError, RollergenError
from rollergen.hal.dataclass import dataclass

Item = TypeVar("Item")
Made = TypeVar("Made")
Say = Callable[[Any], str]

MOST_HALVED = 64
"""Pieces of one batch that may fail before those that fail are dropped whole: it is then no single program's fault."""


MOST_NAMED = 10
"""Of drops, in an explanation."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A dropped candidate and its error; ``count``: of how many candidates, where they were tried together."""

    candidate: str
    error: Exception
    count: int = 1

    @property
    def text(self) -> str:
        """``direct, rm 4, lanes 16: ProgramError: stage matmul: ...``."""
        return f"{self.candidate}: {error_text(self.error)}"


def error_text(error: Exception) -> str:
    """``KeyError: 'mask8'``."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


_collecting: ContextVar[list[Drop] | None] = ContextVar("drops of the innermost `collected_drops`", default=None)
_raising = False


@contextmanager
def collected_drops() -> Iterator[list[Drop]]:
    """What is dropped inside, as a list that grows; outside of any, nothing is dropped and errors are raised."""
    found: list[Drop] = []
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


@contextmanager
def every_drop_raises(raising: bool = True) -> Iterator[None]:
    """In the whole process, nothing is dropped inside: tests and sweeps fail on the fault itself."""
    global _raising
    before, _raising = _raising, raising
    try:
        yield
    finally:
        _raising = before


def drop(candidate: str, error: Exception, count: int = 1) -> None:
    """Drops what is told of; raises the error where nobody collects drops, or `every_drop_raises`."""
    found = _collecting.get()
    if found is None or _raising or isinstance(error, MemoryError):
        try:
            raise error
        finally:
            del error  # its traceback holds this frame
    found.append(Drop(candidate, error.with_traceback(None), count))


def tell(drops: Sequence[Drop]) -> None:
    """Tells whoever collects drops of some that were found before; where nobody does, everybody, by a `DropWarning`."""
    found = _collecting.get()
    if found is not None:
        found += drops
    elif drops:
        warnings.warn(f"{drops_text(drops)}; the others stand", DropWarning, stacklevel=3)


def drops_text(drops: Sequence[Drop]) -> str:
    """``2 candidates dropped: direct, ...: KeyError: 'mask8'``: how many, and the first."""
    count = sum(one.count for one in drops)
    return f"{count} candidate{'s' if count > 1 else ''} dropped: {drops[0].text}"


def drop_notes(drops: Sequence[Drop]) -> tuple[str, ...]:
    """What `explain` says of them: each once, the first few by name."""
    different = list({one.text: one for one in drops}.values())
    more = len(different) - MOST_NAMED
    named = tuple(f"dropped: {one.text}" for one in different[:MOST_NAMED])
    return (*named, f"dropped: {more} more") if more > 0 else named


def standing(items: Iterable[Item], make: Callable[[Item], Made], say: Say = repr) -> list[tuple[Item, Made]]:
    """Each item with what `make` gives for it; those for which it raises are dropped."""
    found = []
    for item in items:
        try:
            found.append((item, make(item)))
        except Exception as error:
            drop(say(item), error)
    return found


def as_far_as_possible(items: Iterator[Item], what: str) -> Iterator[Item]:
    """The items, up to the first one that raises.  The rest, whose number is unknown, is dropped as one."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:
            drop(f"the rest of {what}", error)
            return
        yield item


def at_once(
    items: Sequence[Item], make: Callable[[Sequence[Item]], Sequence[Made]], say: Say = repr,
    size: Callable[[Item], int] = lambda item: 1, part: Callable[[Item, slice], Item] = lambda item, which: item,
) -> list[tuple[Item, Made]]:  # fmt: skip
    """Each item with what `make` gives for all of them together; where it raises, for each alone, `in_pieces`."""
    try:
        return list(zip(items, make(items), strict=True))
    except Exception as error:
        alone = lambda item: make([item])[0]
        found = [one for item in items for one in in_pieces(item, alone, size, part, say)]
        if len(found) == len(items) and all(one is item for (one, _), item in zip(found, items, strict=True)):
            drop(f"{len(items)} at once, each of which is right alone", error)
        return found


def in_pieces(
    batch: Item, make: Callable[[Item], Made], size: Callable[[Item], int], part: Callable[[Item, slice], Item],
    say: Say = repr,
) -> list[tuple[Item, Made]]:  # fmt: skip
    """(the batch, what `make` gives for it).  A batch for which it raises is halved, and so on, until the item that
    fails is alone and dropped.

    ``size``: of how many programs a batch is; ``part``: some of them.
    """
    found: list[tuple[Item, Made]] = []
    waiting, failed = [batch], 0
    while waiting:
        piece = waiting.pop()
        try:
            found.append((piece, make(piece)))
        except Exception as error:
            failed += 1
            count = size(piece)
            if count == 1 or failed > MOST_HALVED or _raising:
                drop(say(piece), error, count)
            else:
                half = count // 2
                waiting += [part(piece, slice(half, count)), part(piece, slice(half))]
    return found


def none_stands(drops: Sequence[Drop], what: str) -> RollergenError:
    """The error of the first, for where nothing is left: of its type, with its name and the number of the others."""
    first, others = drops[0], sum(one.count for one in drops) - 1
    kind = type(first.error) if isinstance(first.error, RollergenError) else ProgramError
    more = f"; {others} other{'s' if others > 1 else ''} failed, too" if others else ""
    return kind(f"{what}: no candidate stands: {first.text}{more}")


def plan_text(plan: Any) -> str:
    """What a plan (a dataclass) says beyond its defaults: ``ContractionPlan: rm 4, lanes 16``; of a batch, ranges."""
    chosen = [field.name for field in fields(plan) if not _is_default(plan, field)]
    return f"{type(plan).__name__}: {', '.join(f'{name} {_said(getattr(plan, name))}' for name in chosen)}"


def _is_default(plan: Any, field: Any) -> bool:
    value = getattr(plan, field.name)
    return field.default is not MISSING and not hasattr(value, "shape") and bool(value == field.default)


def _said(value: Any) -> str:
    return f"{value.min()} to {value.max()}" if getattr(value, "shape", ()) else str(value)
