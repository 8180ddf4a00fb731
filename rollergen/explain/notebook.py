"""A kernel as notebooks show it: bars of what takes the time, a roofline, the explanation and the source to unfold."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from math import log10

from rollergen.explain.explanation import Facts, seconds_text
from rollergen.explain.rooflines import Roofline

ROW, NAMES, BARS, TIMES = 18, 150, 300, 90  # pixels: the height of a bar, the widths of three columns
LETTER = 7.3
_PRE = "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.3"


def notebook(title: str, facts: Facts, texts: Sequence[tuple[str, str]], roofs: Roofline | None = None) -> str:
    """HTML without scripts or links, in the page's own colours: `texts` are summaries and what they unfold; `roofs` are
    drawn where anything is computed."""
    several = len(facts["stages"]) > 1
    drawn = "".join(
        (f"<div><code>{html.escape(stage['name'])}</code></div>" if several else "") + bars(stage)
        for stage in facts["stages"]
    )
    if roofs is not None and roofs.flops and roofs.slopes:
        drawn += drawn_roofline(roofs, facts)
    unfolded = "".join(
        f'<details><summary>{html.escape(summary)}</summary><pre style="{_PRE}">{html.escape(text)}</pre></details>'
        for summary, text in texts
    )
    return f"<b><code>{html.escape(title)}</code></b>{drawn}{unfolded}"


def bars(stage: Facts) -> str:
    """SVG: each limiter's time as a bar, longest first; the one that binds is filled, the others are pale."""
    limiters = sorted(stage["limiters"], key=lambda one: -one["seconds"])
    longest = limiters[0]["seconds"] or 1.0
    rows = []
    for number, one in enumerate(limiters):
        y, opacity = number * ROW, 1 if one["name"] == stage["binding"] else 0.25
        width = max(1.0, BARS * one["seconds"] / longest)
        rows.append(
            f'<text x="{NAMES - 6}" y="{y + 13}" text-anchor="end">{html.escape(one["name"])}</text>'
            f'<rect x="{NAMES}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" fill-opacity="{opacity}"/>'
            f'<text x="{NAMES + width + 6:.1f}" y="{y + 13}">{seconds_text(one["seconds"])}</text>'
        )
    return _svg(ROW * len(limiters), rows)


def drawn_roofline(roofs: Roofline, facts: Facts) -> str:
    """SVG, both axes logarithmic: a slope for each memory layer, named at its foot, under the roof of the instruction.

    At each layer's intensity stands a dot for the predicted time, and a ring for the measured one.
    """
    width, height, foot = BARS + TIMES, 9 * ROW, 2 * ROW
    left, right = map(log10, roofs.ends)
    times = [("1", facts["predicted_seconds"]), ("0", facts["measured_seconds"])]
    reached = [(fill, roofs.flops / seconds) for fill, seconds in times if seconds]
    lowest = min([*(rate for _, rate in reached), *(roofs.ends[0] * rate for rate in roofs.slopes.values())])
    low, high = log10(lowest), log10(max([roofs.roof, *(rate for _, rate in reached)])) + 0.1
    x = lambda intensity: NAMES + width * (log10(intensity) - left) / (right - left)
    y = lambda rate: ROW + height * (high - log10(rate)) / (high - low)
    line = lambda a, b: f'<path d="M{x(a[0]):.1f} {y(a[1]):.1f}L{x(b[0]):.1f} {y(b[1]):.1f}" stroke="currentColor"/>'
    roof = f"{roofs.instruction}, {roofs.roof / 1e9:,.0f} GFLOP/s"
    rows = [
        line((roofs.ends[0], roofs.roof), (roofs.ends[1], roofs.roof)),
        f'<text x="{NAMES + width}" y="{y(roofs.roof) - 4:.1f}" text-anchor="end">{html.escape(roof)}</text>',
    ]
    for number, (layer, rate) in enumerate(roofs.slopes.items()):
        rows.append(line((roofs.ends[0], roofs.ends[0] * rate), (roofs.roof / rate, roofs.roof)))
        at = roofs.intensity(layer)
        told = f"{layer} {rate / 1e9:.4g} GB/s, {at:.3g} operations a byte"
        rows.append(f'<text x="{NAMES}" y="{height + ROW * (number + 2)}">{html.escape(told)}</text>')
        rows += [
            f'<circle cx="{x(at):.1f}" cy="{y(speed):.1f}" r="4" fill-opacity="{fill}" stroke="currentColor"/>'
            for fill, speed in reached
        ]
    dots = [(x(roofs.intensity(layer)) + 7, layer) for layer in roofs.slopes]
    feet = [(y(roofs.ends[0] * rate) + 4, layer) for layer, rate in roofs.slopes.items()]
    rows += [
        f'<text x="{at:.1f}" y="{y(reached[0][1]) + 4:.1f}">{html.escape(layers)}</text>'
        for at, layers in _apart(dots, lambda layers: LETTER * len(layers) + 14)
    ]
    rows += [
        f'<text x="{NAMES - 6}" y="{at:.1f}" text-anchor="end">{html.escape(layers)}</text>'
        for at, layers in _apart(feet, lambda layers: ROW - 4)
    ]
    rows.append(f'<text x="{NAMES - 6}" y="{y(roofs.roof) + 4:.1f}" text-anchor="end">roofline</text>')
    return _svg(height + foot + ROW * len(roofs.slopes), rows)


def _apart(places: Sequence[tuple[float, str]], room: Callable[[str], float]) -> list[tuple[float, str]]:
    """Names at their places along an axis; those that would touch become one, at the last of their places.

    >>> _apart([(0, "l2"), (2, "dram"), (90, "l3")], lambda names: 10 * len(names))
    [(2, 'l2, dram'), (90, 'l3')]
    """
    found: list[tuple[float, str]] = []
    for at, name in sorted(places):
        touches = found and at - found[-1][0] < room(found[-1][1])
        found[-1:] = [(at, f"{found[-1][1]}, {name}")] if touches else [*found[-1:], (at, name)]
    return found


def _svg(height: int, rows: Sequence[str]) -> str:
    """At most as wide as the page."""
    width = NAMES + BARS + TIMES
    style = "font:12px monospace;fill:currentColor;display:block;margin:4px 0;max-width:100%;height:auto"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" style="{style}">{"".join(rows)}</svg>'
