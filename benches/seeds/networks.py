"""Whole networks of the papers on devices that are absent: random weights, sizes as published, float32."""

from __future__ import annotations

from collections.abc import Sequence

from benches.seeds.finding import MODEL, Finding, Row
from benches.seeds.predicted import absent
from rollergen.hal.load import load_device
from rollergen.network.compiling import compile as compiled


def networks(device_name: str, cases: Sequence[tuple[str, int]], without: str = "") -> Finding:
    """Predicted times of networks by (name in `benches.networks`, batch); ``without``: what is left out, and why."""
    from benches.networks import network

    device = load_device(device_name)
    rows: list[Row] = []
    for name, batch in cases:
        module, inputs = network(name)
        many = tuple(one.repeat(batch, *(1,) * (one.ndim - 1)) for one in inputs)
        model = compiled(module, many, device, profile=False, cache=False)
        host = sum(one.kernel is None for one in model.layers)
        rows.append({
            "network": name, "batch": batch, "predicted ms": model.predicted_time * 1e3, "steps": len(model.steps),
            "kernels": len(model.kernels), "host steps": host,
        })  # fmt: skip
    ours = ", ".join(f"{row['network']} {row['predicted ms']:.3g}" for row in rows)
    return Finding(MODEL, f"{ours} ms predicted", tuple(rows), "; ".join(filter(None, (absent(device), without))))
