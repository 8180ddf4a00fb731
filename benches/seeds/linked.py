"""Figures that another bench keeps: the newest of its result files says what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benches.seeds.finding import IMPOSSIBLE, MEASURED, Finding, mean_of
from rollergen.bench.results import newest

RESULTS = Path(__file__).resolve().parent.parent / "results"


def linked(pattern: str, bench: str, told: Callable[[Any], tuple[str, tuple[dict[str, Any], ...]]]) -> Finding:
    """What ``told`` reads in the newest file of ``pattern``; `IMPOSSIBLE` where ``bench`` has left none."""
    path = newest(RESULTS, pattern)
    if path is None:
        return Finding(IMPOSSIBLE, "", why=f"no result file {pattern} is there yet; `{bench}` makes one")
    ours, rows = told(json.loads(path.read_text(encoding="utf-8")))
    return Finding(MEASURED, ours, rows, why=f"in {path.relative_to(RESULTS)}, made by `{bench}`")


def alignment_rules(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """The CPU's part of the ablation of alignment rules."""
    rows = []
    for one in content["rows"]:
        if one["device"] == "cpu":
            last = one["seconds"]["+ tensor shape"]
            rows.append({"operator": one["case"], **{step: s / last for step, s in one["seconds"].items()}})
    steps = [step for step in rows[0] if step != "operator"]
    means = ", ".join(f"{step} {mean_of(rows, step):.2f}" for step in steps)
    return f"time over that of all rules: {means}", tuple(rows)


def rankers(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Best time of all programs over the best among the first k, by ranker."""
    rows = []
    for name, one in content["rankers"].items():
        rows.append({"ranker": name, **{k: one[k]["mean"] for k in ("top-1", "top-3", "top-5", "pairs", "trials")}})
    ours = ", ".join(f"{row['ranker']} {row['top-1']:.3f} / {row['top-5']:.3f}" for row in rows)
    return f"top-1 / top-5: {ours}", tuple(rows)


def drafts(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Best_k: the best time of all programs over the best among the draft's first k."""
    rows = []
    for name in ("random", "draft", "analytical"):
        one = content["rankers"][name]
        rows.append({"draft": name, **{f"Best_{k}": one[f"top-{k}"]["mean"] for k in (1, 3, 5)}})
    ours = "; ".join(
        f"{row['draft']}: " + ", ".join(f"Best_{k} {row[f'Best_{k}']:.3f}" for k in (1, 3, 5)) for row in rows
    )
    return ours, tuple(rows)


AUTOTVM = ("random", "genetic", "AutoTVM", "AutoTVM, diverse batches", "AutoTVM, transfer")
PRUNER = ("draft (Pruner)", "analytical", "verifier", "verifier, online residual")
"""Searches that are like a paper's own."""


def _searches(content: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        means = {
            key: value["mean"] if isinstance(value, dict) and "mean" in value else value
            for key, value in content["searches"][name].items()
        }
        rows.append({"search": name, **{key: value for key, value in means.items() if isinstance(value, (int, float))}})
    return rows


def trials(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Programs measured until one is near the best, by the searches of AutoTVM's figures."""
    rows = _searches(content, AUTOTVM)
    return "; ".join(f"{row['search']} {row['within 2%']:.1f}" for row in rows), tuple(rows)


def fewer_trials(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """How many times fewer programs than a search without a draft measures, one that begins from a draft does."""
    (other,) = _searches(content, ("AutoTVM",))
    rows = [
        {**row, "times fewer than AutoTVM": other["within 2%"] / row["within 2%"]} for row in _searches(content, PRUNER)
    ]
    listed = "; ".join(f"{row['search']} {row['times fewer than AutoTVM']:.2f}" for row in rows)
    return f"times fewer than AutoTVM's {other['within 2%']:.1f}: {listed}", tuple(rows)
