"""Which images between steps are stored with their channels last: those where the sum of predicted times is lower.

Vectors of a CPU then hold channels, which every tap of a convolution reads as they lie: tiles of filters and of
Winograd's transforms (`expr.winograd`) need no copies.  A step reads and writes either layout, so that a conversion is
part of a step and has its price there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from math import fsum

from rollergen.importers.graph import Network
from rollergen.network.images import is_image
from rollergen.network.partition import Step, steps_of

Laid = tuple[tuple[Step, ...], frozenset[str]]
"""Steps, and the images between them that are stored with their channels last."""


def laid_out(
    network: Network,
    taking: bool,
    seconds: Callable[[Step], float],
    loose: Collection[str] = (),
    bound: Callable[[Step], float] = lambda step: 0.0,
    compared: Callable[[Step], float] | None = None,
) -> Laid:
    """The steps of `network`, images that are connected by steps in the layout in which all of these take fewer
    `seconds`; ``taking`` and ``loose`` as `steps_of` has them.  ``bound``: seconds that a step takes at least;
    ``compared``: those of a step in the model's own layout, which few models keep; None: ``seconds``."""
    plain = steps_of(network, taking, (), loose)
    groups = _connected(plain, _free(network, plain))
    if not groups:
        return plain, frozenset()
    names = frozenset().union(*groups)
    moved = steps_of(network, taking, names, loose)
    last: set[str] = set()
    for group in groups:
        touched = [number for number, step in enumerate(plain) if group & _names(step)]
        if _exceeds([plain[n] for n in touched], [moved[n] for n in touched], seconds, compared or seconds, bound):
            last |= group
    return (moved if last == names else steps_of(network, taking, last, loose)), frozenset(last)


def _exceeds(
    steps: Sequence[Step],
    others: Sequence[Step],
    seconds: Callable[[Step], float],
    compared: Callable[[Step], float],
    bound: Callable[[Step], float],
) -> bool:
    """Whether `steps` take more seconds (``compared``) than the `others`, which stand for them one by one.

    Steps whose others exceed their bounds by most come first, and what decides nothing any more is not looked at: to
    find how long a step takes is to construct its kernel."""
    times, found = [seconds(one) for one in others], [bound(one) for one in steps]
    beyond: dict[str, float] = defaultdict(float)
    for step, time, least in zip(steps, times, found, strict=True):
        beyond[step.alike] += time - least  # a kernel that many steps share is constructed once
    limit = fsum(times)
    for number in sorted(range(len(steps)), key=lambda n: -beyond[steps[n].alike]):
        found[number] = compared(steps[number])
        if fsum(found) > limit:
            return True
    return False


def _free(network: Network, steps: Sequence[Step]) -> set[str]:
    """Images that kernels alone make and read: arguments, results and what the model's own library reads stay."""
    found = {one.name for step in steps if step.defined is not None for one in step.outputs if is_image(one)}
    held = {name for step in steps if step.defined is None for name in step.inputs}
    return found - held - set(network.outputs)


def _names(step: Step) -> set[str]:
    return {*step.inputs, *(one.name for one in step.outputs)}


def _connected(steps: Sequence[Step], free: set[str]) -> list[set[str]]:
    """Groups of those that steps have in common."""
    groups: list[set[str]] = []
    for step in steps:
        own = _names(step) & free
        if own:
            meeting = [group for group in groups if group & own]
            groups = [group for group in groups if not group & own] + [own.union(*meeting)]
    return groups
