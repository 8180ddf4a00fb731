"""How images between steps are stored: as the sum of predicted times is lower.

With their channels last, vectors of a CPU hold channels, which every tap of a convolution reads as they lie: tiles of
filters and of Winograd's transforms (`expr.winograd`) need no copies.  A step reads and writes either layout, so that
a conversion is part of a step and has its price there.

Within a halo of zeros: a convolution that pads what it reads copies it with the padding around it, in each call.  Who
makes the image can store it there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import fsum

from rollergen.importers.graph import Network
from rollergen.network.images import BARE, Halo, is_image, widest
from rollergen.network.partition import JOIN, Layouts, Step, kind_of, steps_of

Laid = tuple[tuple[Step, ...], Layouts]
"""Steps, and the images between them that are stored with their channels last."""

Prices = Callable[[Step], float]
Copied = Callable[[Step], Mapping[str, tuple[Halo, float]]]

WORTH = 0.005
"""Share of a model's time that copies take at least where images are stored within halos instead.  (ResNet-18 without
Winograd .7 % as the model has it, 3 % measured.  ResNet-50, whose three copies take .3 %, is compiled in 17.9 s without
looking for them, and in 21.3.)"""


def laid_out(
    network: Network,
    taking: bool,
    seconds: Prices,
    loose: Collection[str] = (),
    bound: Prices = lambda step: 0.0,
    compared: Prices | None = None,
    copied: Copied = lambda step: {},
) -> Laid:
    """The steps of `network`, images that are connected by steps in the layout in which all of these take fewer
    `seconds`; ``taking`` and ``loose`` as `steps_of` has them.  ``bound``: seconds that a step takes at least;
    ``compared``: those of a step that few models keep, in the model's own layout or within a halo; None: ``seconds``;
    ``copied``: the halos into which a step copies what it reads, of images with their channels last, and the seconds
    that this takes: less than `WORTH` of all steps' are not worth constructing other kernels."""
    made = lambda last: steps_of(network, taking, last, loose)
    steps, last = made({}), {}  # type: tuple[Step, ...], Layouts
    free = dict.fromkeys(_free(network, steps), BARE)
    seldom = compared or seconds
    exceed = partial(_exceed, bound=bound, compared=seldom)
    steps, last = _faster(made, steps, last, free, partial(exceed, seconds=seconds))
    halos, copying = _halos(steps, last, copied)
    if not halos or copying < WORTH * fsum(map(seconds, steps)):
        return steps, last
    return _faster(made, steps, last, halos, partial(exceed, seconds=seldom))


def _faster(
    made: Callable[[Layouts], tuple[Step, ...]], steps: tuple[Step, ...], last: Layouts, offered: Layouts,
    exceed: Callable[[Sequence[Step], Sequence[Step]], bool],
) -> Laid:  # fmt: skip
    """The steps, and how images are stored, with those that are connected by steps as ``offered`` where the steps that
    they touch ``exceed`` what these are then."""
    moved = made({**last, **offered}) if offered else ()
    taken: dict[str, Halo] = {}
    for group in _connected(steps, set(offered)):
        touched = [number for number, step in enumerate(steps) if group & _names(step)]
        if exceed([steps[n] for n in touched], [moved[n] for n in touched]):
            taken |= {name: offered[name] for name in group}
    if not taken:
        return steps, last
    stored = {**last, **taken}
    return (moved if taken == offered else made(stored)), stored


def _halos(steps: Sequence[Step], last: Layouts, copied: Copied) -> tuple[Layouts, float]:
    """(The halo of each image that is copied into one, as wide as all who read it ask for; seconds that copies take.)
    Joins and their parts have none: whole parts lie where they are joined, and nothing copies them there."""
    found: dict[str, Halo] = {}
    copying = 0.0
    for step in steps:
        moved = last.keys() & set(step.inputs)
        for name, (halo, seconds) in copied(step).items() if moved else ():
            if name in moved:
                found[name] = widest(halo, found.get(name, BARE))
                copying += seconds
    for step in steps:
        touched = _names(step) & found.keys()
        made = step.expression if touched else None
        if made is not None and kind_of(made) == JOIN:
            found = {name: halo for name, halo in found.items() if name not in touched}
    return found, copying


def _exceed(
    steps: Sequence[Step],
    others: Sequence[Step],
    seconds: Prices,
    bound: Prices,
    compared: Prices,
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
