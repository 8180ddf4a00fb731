"""Figures of the CPU that is present: kernels checked against their float64 definition, then timed."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benches.seeds.bounds import roofline_seconds
from benches.seeds.finding import MEASURED, Finding, Row, mean_of
from benches.seeds.predicted import Named
from benches.timing import alternate, checked
from rollergen.bench.suites import Entry
from rollergen.expr.stages import cut
from rollergen.program.model import predict
from rollergen.targets import resolve

SECONDS = 0.5
"""Least seconds of timing for each operator."""


def _timed(name: str, make: Callable[[], Any], peer: Callable[..., Callable[[], object]] | None) -> tuple[Any, Row]:
    own = checked(name, make())
    calls = {"ours": own.call}
    if peer is not None:
        calls["peer"] = peer(own.arrays)
    times = alternate(calls, SECONDS)
    row: Row = {"operator": name, "measured us": 1e6 * median(times["ours"])}
    if peer is not None:
        row["peer us"] = 1e6 * median(times["peer"])
        row["ratio"] = median(t / o for o, t in zip(times["ours"], times["peer"], strict=True))
    return own.kernel.program, row


def convolutions(entries: tuple[Entry, ...]) -> Finding:
    """Each convolution against PyTorch's, in turns in one process; a ratio above 1: ours is faster."""
    rows = []
    for entry in entries:
        settings = {"stride": entry.fields["stride"], "padding": entry.fields["padding"]}
        rows.append(_timed(entry.id, entry.make, lambda arrays, s=settings: _torch_conv(arrays, s))[1])
    ours = f"{mean_of(rows, 'ratio'):.2f} times as fast as PyTorch, over {len(rows)} convolutions"
    return Finding(MEASURED, ours, tuple(rows))


def _torch_conv(arrays: list[np.ndarray], settings: dict[str, int]) -> Callable[[], object]:
    import torch

    x, w = (torch.from_numpy(array) for array in arrays)
    return lambda: torch.nn.functional.conv2d(x, w, **settings)


def layers(found: Named) -> Finding:
    """Throughput of each layer, predicted and measured: the bytes that leave it, over either time."""
    device, rows = resolve("cpu"), []
    for id, make in found:
        program, row = _timed(id, make, None)
        said = predict(program, device)
        seconds = row["measured us"] / 1e6
        row["predicted us"] = 1e6 * said.seconds
        for layer in dict(said.stages[0].traffic_bytes):
            sent = sum(dict(stage.traffic_bytes).get(layer, 0) for stage in said.stages)
            row[f"{layer} GB/s predicted"] = sent / said.seconds / 1e9
            row[f"{layer} GB/s measured"] = sent / seconds / 1e9
        row["measured over predicted"] = row["measured us"] / row["predicted us"]
        rows.append(row)
    ours = f"measured over predicted time {mean_of(rows, 'measured over predicted'):.2f}, over {len(rows)} operators"
    return Finding(MEASURED, ours, tuple(rows))


def saturation(found: Named) -> Finding:
    """Share of the measured time for which the busiest resource would be busy; share of the roofline beside it."""
    device, rows = resolve("cpu"), []
    for id, make in found:
        program, row = _timed(id, make, None)
        stages = predict(program, device).stages
        busiest = max((one for stage in stages for one in stage.limiters), key=lambda one: one.seconds)
        seconds = row["measured us"] / 1e6
        row |= {"saturated": busiest.name, "busy": busiest.seconds / seconds}
        row["share of the roofline"] = roofline_seconds(cut(make(), None), program, device) / seconds
        rows.append(row)
    share = sum(row["busy"] for row in rows) / len(rows)
    return Finding(MEASURED, f"the saturated layer is busy {100 * share:.0f} % of the time", tuple(rows))
