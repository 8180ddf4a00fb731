"""Evaluations as files: figures as JSON and SVG (drawn with matplotlib), and their tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.verify.tables import markdown, protocol_text
from rollergen.optional import blank_plot


def write(name: str, content: Mapping[str, Any], directory: Path) -> None:
    """``NAME.json``, its plots, and the tables of all files of the directory; ``name``: evaluation, searches,
    stream or ablation."""
    directory.mkdir(parents=True, exist_ok=True)
    _whole(directory / f"{name}.json", json.dumps(content, indent=1) + "\n")
    machine = content["machine"]["cpu"]
    below = f"{protocol_text(content['protocol'])}; {machine}, {content['date'][:10]}"
    plots = {"evaluation": _evaluation, "searches": _searches, "stream": _stream, "ablation": _ablation}
    plots[name](content, directory, below)
    write_tables(directory)


def write_tables(directory: Path) -> Path:
    """``TABLES.md``, from the files of the directory.  Raises ArgumentError, see `tables.markdown`."""
    path = directory / "TABLES.md"
    _whole(path, markdown(directory))
    return path


def _evaluation(content: Mapping[str, Any], directory: Path, below: str) -> None:
    """Top-1 and Top-3 of every ranker, with intervals."""
    rankers = content["rankers"]
    title = "Best time over the best of the first 1 and 3 measured (mean over held-out operators)"
    plot, (axes,) = _figure(title, below)
    for shift, (key, colour) in enumerate((("top-1", "#4477aa"), ("top-3", "#ccbb44"))):
        places = [n + 0.35 * shift for n in range(len(rankers))]
        means = [line[key]["mean"] for line in rankers.values()]
        lows = [line[key]["mean"] - line[key]["low"] for line in rankers.values()]
        highs = [line[key]["high"] - line[key]["mean"] for line in rankers.values()]
        axes.bar(places, means, 0.35, yerr=[lows, highs], label=key, color=colour, capsize=3)
    axes.set_xticks([n + 0.17 for n in range(len(rankers))], list(rankers), rotation=20)
    axes.set_ylim(0.4, 1.02)
    axes.set_ylabel("share of the best speed")
    axes.legend(loc="lower right")
    _save(plot, directory / "rankers.svg")


def _searches(content: Mapping[str, Any], directory: Path, below: str) -> None:
    """The share of the best speed after n measurements."""
    plot, (axes,) = _figure("Best of the first n measured (mean over held-out operators)", below)
    for number, (name, line) in enumerate(content["searches"].items()):
        speed = line["speed after"]
        needed = f"{name}: {line['within 2%']['mean']:.1f} to within 2 %"
        axes.plot(range(1, len(speed) + 1), speed, label=needed, color=f"C{number}")
    axes.set_xlabel("programs measured")
    axes.set_ylabel("share of the best speed")
    axes.set_ylim(0.6, 1.005)
    axes.legend(loc="lower right", fontsize=8)
    _save(plot, directory / "searches.svg")


def _stream(content: Mapping[str, Any], directory: Path, below: str) -> None:
    """Top-1 by third of the stream."""
    title = "Operators one after another: best time over that of the first choice, before the operator was measured"
    plot, (axes,) = _figure(title, below)
    thirds = [key for key in next(iter(content["stream"].values())) if key.endswith(" third")]
    for number, (name, line) in enumerate(content["stream"].items()):
        axes.plot(thirds, [line[third] for third in thirds], marker="o", label=name, color=f"C{number}")
    axes.set_ylabel("share of the best speed")
    axes.legend(loc="lower right", fontsize=8)
    _save(plot, directory / "stream.svg")


def _ablation(content: Mapping[str, Any], directory: Path, below: str) -> None:
    """The learning curve, Top-1 by group of features, transfer curves, and abstention by class."""
    _learning_curve(content["learning curve"], directory, below)
    _groups(content["groups"], directory, below)
    if content["transfer"]:
        _transfer(content["transfer"], directory, below)
    if "abstention" in content:
        _abstention(content["abstention"], directory, below)


def _learning_curve(curve: Sequence[Mapping[str, float]], directory: Path, below: str) -> None:
    plot, (axes,) = _figure("Learning curve: held-out operators", below)
    counts = [line["records"] for line in curve]
    for key, colour in (("top-1", "#4477aa"), ("top-3", "#ccbb44")):
        axes.plot(counts, [line[key] for line in curve], marker="o", label=key, color=colour)
    axes.fill_between(counts, *([line[f"top-1 {end}"] for line in curve] for end in ("low", "high")), alpha=0.2)
    axes.set_xscale("log")
    axes.set_xlabel("records trained on")
    axes.set_ylabel("share of the best speed")
    axes.legend(loc="lower right")
    _save(plot, directory / "learning_curve.svg")


def _groups(groups: Mapping[str, Mapping[str, float]], directory: Path, below: str) -> None:
    plot, (axes,) = _figure("Top-1 by groups of features", below)
    axes.barh(list(groups)[::-1], [line["top-1"] for line in list(groups.values())[::-1]], color="#4477aa")
    axes.set_xlim(0.4, 1.0)
    axes.set_xlabel("share of the best speed")
    _save(plot, directory / "groups.svg")


def _transfer(curves: Mapping[str, Mapping[str, Any]], directory: Path, below: str) -> None:
    plot, panels = _figure("Transfer to operators, shapes and classes that were not trained on", below, len(curves))
    for axes, (split, lines) in zip(panels, curves.items(), strict=True):
        for number, (method, by_count) in enumerate(lines.items()):
            counts = [int(count) for count in by_count]
            style = "--" if method == "analytical" else "-"
            speeds = [line["top-1"] for line in by_count.values()]
            axes.plot(counts, speeds, style, marker=".", label=method, color=f"C{number}")
        axes.set_title(f"new {split}", fontsize=10)
        axes.set_xlabel("programs measured of each")
    panels[0].set_ylabel("top-1, share of the best speed")
    panels[0].legend(loc="lower right", fontsize=7)
    _save(plot, directory / "transfer.svg")


def _abstention(lines: Mapping[str, Mapping[str, float]], directory: Path, below: str) -> None:
    plot, (axes,) = _figure("What was held out whole: speed over the analytical order's", below)
    labels = [f"{kind} (abstains: {line['abstained']:.0%})" for kind, line in lines.items()][::-1]
    for shift, slots in enumerate((3, 10)):
        ratios = [line[f"{slots} slots, with abstention"] for line in lines.values()][::-1]
        axes.barh([n + 0.4 * shift for n in range(len(labels))], ratios, 0.4, label=f"best of the first {slots}")
    axes.set_yticks([n + 0.2 for n in range(len(labels))], labels)
    axes.axvline(0.98, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlim(0.9, 1.1)
    axes.set_xlabel("geometric mean (dashed: 2 % worse)")
    axes.legend(loc="lower right", fontsize=8)
    _save(plot, directory / "abstention.svg")


def _figure(title: str, below: str, panels: int = 1) -> tuple[Any, list[Any]]:
    """A plot and its axes."""
    plot = blank_plot(8 if panels == 1 else 4 * panels, 4.5, layout="constrained")
    plot.suptitle(title, fontsize=11)
    plot.supxlabel(below, fontsize=7)
    axes = plot.subplots(1, panels, squeeze=False, sharey=True)[0]
    return plot, list(axes)


def _save(plot: Any, path: Path) -> None:
    plot.savefig(path, format="svg", metadata={"Date": None})


def _whole(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
