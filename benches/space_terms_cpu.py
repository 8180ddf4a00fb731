"""What each term of the model is worth on the measured space of a CPU: it is left out, and each shape ranked again.

As `space_terms` does for GPUs: a term is left out by a changed device.  Beside them the same two older models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from statistics import fmean

from ranking import Ranking, rank
from space_terms import NEVER, clean_slate, free_layer, seconds, with_costs, with_layers

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

Row = Mapping[str, str]


def full_sets(layer: MemoryLayer) -> MemoryLayer:
    """Any line can lie anywhere."""
    return replace(layer, sets=1, ways=layer.sets * layer.ways) if layer.sets else layer


def without_walks(device: Device) -> Device:
    return with_costs(device, walk_clocks=0.0, walk_far_clocks=0.0)


def within_l2(device: Device) -> Device:
    """Whatever the L2 does not hold costs nothing more."""
    return without_walks(replace(free_layer("l3")(free_layer("dram")(device)), tlbs=()))


DEVICES: Mapping[str, Callable[[Device], Device]] = {
    "spills": lambda d: with_costs(d, spill_clocks=0.0, spill_narrow_clocks=0.0),
    "load ports": lambda d: free_layer("l1")(with_costs(d, load_ports=NEVER)),
    "issue": lambda d: with_costs(d, issue_per_clock=NEVER),
    "latency": lambda d: with_costs(d, reorder_window=NEVER),
    "everything beyond L2": within_l2,
    "L2": free_layer("l2"),
    "L3": free_layer("l3"),
    "memory": free_layer("dram"),
    "set conflicts (capacity alone)": lambda d: with_layers(d, full_sets),
    "gradual loss of lines (all or nothing)": lambda d: with_costs(d, keep_below=1.0, keep_above=1.0 + 1e-6),
    "column walks": without_walks,
    "misses in flight (always all)": lambda d: with_costs(d, miss_window=NEVER),
    "translation buffers": lambda d: replace(d, tlbs=()),
    "tiles, blocks, edges": lambda d: with_costs(d, tile_clocks=0.0, block_clocks=0.0, edge_clocks=0.0),
    "norm (the largest instead)": lambda d: with_costs(d, norm_exponent=32),
    "norm (the sum instead)": lambda d: with_costs(d, norm_exponent=1),
}


def without(programs: Sequence[RProgram], device: Device) -> Iterator[tuple[str, list[float]]]:
    """(term, predicted seconds of every program without it)."""
    for term, change in DEVICES.items():
        with clean_slate():
            yield term, seconds(programs, change(device))
    yield "packing stages", [float(predict(program, device).stages[-1].seconds) for program in programs]


def roller_seconds(row: Row, device: Device) -> float:
    """ROLLER's estimate of a row: the largest of arithmetic, what register tiles bring from the L1, and what an item's
    tiles bring from memory, each at its rate."""
    m, n, k = (int(row[name]) for name in "MNK")
    rows, columns = int(row["MR"]), int(row["NV"]) * int(row["VW"])
    points, per_second = m * n * k, device.clock_mhz * 1e6
    vector = device.instruction("vfma")
    register = 4 * points * (1 / rows + 1 / columns)
    memory = 4 * points * (1 / (rows * int(row["MP"])) + 1 / (columns * int(row["NP"])))
    l1 = next(layer for layer in device.layers if layer.name == "l1")
    clocks = (
        points / (vector.per_clock * vector.lanes), register / l1.bytes_per_clock,
        memory / device.backing.bytes_per_clock,
    )  # fmt: skip
    return max(clocks) / per_second


def ranked(predicted: Sequence[float], measured: Sequence[float], shapes: Sequence[str]) -> Ranking:
    """Means over the shapes (programs: their sum), each of which is ranked by itself."""
    found = []
    for shape in dict.fromkeys(shapes):
        own = [n for n, one in enumerate(shapes) if one == shape]
        found.append(rank([predicted[n] for n in own], [measured[n] for n in own]))
    means = {one.name: fmean(getattr(each, one.name) for each in found) for one in fields(Ranking)}
    return Ranking(**{**means, "programs": len(shapes), "tied": round(means["tied"])})
