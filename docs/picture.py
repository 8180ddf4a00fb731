"""Draws the README's picture from a real build: ``python docs/picture.py`` (needs matplotlib, some twenty seconds).

``--again`` draws what the picture shows anew, without building: measured times need an idle machine.

The way of one matrix product through rollergen on the CPU that is present: tiles, the bytes they move, the time that
the model predicts of them, and the measured times of the ten programs that it likes best.
"""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import rollergen as rg

TARGET = Path(__file__).with_name("picture.svg")
SIZE = 512
TEXT = 10
"""Points: the picture is as wide as a page of 400 pixels."""
BLUE, ORANGE, GREY = "#4878a8", "#c85a3c", "#8a8a8a"


def main() -> None:
    shown = kept() if "--again" in sys.argv else built()
    stage = shown["stage"]
    matplotlib.rcParams["svg.hashsalt"] = "picture"  # the same facts give the same file
    figure = Figure(figsize=(5.2, 5.6), layout="constrained")
    panels = list(figure.subplots(2, 2).flat)
    tiles(panels[0], stage)
    traffic(panels[1], stage)
    limiters(panels[2], stage)
    candidates(panels[3], shown["candidates"])
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=TEXT)
        panel.title.set_size(TEXT + 1)
        panel.xaxis.label.set_size(TEXT)
        panel.yaxis.label.set_size(TEXT)
    figure.savefig(TARGET, metadata={"Date": None, "Description": json.dumps(shown)}, facecolor="white")


def built() -> dict[str, Any]:
    """What is drawn of a build on this machine."""
    A, B = rg.tensor("A", (SIZE, SIZE)), rg.tensor("B", (SIZE, SIZE))
    facts = rg.build(rg.ops.matmul(A, B), "cpu", top_k=10, cache=False).explain(as_dict=True)
    stage = max(facts["stages"], key=lambda one: one["seconds"])  # the product, no copy before it
    drawn = ("tiles", "traffic_bytes", "limiters", "binding")
    times = ("predicted_seconds", "measured_seconds", "chosen")
    return {
        "stage": {name: stage[name] for name in drawn},
        "candidates": [{name: one[name] for name in times} for one in facts["candidates"]],
    }


def kept() -> dict[str, Any]:
    """What the picture holds of the build that it was drawn from."""
    (text,) = re.findall(r"<dc:description>(.*?)</dc:description>", TARGET.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(html.unescape(text))  # type: ignore[no-any-return]


def tiles(panel, stage) -> None:
    """Tiles of the result by level, each in the corner of the one that it is cut from."""
    panel.set_title("1 tiles")
    i, j = list(stage["tiles"][0]["tile"])[:2]
    levels: dict[tuple[int, int], list[str]] = {}  # those of equal tiles are one rectangle
    for one in stage["tiles"]:
        if {i, j} <= set(one["tile"]):
            levels.setdefault((one["tile"][i], one["tile"][j]), []).append(one["level"].split()[-1])
    for depth, ((rows, columns), names) in enumerate(levels.items()):
        panel.add_patch(Rectangle((0, 0), columns, rows, facecolor=BLUE, alpha=0.15 + 0.25 * depth, edgecolor="black"))
        place = (max(SIZE * 0.2, columns + SIZE * 0.1) if depth else SIZE * 0.2, SIZE * (0.95 - 0.32 * depth))
        line = {"arrowstyle": "-", "lw": 0.5} if depth else None  # the outermost one is the whole panel
        edge = (columns, min(rows, place[1]))
        panel.annotate(f"{', '.join(names)}:\n{rows} x {columns}", edge, place, fontsize=TEXT, arrowprops=line)
    panel.set(xlim=(-4, SIZE), ylim=(SIZE, -4), xticks=[], yticks=[])


def traffic(panel, stage) -> None:
    panel.set_title("2 bytes moved")
    named = {name: count for name, count in stage["traffic_bytes"].items() if count}
    panel.barh([f"from {name}" for name in named], [count / 2**20 for count in named.values()], color=BLUE)
    panel.set(xlabel="MiB")


def limiters(panel, stage) -> None:
    panel.set_title("3 predicted time")
    found = sorted(stage["limiters"], key=lambda one: one["seconds"])[-5:]
    colours = [ORANGE if one["name"] == stage["binding"] else GREY for one in found]
    panel.barh([one["name"] for one in found], [one["seconds"] * 1e3 for one in found], color=colours)
    panel.set(xlabel="ms; orange binds")


def candidates(panel, found) -> None:
    panel.set_title("4 ten programs")
    timed = [one for one in found if one["measured_seconds"] is not None]
    for one in timed:
        colour = ORANGE if one["chosen"] else BLUE
        panel.plot(one["predicted_seconds"] * 1e3, one["measured_seconds"] * 1e3, "o", color=colour, markersize=5)
    ends = [min(one["predicted_seconds"] for one in timed) * 950, max(one["measured_seconds"] for one in timed) * 1050]
    panel.plot(ends, ends, color=GREY, linewidth=0.8)
    panel.set(xlabel="predicted; orange won", ylabel="measured ms")


if __name__ == "__main__":
    main()
