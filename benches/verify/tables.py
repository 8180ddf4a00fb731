"""Tables of an evaluation's figures, from the content of its files alone: for the terminal, and to keep (Markdown)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from rollergen.errors import ArgumentError

Content = Mapping[str, Any]
WIDTH = 80
"""Columns of a terminal: no line of a table is longer."""


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` and rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def evaluation(content: Content) -> Iterator[Table]:
    """Orders of held-out operators, Pruner's sums, classes, and whether a verifier may be offered."""
    rankers = content["rankers"]
    tops = ("top-1", "top-3", "top-5")
    over = "means over operators and seeds; 5th to 95th percentile over operators"
    rows = tuple((name, *(_interval(line[key]) for key in tops)) for name, line in rankers.items())
    yield Table(f"Orders of held-out operators ({over})", ("ranker", *tops), rows)
    rows = tuple(
        (name, f"{line['worst top-3']['value']:.3f}", _interval(line["pairs"]), _interval(line["ndcg"]))
        for name, line in rankers.items()
    )
    yield Table("The worst operator's top-3, pairs in order, NDCG", ("ranker", "worst", "pairs", "NDCG"), rows)
    rows = tuple((name, _interval(line["regret"]), _interval(line["trials"], 1)) for name, line in rankers.items())
    yield Table("Regret of the first, trials until within 2 %", ("ranker", "regret", "trials"), rows)
    seeds = tuple(f"seed {seed}" for seed in content["protocol"]["seeds"])
    by_seed = lambda line: [f"{value:.3f}" for value in line["seeds' top-3"]]
    rows = tuple((name, *(by_seed(line) + [""] * len(seeds))[: len(seeds)]) for name, line in rankers.items())
    yield Table("Top-3 of each seed", ("ranker", *seeds), rows)
    sums = [f"{what}-{k}" for what in ("weighted top", "best") for k in (1, 3, 5)]
    columns = tuple(name.replace("weighted", "sum") for name in sums)
    rows = tuple((name, *(f"{line[key]:.3f}" for key in sums)) for name, line in rankers.items())
    yield Table("Pruner's sums (best-k: the k-th fastest of the first ten)", ("ranker", *columns), rows)
    kinds = tuple(next(iter(rankers.values()))["by class"])
    for key in ("top-1", "top-3"):
        rows = tuple((name, *(f"{line['by class'][k][key]:.3f}" for k in kinds)) for name, line in rankers.items())
        yield Table(f"{key.capitalize()} by class", ("ranker", *(SHORT.get(kind, kind) for kind in kinds)), rows)
    yield from _release(content.get("release", {}))


SHORT = {
    "convolution": "conv", "depthwise": "depth", "elementwise": "elem", "pooling": "pool", "reduction": "reduce",
}  # fmt: skip
"""Heads of columns for classes."""

_RELEASE = {
    "top-3": "top-3", "worst top-3": "worst", "top-3 against analytical": "gain-3",
    "top-1 against analytical": "gain-1", "analytical top-3": "model",
}  # fmt: skip


def _release(verdicts: Mapping[str, Content]) -> Iterator[Table]:
    if not verdicts:
        return
    bars = next(iter(verdicts.values()))
    limits = [("bar, opt-in", bars["opt-in bars"]), ("bar, default-on", bars["default-on bars"])]
    told = lambda figures: tuple(f"{figures[key]:.3f}" if key in figures else "" for key in _RELEASE)
    rows = tuple((name, one["state"], *told(one["figures"])) for name, one in verdicts.items())
    rows += tuple((name, "", *told(bar)) for name, bar in limits)
    title = (
        "Release: top-3, the worst operator's, the 5th percentile of what top-3 gains on the model's order, the mean "
        "of what top-1 gains, and the model's top-3"
    )
    yield Table(title, ("", "state", *_RELEASE.values()), rows)


def searches(content: Content) -> Iterator[Table]:
    """Measurements until near the best."""
    lines = content["searches"]
    saved = lambda line: _interval(line["saved against analytical"], 1) if "saved against analytical" in line else ""
    title = f"Measurements until near the best, in batches of {content['protocol']['batch']}"
    over = "means over operators and seeds; 5th to 95th percentile over operators"
    rows = tuple((name, _interval(line["within 2%"], 1), saved(line)) for name, line in lines.items())
    yield Table(f"{title} ({over})", ("search", "to within 2 %", "saved"), rows)
    rows = tuple((name, *(_interval(line[f"within {s}"], 1) for s in ("5%", "10%"))) for name, line in lines.items())
    yield Table(title, ("search", "to within 5 %", "to within 10 %"), rows)
    rows = tuple((name, *(f"{line['speed after'][n - 1]:.3f}" for n in (1, 3, 8))) for name, line in lines.items())
    yield Table("Share of the best speed after so many measurements", ("search", "1", "3", "8"), rows)


