"""Which of the drafts on a CPU ask for panels, or lines of them, ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from rollergen.construct.candidate import Candidate, rounded
from rollergen.construct.reductions import next_panel_prefetched
from rollergen.construct.serial_structures import Structure
from rollergen.dropped import at_once
from rollergen.hal.spec import Device
from rollergen.program.loops import prefetched_lines, prefetched_loads, prefetches_lines
from rollergen.program.model import predict_stage, price_stages
from rollergen.program.model.limiters.limit import TAKES_TURNS
from rollergen.program.rprogram import SERIAL, Stage
from rollergen.tile.rules import ITEMSIZE


def prefetching(made: Sequence[tuple[Structure, Candidate]], device: Device) -> Iterator[Candidate]:
    """Those of the drafts that ask for what they read from beyond a unit's caches, where the model sees a gain: for
    the next panel while one is computed, or for lines ahead of the steps that read them."""
    found = []
    for structure, plain in made:
        if structure.staged or structure.asked or structure.ahead:
            continue
        (stage,) = plain.own
        for asking in (next_panel_prefetched(stage, structure.variant.roles.n), _prefetching_lines(stage, device)):
            if asking is not None:
                found.append((structure, plain, asking))
    for (_, plain, _), one in zip(found, _candidates([(own, asking) for own, _, asking in found], device), strict=True):
        if one.seconds < plain.seconds:
            yield one


def with_next_panels(
    made: Sequence[tuple[Structure, Candidate]], device: Device
) -> list[tuple[Structure, Candidate]]:
    """The drafts of a convolution by its taps, which ask for lines ahead.  Those of which a unit's caches hold two
    panels ask for the next one instead, whatever the model says: candidates are timed with warm weights, which tell
    nothing of it.

    (One core of a Zen 5, cold weights, us, lines and panels: 512 channels at 7 x 7 1295 and 1200, 256 to 512 with
    stride 2 at 14 x 14 702 and 634.)
    """
    say = lambda one: f"{one[1].variant}, next panel prefetched"
    return [(structure, one) for (structure, _), one in at_once(made, partial(_of_taps, device=device), say)]


def _of_taps(made: Sequence[tuple[Structure, Candidate]], device: Device) -> list[Candidate]:
    panels = [_next_panel_of_taps(structure, plain.own[0], device) for structure, plain in made]
    asking = [(structure, panel) for (structure, _), panel in zip(made, panels, strict=True) if panel is not None]
    found = iter(_candidates(asking, device))
    return [plain if panel is None else next(found) for (_, plain), panel in zip(made, panels, strict=True)]


def _next_panel_of_taps(structure: Structure, stage: Stage, device: Device) -> Stage | None:
    panel = None if stage.prefetch < 0 or structure.staged else next_panel_prefetched(stage, structure.variant.roles.n)
    return panel if panel is not None and _fits_twice(panel, device) else None


def _candidates(asking: Sequence[tuple[Structure, Stage]], device: Device) -> list[Candidate]:
    """With their prices, which are found together."""
    seconds = price_stages([stage for _, stage in asking], device).seconds.tolist() if asking else []
    return [
        structure.candidate(stage, device, rounded(structure.packing.copy_seconds(device) + one))
        for (structure, stage), one in zip(asking, seconds, strict=True)
    ]


def _fits_twice(stage: Stage, device: Device) -> bool:
    """Whether a unit's caches hold the panel at hand and the next one."""
    capacity = max((cache.capacity_bytes for cache in device.caches if cache.scope != "device"), default=0)
    inside = stage.loops[stage.prefetch + 1 :]
    loads = prefetched_loads(stage, stage.op.loads())
    size = lambda axes: prod(loop.extent for loop in inside if loop.axis in axes)
    return 2 * sum(size(load.axes()) * ITEMSIZE[load.dtype] for load in loads) <= capacity


_HIDDEN = 0.53
"""Share of the time of memory, or of the slowest cache, that arithmetic takes at least where asking for lines pays."""


def _prefetching_lines(stage: Stage, device: Device) -> Stage | None:
    """The stage with lines asked for ahead of the steps of its reduction; None where its loops do not allow it, or it
    waits for memory or a cache alone, which hardware's prefetchers keep busy.

    (One core of a Zen 4.  4096 x 4096 weights in float32, from memory: 8 rows, whose arithmetic takes .77 of memory's
    time, take 1.29 times as long without, 6 rows with .58 1.08 times, 4 rows with .39 .85 times.  1024 x 256, from the
    second cache: 2 rows with .93 1.06 times, 1 row with .48 .92 times, .94 among an LSTM's steps.)
    """
    serial = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL]
    if not serial or len(stage.op.reductions) != 1:
        return None
    asking = replace(stage, prefetch=serial[-1])
    if not (prefetches_lines(asking) and prefetched_lines(asking)):
        return None
    limiters = predict_stage(stage, device).limiters
    memory = sum(one.seconds for one in limiters if one.how == TAKES_TURNS)
    cache = max((one.seconds for one in limiters if one.name.endswith("bandwidth")), default=0.0)
    arithmetic = sum(one.seconds for one in limiters if one.name == "multiply-adds")
    return asking if arithmetic >= _HIDDEN * max(memory, cache) else None
