"""Draws the README's picture from a real build: ``python docs/picture.py`` (needs matplotlib, some twenty seconds).

The way of one matrix product through rollergen on the CPU that is present: tiles, the bytes they move, the time that
the model predicts of them, and the measured times of the ten programs that it likes best.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import rollergen as rg

TARGET = Path(__file__).with_name("picture.svg")
SIZE = 512
BLUE, ORANGE, GREY = "#4878a8", "#c85a3c", "#8a8a8a"


def main() -> None:
    A, B = rg.tensor("A", (SIZE, SIZE)), rg.tensor("B", (SIZE, SIZE))
    facts = rg.build(rg.ops.matmul(A, B), "cpu", top_k=10, cache=False).explain(as_dict=True)
    stage = next(one for one in facts["stages"] if not one["once"])
    figure = Figure(figsize=(5.2, 5.2), layout="constrained")
    panels = list(figure.subplots(2, 2).flat)
    tiles(panels[0], stage)
    traffic(panels[1], stage)
    limiters(panels[2], stage)
    candidates(panels[3], facts["candidates"])
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        panel.xaxis.label.set_size(8)
        panel.yaxis.label.set_size(8)
    figure.savefig(TARGET, metadata={"Date": None}, facecolor="white")


def tiles(panel, stage) -> None:
    """Tiles of the result by level, each in the corner of the one that it is cut from."""
    panel.set_title("1 tiles of the result", fontsize=9)
    i, j = list(stage["tiles"][0]["tile"])[:2]
    levels: dict[tuple[int, int], list[str]] = {}  # those of equal tiles are one rectangle
    for one in stage["tiles"]:
        if {i, j} <= set(one["tile"]):
            levels.setdefault((one["tile"][i], one["tile"][j]), []).append(one["level"])
    for depth, ((rows, columns), names) in enumerate(levels.items()):
        panel.add_patch(Rectangle((0, 0), columns, rows, facecolor=BLUE, alpha=0.15 + 0.25 * depth, edgecolor="black"))
        label = f"{', '.join(names)}: {rows} x {columns}"
        place = (20, SIZE * (0.9 - 0.22 * depth))
        panel.annotate(label, (columns / 2, rows), place, fontsize=8, arrowprops={"arrowstyle": "-", "lw": 0.5})
    panel.set(xlim=(-4, SIZE), ylim=(SIZE, -4), xticks=[], yticks=[])


def traffic(panel, stage) -> None:
    panel.set_title("2 bytes out of each memory", fontsize=9)
    named = {name: count for name, count in stage["traffic_bytes"].items() if count}
    panel.barh(list(named), [count / 2**20 for count in named.values()], color=BLUE)
    panel.set(xlabel="MiB")


def limiters(panel, stage) -> None:
    panel.set_title("3 predicted time", fontsize=9)
    found = sorted(stage["limiters"], key=lambda one: one["seconds"])[-6:]
    colours = [ORANGE if one["name"] == stage["binding"] else GREY for one in found]
    panel.barh([one["name"] for one in found], [one["seconds"] * 1e3 for one in found], color=colours)
    panel.set(xlabel="ms; what binds is orange")


def candidates(panel, found) -> None:
    panel.set_title("4 ten programs, measured", fontsize=9)
    timed = [one for one in found if one["measured_seconds"] is not None]
    for one in timed:
        colour = ORANGE if one["chosen"] else BLUE
        panel.plot(one["predicted_seconds"] * 1e3, one["measured_seconds"] * 1e3, "o", color=colour, markersize=5)
    ends = [min(one["predicted_seconds"] for one in timed) * 950, max(one["measured_seconds"] for one in timed) * 1050]
    panel.plot(ends, ends, color=GREY, linewidth=0.8)
    panel.set(xlabel="predicted ms; the choice is orange", ylabel="measured ms")


if __name__ == "__main__":
    main()
