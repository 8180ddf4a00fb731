"""What `explain` says of construction: what the rules rejected, and how far grown tiles are from the best of all."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.construct.choose import LEAST_CONSIDERED, choice, limited, room_bytes
from rollergen.construct.options import ALL, GROW, BuildOptions
from rollergen.construct.roles import CONTRACTION, kind_of
from rollergen.dropped import collected_drops
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device


def construction_notes(graph: Graph, device: Device, options: BuildOptions = BuildOptions()) -> tuple[str, ...]:
    """For each tensor op of `graph`, what constraints rejected; for each contraction the grown tiles, and their
    distance from the model's own optimum.  Of other programs than launches, what their machine says."""
    with collected_drops():  # who built the kernel has told of them
        device = limited(device, options)
        machine = device.kind.machine
        if machine is not None and machine.construct(graph, device, 1):
            return machine.notes(graph, device)
        return tuple(_notes(graph, device, options))


def _notes(graph: Graph, device: Device, options: BuildOptions) -> Iterator[str]:
    room = room_bytes(graph, device)
    for op in graph.tensor_ops:
        of = op, device, options.rules, LEAST_CONSIDERED, room
        name, found = op.output.name, choice(*of, options.search, None)  # as `construct` asks, whose answer is kept
        yield f"{name}: {found.account.text()}"
        if kind_of(op) == CONTRACTION:
            grown, best = choice(*of, GROW, None).candidates, choice(*of, ALL, None).candidates
            if grown and best:
                tile = " x ".join(f"{axis} {extent}" for axis, extent in grown[0].key[1])
                said, away = grown[0].seconds, grown[0].seconds / best[0].seconds - 1
                yield (
                    f"{name}: growth by data reuse alone would end at {tile} ({grown[0].variant}), predicted "
                    f"{said * 1e6:.4g} us: {away:+.1%} against the best of the whole aligned space, which is taken"
                )
