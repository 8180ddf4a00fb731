"""Kernels for all sizes as directories: the plans, of which each machine writes the source anew, the map, and whole
kernels for the sizes that have one of their own.

`sizes.json` holds what the kernel knows, `device.json` its device, `own-N` the kernel of size N; the manifest has the
hashes of both files.  What an expression is at a size nobody can tell without it, so every size is looked at while the
kernel is saved: some milliseconds each.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollergen.bundle.manifest import MANIFEST
from rollergen.bundle.write import take_place, temporary_beside
from rollergen.errors import BundleError
from rollergen.expr.dims import Dim
from rollergen.expr.stages import Graph
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.load import device_to_json
from rollergen.program import serial
from rollergen.program.rprogram import RProgram
from rollergen.sizes.facts import facts_of_map
from rollergen.sizes.plan import Plan
from rollergen.sizes.regime import RegimeMap

if TYPE_CHECKING:
    from rollergen.sizes.kernel import Place, SizedKernel

FORMAT, FACTS, DEVICE = "rollergen.sizes.v2", "sizes.json", "device.json"
MOST_SIZES, MOST_ALONE = 8192, 32
"""Sizes that are looked at, and of these with kernels of their own, which are saved whole."""

Sizes = Mapping[str, int]
Extent = tuple[int, tuple[str, ...]]
"""A number, times the sizes of the named dims."""


@dataclass(frozen=True)
class Shapes:
    """Inputs and outputs at every size; ``extents``: of each of these buffers, in order."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    extents: tuple[tuple[Extent, ...], ...]

    def at(self, sizes: Sizes) -> Graph:
        """The graph of a size, without what is computed."""
        value = lambda one: one[0] * prod(sizes[name] for name in one[1])
        buffers = [
            replace(buffer, shape=tuple(map(value, extents)))
            for buffer, extents in zip((*self.inputs, *self.outputs), self.extents, strict=True)
        ]
        count = len(self.inputs)
        return Graph(tuple(buffers[:count]), tuple(buffers[count:]), (), ())


def save(
    kernel: SizedKernel, plans: Sequence[Plan], regime: RegimeMap | None, places: Sequence[Place],
    notes: Sequence[str], graph_at: Callable[[Sizes], Graph | None], directory: str | Path,
) -> Path:  # fmt: skip
    """Writes the directory, whole or not at all, and returns its path; see `SizedKernel.save`.

    ``plans``: those of the map that passed the gate.
    """
    if regime is None or not plans:
        raise BundleError("every size has a kernel of its own, which is saved alone: expected kernel.at(...).save(...)")
    shapes, alone = _looked_at(kernel.dims, graph_at)
    facts = {
        "signature": kernel.signature,
        "places": [[p.dim.name, p.dim.low, p.dim.high, p.name, p.position, p.axis, p.factor] for p in places],
        "buffers": serial.to_json(RProgram(kernel.device.name, shapes.inputs, shapes.outputs, ())),
        "extents": [[[one[0], list(one[1])] for one in extents] for extents in shapes.extents],
        **facts_of_map(regime, plans),
        "alone": [dict(sizes) for sizes in alone],
        "notes": list(notes),
    }
    written = {FACTS: _json(facts), DEVICE: _json(device_to_json(kernel.device))}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in written.items()}
    target = Path(os.path.realpath(directory))
    _refuse_to_overwrite(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(target) as fresh:
            for sizes in alone:
                kernel.at(**sizes).save(fresh / own_name(sizes))
            for name, content in (*written.items(), (MANIFEST, _json({"format": FORMAT, "files": hashes}))):
                (fresh / name).write_bytes(content)
            take_place(fresh, target)
    except OSError as error:
        raise BundleError(f"{target}: the kernel cannot be saved there: {error.strerror or error}") from None
    return target


def own_name(sizes: Sizes) -> str:
    """The directory of the kernel of a size that has its own."""
    return "own-" + "-".join(str(size) for size in sizes.values())


def _json(value: Any) -> bytes:
    return (json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _looked_at(dims: Mapping[str, Dim], graph_at: Callable[[Sizes], Graph | None]) -> tuple[Shapes, list[Sizes]]:
    """(The shapes at every size, sizes that have kernels of their own)."""
    count = prod(one.high - one.low + 1 for one in dims.values())
    if count > MOST_SIZES:
        raise BundleError(
            f"{' and '.join(dims)} have {count} sizes, each of which would be looked at; expected at most {MOST_SIZES}"
        )
    ranges = [range(one.low, one.high + 1) for one in dims.values()]
    found = [(sizes, graph_at(sizes)) for each in product(*ranges) if (sizes := dict(zip(dims, each, strict=True)))]
    graphs = [(sizes, graph) for sizes, graph in found if graph is not None]
    alone: list[Sizes] = [sizes for sizes, graph in found if graph is None]
    if len(alone) > MOST_ALONE or not graphs:
        raise BundleError(f"{len(alone)} sizes have kernels of their own; expected at most {MOST_ALONE}")
    _, largest = graphs[-1]
    buffers = (*largest.inputs, *largest.outputs)
    extents = tuple(
        tuple(_extent(n, axis, graphs, dims) for axis in range(len(one.shape))) for n, one in enumerate(buffers)
    )
    return Shapes(largest.inputs, largest.outputs, extents), alone


def _extent(n: int, axis: int, graphs: Sequence[tuple[dict[str, int], Graph]], dims: Mapping[str, Dim]) -> Extent:
    """What an extent of a buffer is at every size."""
    each = [(sizes, (*graph.inputs, *graph.outputs)[n].shape[axis]) for sizes, graph in graphs]
    sizes, extent = each[-1]
    for names in _some_of(tuple(dims)):
        factor = extent // prod(sizes[name] for name in names)
        if all(own == factor * prod(at[name] for name in names) for at, own in each):
            return factor, names
    (*_, (_, graph)) = graphs
    raise BundleError(
        f"dimension {axis} of {(*graph.inputs, *graph.outputs)[n].name} is neither a number nor a multiple of sizes; "
        "expected such extents of a kernel that is saved"
    )


def _some_of(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for chosen in product((False, True), repeat=len(names)):
        yield tuple(name for name, taken in zip(names, chosen, strict=True) if taken)


def _refuse_to_overwrite(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir() or (any(target.iterdir()) and not is_sized(target)):
        raise BundleError(f"{target} is something else; expected a new name, an empty directory or such a kernel")


def is_sized(directory: str | Path) -> bool:
    """Whether a kernel for all sizes was saved there."""
    return (Path(directory) / FACTS).is_file() and (Path(directory) / MANIFEST).is_file()
