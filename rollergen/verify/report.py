"""Evaluations as files: report.json and figures (SVG, drawn with matplotlib)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollergen.errors import DeviceError

INSTALL = 'pip install "rollergen[verify]" (LightGBM, matplotlib)'


def write_evaluation(content: Mapping[str, Any], directory: Path) -> None:
    """``evaluation.json`` and a figure of Top-1 and Top-3 of every ranker, with intervals."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "evaluation.json", content)
    rankers = content["rankers"]
    plot, axes = _figure("Best time over the best of the first 1 and 3 measured (mean over held-out operators)")
    for shift, (key, colour) in enumerate((("top-1", "#4477aa"), ("top-3", "#ccbb44"))):
        places = [n + 0.35 * shift for n in range(len(rankers))]
        means = [line[key]["mean"] for line in rankers.values()]
        below = [line[key]["mean"] - line[key]["low"] for line in rankers.values()]
        above = [line[key]["high"] - line[key]["mean"] for line in rankers.values()]
        axes.bar(places, means, 0.35, yerr=[below, above], label=key, color=colour, capsize=3)
    axes.set_xticks([n + 0.17 for n in range(len(rankers))], list(rankers), rotation=20)
    axes.set_ylim(0.4, 1.02)
    axes.set_ylabel("share of the best speed")
    axes.legend(loc="lower right")
    _save(plot, directory / "rankers.svg")


def write_searches(content: Mapping[str, Any], directory: Path) -> None:
    """``searches.json``, and the share of the best speed after n measurements."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "searches.json", content)
    plot, axes = _figure("Best of the first n measured (mean over held-out operators)")
    for number, (name, line) in enumerate(content["searches"].items()):
        speed = line["speed after"]
        needed = f"{name}: {line['within 2%']['mean']:.1f} to within 2 %"
        axes.plot(range(1, len(speed) + 1), speed, label=needed, color=f"C{number}")
    axes.set_xlabel("programs measured")
    axes.set_ylabel("share of the best speed")
    axes.set_ylim(0.6, 1.005)
    axes.legend(loc="lower right", fontsize=8)
    _save(plot, directory / "searches.svg")


def write_pacm(content: Mapping[str, Any], directory: Path) -> None:
    """``pacm.json``."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "pacm.json", content)


def write_ablation(content: Mapping[str, Any], directory: Path) -> None:
    """``ablation.json``, the learning curve, and Top-1 by group of features."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "ablation.json", content)
    plot, axes = _figure("Learning curve: held-out operators")
    curve = content["learning curve"]
    counts = [line["records"] for line in curve]
    for key, colour in (("top-1", "#4477aa"), ("top-3", "#ccbb44")):
        axes.plot(counts, [line[key] for line in curve], marker="o", label=key, color=colour)
    axes.fill_between(counts, *([line[f"top-1 {end}"] for line in curve] for end in ("low", "high")), alpha=0.2)
    axes.set_xscale("log")
    axes.set_xlabel("records trained on")
    axes.set_ylabel("share of the best speed")
    axes.legend(loc="lower right")
    _save(plot, directory / "learning_curve.svg")
    plot, axes = _figure("Top-1 by groups of features")
    groups = content["groups"]
    axes.barh(list(groups)[::-1], [line["top-1"] for line in list(groups.values())[::-1]], color="#4477aa")
    axes.set_xlim(0.4, 1.0)
    axes.set_xlabel("share of the best speed")
    _save(plot, directory / "groups.svg")


def _figure(title: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DeviceError(f"matplotlib is missing ({error}); {INSTALL}") from None
    plot = Figure(figsize=(8, 4.5), layout="constrained")
    axes = plot.add_subplot()
    axes.set_title(title, fontsize=11)
    return plot, axes


def _save(plot: Any, path: Path) -> None:
    plot.savefig(path, format="svg", metadata={"Date": None})


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