def stream(content: Content) -> Iterator[Table]:
    """Operators one after another."""
    lines = content["stream"]
    measured = content["protocol"]["measured"]
    rows = tuple((name, _spread(line), f"{line['top-3']:.3f}", f"{line['pairs']:.3f}") for name, line in lines.items())
    title = f"Operators one after another, of each of which {measured} programs are measured once it was judged"
    yield Table(title, ("ranker", "top-1", "top-3", "pairs"), rows)
    thirds = [name for name in next(iter(lines.values())) if name.endswith(" third")]
    rows = tuple((name, *(f"{line[third]:.3f}" for third in thirds)) for name, line in lines.items())
    yield Table("Top-1 by third of the stream", ("ranker", *thirds), rows)


def ablation(content: Content) -> Iterator[Table]:
    """Features, records, transfer, abstention; parts that the records did not allow are not in the content."""
    told = lambda line: (_spread(line), f"{line['top-3']:.3f}", f"{line['pairs']:.3f}")
    figures = ("top-1", "top-3", "pairs")
    rows = tuple((name, *told(line)) for name, line in content["groups"].items())
    yield Table("Groups of features", ("features", *figures), rows)
    rows = tuple((f"{line['records']:.0f}", *told(line)) for line in content["learning curve"])
    yield Table("Learning curve", ("records", *figures), rows)
    for split, lines in content["transfer"].items():
        counts = tuple(next(iter(lines.values())))
        rows = tuple((method, *(f"{line['top-1']:.3f}" for line in of.values())) for method, of in lines.items())
        title = f"Transfer to new {split}: top-1 of programs not measured, by how many of the operator's were"
        yield Table(title, ("measured", *counts), rows)
    if "abstention" in content:
        yield from _abstention(content["abstention"])


def _abstention(lines: Mapping[str, Content]) -> Iterator[Table]:
    often = tuple((kind, str(line["operators"]), f"{line['abstained']:.0%}") for kind, line in lines.items())
    columns = ("held out", "operators x seeds", "abstained")
    yield Table("How often it abstains on what was held out whole", columns, often)
    for what in ("with abstention", "without"):
        keys = [f"{n} slots, {kind}{what}" for n in (3, 10) for kind in ("", "worst ")]
        rows = tuple((kind, *(f"{line[key]:.3f}" for key in keys)) for kind, line in lines.items())
        title = f"The same, speed of the best of the first 3 and 10 over that of the model's order, {what}"
        title += " (geometric mean, and the worst)"
        yield Table(title, ("held out", "3", "3, worst", "10", "10, worst"), rows)


def costs(content: Content) -> Iterator[Table]:
    """Time and size."""
    keys = [key for key, value in content.items() if key not in _ORIGIN and isinstance(value, (int, float))]
    yield Table("Costs (CPU time of one core)", ("what", ""), tuple((key, _short(content[key])) for key in keys))


def regret(content: Content) -> Iterator[Table]:
    """The operators whose first three lack most."""
    worst = [(str(n + 1), line) for n, line in enumerate(content["worst"])]
    named = tuple((n, str(line["class"]), str(line["operator"])) for n, line in worst)
    yield Table("Where the model's order loses most", ("", "class", "operator"), named)
    told = lambda line: [f"{line[key]['predicted over measured']:.2f}" for key in ("best", "first")]
    figures = tuple(
        (n, f"{line['top-1']:.2f}", f"{line['top-3']:.2f}", str(line["rank of the best"]), *told(line))
        for n, line in worst
    )
    title = "Its figures there, and predicted over measured time of the best and of the model's first"
    yield Table(title, ("", "top-1", "top-3", "rank of the best", "best", "first"), figures)
    limiters = lambda line, key: ", ".join(f"{k} {v:.2f}" for k, v in line[f"limiters of the {key}"].items())
    said = tuple((n, key, limiters(line, key)) for n, line in worst for key in ("best", "first"))
    yield Table("What the model says that limits them", ("", "program", "limiters"), said)


