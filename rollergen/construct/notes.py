"""What `explain` says of construction: what the rules rejected, and how far grown tiles are from the best of all."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.construct.choose import choice, considered, limited, room_bytes
from rollergen.construct.options import ALL, GROW, BuildOptions
from rollergen.construct.roles import CONTRACTION, kind_of
from rollergen.dropped import collected_drops
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device


def construction_notes(
    graph: Graph, device: Device, options: BuildOptions = BuildOptions(), top_k: int = 10
) -> tuple[str, ...]:
    """For each tensor op of `graph`, what constraints rejected; for each contraction the grown tiles, and their
    distance from the model's own optimum.  Of other programs than launches, what their machine says.

    ``top_k``: as `construct` was asked for, whose choices are then at hand."""
    with collected_drops():  # who built the kernel has told of them
        device = limited(device, options)
        machine = device.kind.machine
        if machine is not None and machine.construct(graph, device, 1):
            return machine.notes(graph, device)
        return tuple(_notes(graph, device, options, top_k))


def _notes(graph: Graph, device: Device, options: BuildOptions, top_k: int) -> Iterator[str]:
    room, (count, few) = room_bytes(graph, device), considered(device, options, top_k)[0]
    for op in graph.tensor_ops:
        of = op, device, options.rules, count, room
        name, found = op.output.name, choice(*of, options.search, few)
        yield f"{name}: {found.account.text()}"
        if kind_of(op) == CONTRACTION:
            grown, best = choice(*of, GROW, few).candidates, choice(*of, ALL, few).candidates
            if grown and best:
                tile = " x ".join(f"{axis} {extent}" for axis, extent in grown[0].key[1])
                said, away = grown[0].seconds, grown[0].seconds / best[0].seconds - 1
                yield (
                    f"{name}: growth by data reuse alone would end at {tile} ({grown[0].variant}), predicted "
                    f"{said * 1e6:.4g} us: {away:+.1%} against the best of the whole aligned space, which is taken"
                )
