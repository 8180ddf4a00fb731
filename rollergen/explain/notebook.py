"""A kernel as notebooks show it: bars of what takes the time, the explanation and the source to unfold."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rollergen.explain.explanation import Facts, seconds_text

ROW, NAMES, BARS, TIMES = 18, 150, 300, 90  # pixels: the height of a bar, the widths of three columns
_PRE = "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.3"


def notebook(title: str, facts: Facts, texts: Sequence[tuple[str, str]]) -> str:
    """HTML without scripts or links, in the page's own colours: `texts` are summaries and what they unfold."""
    several = len(facts["stages"]) > 1
    drawn = "".join(
        (f"<div><code>{html.escape(stage['name'])}</code></div>" if several else "") + bars(stage)
        for stage in facts["stages"]
    )
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
    size = f'width="{NAMES + BARS + TIMES}" height="{ROW * len(limiters)}"'
    style = "font:12px monospace;fill:currentColor;display:block;margin:4px 0"
    return f'<svg {size} role="img" style="{style}">{"".join(rows)}</svg>'
