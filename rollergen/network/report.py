"""A page of a model: where its time goes, as bars by layer and as a roofline."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from rollergen.explain.units import seconds_text
from rollergen.network.model import Model
from rollergen.program.model.roofline import layer_rate, multiply_add_rate

WIDTH, HEIGHT, MARGIN = 640, 360, 48
_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:70em}td,th{padding:2px 8px;text-align:right}"
    "td:last-child,th:last-child{text-align:left}.bar{background:#4878a8;height:10px}.host .bar{background:#c85a3c}"
)


def page(model: Model) -> str:
    """HTML without scripts or links: title, bars of the layers' shares, a roofline of their kernels."""
    facts = model.facts()
    title = html.escape(f"{facts['signature']} on {model.device.title} ({model.device.name})")
    times = [f"predicted {seconds_text(facts['predicted_s'])}"]
    times += [f"measured {seconds_text(facts['measured_s'])}"] if facts["measured_s"] is not None else []
    rows = "\n".join(map(_row, facts["layers"]))
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>\n<h1>{title}</h1>\n'
        f"<p>{len(facts['layers'])} steps, {facts['kernels']} distinct kernels; {', '.join(times)}</p>\n"
        f"{_roofline(facts['layers'], model)}\n"
        '<table><tr><th>share</th><th style="width:12em"></th><th>predicted</th><th>measured</th><th>bytes</th>'
        f"<th>limiter</th><th>layer</th></tr>\n{rows}\n</table>\n"
    )


def _row(layer: Mapping[str, Any]) -> str:
    text = lambda seconds: "-" if seconds is None else seconds_text(seconds)
    why = f" ({layer['reason']})" if layer["reason"] else ""
    name = html.escape(f"{layer['source']}: {layer['operators']}{why}")
    return (
        f'<tr class="{"host" if layer["kernel"] is None else "kernel"}"><td>{layer["share"]:.1%}</td>'
        f'<td><div class="bar" style="width:{layer["share"]:.2%}"></div></td><td>{text(layer["predicted_s"])}</td>'
        f"<td>{text(layer['measured_s'])}</td><td>{layer['bytes']:,}</td><td>{layer['limiter']}</td><td>{name}</td></tr>"
    )


def _roofline(layers: list[Mapping[str, Any]], model: Model) -> str:
    """Operations a second over operations a byte, both logarithmic: a point a layer, as large as its share, under the
    bandwidth of the device's memory and the rate of the fastest instruction in the model."""
    points = []
    for one in layers:
        seconds = one["measured_s"] or one["predicted_s"]
        if one["flops"] and one["bytes"] and seconds:
            points.append((one["flops"] / one["bytes"], one["flops"] / seconds, one["share"], one["source"]))
    if not points:
        return ""
    stages = [stage for kernel in model.kernels for stage in kernel.program.stages]
    fastest = max(stages, key=lambda one: multiply_add_rate(one, model.device))
    roof = 2 * multiply_add_rate(fastest, model.device)
    memory, slope = model.device.backing.name, layer_rate(model.device.backing, model.device)
    corner = roof / slope
    (left, right), (low, high) = (_decades([p[axis] for p in [*points, (corner, roof)]]) for axis in (0, 1))
    x = lambda v: MARGIN + (math.log10(v) - left) / (right - left) * (WIDTH - 2 * MARGIN)
    y = lambda v: HEIGHT - MARGIN - (math.log10(v) - low) / (high - low) * (HEIGHT - 2 * MARGIN)
    first = max(10.0**left, 10.0**low / slope)  # where the slope enters the picture
    lines = [
        *(f'<text x="{x(10.0**d):.0f}" y="{HEIGHT - MARGIN / 2}">1e{d}</text>' for d in range(left, right + 1)),
        *(f'<text x="2" y="{y(10.0**d):.0f}">1e{d}</text>' for d in range(low, high + 1)),
        f'<text x="{WIDTH / 2 - 60}" y="{HEIGHT - 4}">operations a byte</text>',
        f'<text x="{MARGIN}" y="14">operations a second</text>',
        f'<path d="M{x(first):.1f} {y(first * slope):.1f}L{x(corner):.1f} {y(roof):.1f}H{WIDTH - MARGIN}" fill="none" '
        f'stroke="#888"/><text x="{WIDTH - MARGIN}" y="{y(roof) - 6:.1f}" text-anchor="end">{memory} '
        f"{slope / 1e9:,.4g} GB/s, {fastest.compute.instruction} {roof / 1e9:,.0f} GFLOP/s</text>",
        *(
            f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="{2 + 20 * math.sqrt(share):.1f}" fill="#4878a8" '
            f'fill-opacity=".5"><title>{html.escape(source)}</title></circle>'
            for a, b, share, source in points
        ),
    ]
    return f'<svg width="{WIDTH}" height="{HEIGHT}" style="border:1px solid #ccc">{"".join(lines)}</svg>'


def _decades(values: list[float]) -> tuple[int, int]:
    """Powers of ten below and above all values."""
    return math.floor(math.log10(min(values))), math.floor(math.log10(max(values))) + 1