def spaces(content: Content) -> Iterator[Table]:
    """Rankers of one device's programs on another's."""
    pairs = {name: value for name, value in content.items() if " -> " in name}
    for name, value in pairs.items():
        counts = tuple(dict.fromkeys(count for of in value["transfer"].values() for count in of))
        told = lambda of, count: f"{of[count]['tau']:.2f}" if count in of else ""
        rows = tuple((method, *(told(of, count) for count in counts)) for method, of in value["transfer"].items())
        yield Table(f"{name}: Kendall's tau, by programs measured of the latter", ("measured", *counts), rows)
    kinds = tuple(next(iter(pairs.values()))["measurements to within 2%"])
    needed = lambda one: f"{one['mean']:.0f}" + (f" ({one['never']})" if one["never"] else "")
    rows = tuple(
        (kind, *(needed(value["measurements to within 2%"][kind]) for value in pairs.values())) for kind in kinds
    )
    named = "; ".join(f"{n + 1}: {name}" for n, name in enumerate(pairs))
    title = f"Measurements until within 2 %, batches of {content['batch']}, means of {content['seeds']} seeds"
    title += f", in brackets how many of them never got there ({named})"
    yield Table(title, ("search", *(str(n + 1) for n in range(len(pairs)))), rows)


RENDERED: Mapping[str, Callable[[Content], Iterator[Table]]] = {
    "evaluation": evaluation, "searches": searches, "stream": stream, "ablation": ablation, "costs": costs,
    "regret": regret, "spaces": spaces,
}  # fmt: skip
"""By the name of a file (without .json), in the order in which they are shown."""

_ORIGIN = ("date", "machine", "versions", "commit", "uncommitted_changes")


def markdown(directory: Path) -> str:
    """All tables of the files that a directory holds; one of another kind or version is named.  Raises ArgumentError
    where none can be shown."""
    found = [directory / f"{name}.json" for name in RENDERED if (directory / f"{name}.json").exists()]
    parts, wrong = [], []
    for path in found:
        try:
            parts.append(_section(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            wrong.append(f"{path.name} is not of this version: {type(error).__name__} {error}")
    if not parts:
        expected = ", ".join(f"{name}.json" for name in RENDERED)
        raise ArgumentError(f"{directory} has none of {expected} that can be shown" + "".join(f"; {w}" for w in wrong))
    head = "# Figures of the verifier\n\nWritten by `rollergen verify tables` from the JSON files beside it.\n"
    return "\n".join([head, *parts, *(f"{text}.\n" for text in wrong)])


def _section(path: Path) -> str:
    content = json.loads(path.read_text(encoding="utf-8"))
    found = RENDERED[path.stem](content)
    tables = [f"{fill(f'{one.title}:', WIDTH)}\n\n{_table(one.columns, one.rows)}\n" for one in found]
    return "\n".join([f"## {path.name}\n\n{fill(origin_text(content), WIDTH)}\n", *tables])


def origin_text(content: Content) -> str:
    """When, where and of what code figures are, and on what."""
    machine = content["machine"]
    state = ", with uncommitted changes" if content["uncommitted_changes"] else ""
    text = f"{content['date'][:10]}, {machine['cpu']}, commit {content['commit'][:12] or 'unknown'}{state}"
    if "protocol" not in content:
        return f"{text}."
    protocol = content["protocol"]
    said = [f"{text}; {protocol_text(protocol)}; {', '.join(protocol['files'])}", *_settings(protocol)]
    said += [f"{name} was left out: {why}" for name, why in protocol.get("left out", {}).items()]
    return ". ".join(said) + "."


def _settings(protocol: Content) -> Iterator[str]:
    """What else decides the figures."""
    if "structure" in protocol:
        yield f"Structure: {protocol['structure']}"
    for name, seeds in protocol.get("seeds of", {}).items():
        yield f"{name}: seeds {', '.join(map(str, seeds))} only"
    if "nested" in protocol:
        own = protocol["nested"]
        often = ", ".join(f"{name} {count}" for name, count in own["chosen"].items())
        yield (
            f"nested: of the objectives the best by {own['by']} in {own['inner folds']} folds of what is trained on; "
            f"chosen so often: {often}"
        )
    if "pacm" in protocol:
        told = lambda one: f"width {one['width']}, {one['epochs']} epochs, momentum {one['momentum']}"
        yield f"pacm: {told(protocol['pacm'])} (the paper: {told(protocol['pacm']['paper'])})"


def protocol_text(protocol: Content) -> str:
    """What every figure says of how it was made."""
    objective = f", objective {protocol['objective']}" if "objective" in protocol else ""
    return (
        f"{protocol['records']} records of {protocol['operators']} operators of {protocol['structures']} structures, "
        f"{protocol['folds']} folds {protocol['split']}, seeds {', '.join(map(str, protocol['seeds']))}{objective}, "
        f"{protocol['constants']} constants"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(3, *(len(line[n]) for line in (columns, *rows))) for n in range(len(columns))]
    lines = [columns, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def _interval(value: Mapping[str, float], digits: int = 3) -> str:
    mean, low, high = (f"{value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low}{' to ' if low.startswith('-') else '-'}{high})"


def _spread(line: Mapping[str, float]) -> str:
    return _interval({"mean": line["top-1"], "low": line["top-1 low"], "high": line["top-1 high"]})


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
