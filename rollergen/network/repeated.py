"""Steps that read the weights of the step before them, as those of a recurrent network do.

Where the weights fill much of the cache next to a core, one walk drives out what the next one begins with.  So every
other step walks its blocks backwards (`execution.Execution`), and finds the last ones of the walk before in the cache.
For this the weights have to be dealt to several blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network
from rollergen.network.partition import Step
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

BLOCKS = 4
"""Of a launch that is walked in both directions, at least: each is walked forwards, so it has to lie in the cache."""

SLOWER = 1.4
"""How much slower, as the model sees it, than the best program one of so many blocks may be.  Walks in both directions
are worth some 8 %; the rest is what the model may think too little of two blocks of which the second is half empty."""


def weight_of(network: Network, names: Iterable[str]) -> str:
    """Of values that a step reads, the largest constant; "" where none is one."""
    constants = [name for name in names if name in network.constants]
    return max(constants, key=lambda name: network.constants[name].nbytes, default="")


def repeated(network: Network, steps: Sequence[Step], device: Device) -> frozenset[str]:
    """The texts (`Step.alike`) of steps that find in the second cache what others like them left there of the same
    weight: each core's part of it fills half of that cache, and what lies between two such steps does not."""
    if device.kind.threads or len(device.layers) < 3:
        return frozenset()
    half = device.layers[2].capacity_bytes / 2 * device.units
    ends: dict[tuple[str, str], float] = {}
    found: set[str] = set()
    moved: float = 0  # bytes of weights and results
    for step in steps:
        name = weight_of(network, step.inputs)
        use, own = (step.alike, name), network.constants[name].nbytes if name else 0
        if step.alike and own > half and use in ends and moved - ends[use] < half:
            found.add(step.alike)
        moved += own + sum(half if one.shape is None else one.size_bytes for one in step.outputs)
        ends[use] = moved
    return frozenset(found)


def in_blocks(settings: dict[str, Any], device: Device) -> dict[str, Any]:
    """``settings`` of a build that prefers programs of several blocks where they are about as fast, more of them first:
    a block is walked forwards, so that a walk back loses one.  The first one is taken: alone and in one direction,
    coarser ones look as good.

    (An LSTM of 10 layers, 256 units and 100 steps on a Zen 5, steps of 8 and of 4 blocks, which take 6.5 us alone
    either way: 9.6 and 11.2 ms.)
    """
    options = settings["options"]
    if not isinstance(options, BuildOptions) or options.rank is not None:
        return settings

    def rank(programs: Sequence[RProgram]) -> list[float]:
        seconds = [predict(one, device).seconds for one in programs]
        limit = min(seconds) * SLOWER
        blocks = [one.stages[-1].launched_blocks for one in programs]
        within = [n >= BLOCKS and s <= limit for s, n in zip(seconds, blocks, strict=True)]
        return [s * (1 + 1 / n) if ok else s + limit for s, n, ok in zip(seconds, blocks, within, strict=True)]

    return settings | {"options": replace(options, rank=rank), "top_k": 1}
