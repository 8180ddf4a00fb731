"""Tables of an evaluation's figures, from the content of its files alone: for the terminal, and to keep (Markdown)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollergen.errors import ArgumentError

Content = Mapping[str, Any]


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
    yield Table(
        "Orders of held-out operators (means over operators and seeds; 5th to 95th percentile over operators)",
        ("ranker", *tops, "worst top-3", "pairs", "NDCG", "regret", "trials"),
        tuple(
            (
                name, *(_interval(line[k]) for k in tops), f"{line['worst top-3']['value']:.3f}",
                *(_interval(line[k]) for k in ("pairs", "ndcg", "regret")), _interval(line["trials"], 1),
            )
            for name, line in rankers.items()
        ),
    )  # fmt: skip
    sums = [f"{what}-{k}" for what in ("weighted top", "best") for k in (1, 3, 5)]
    rows = tuple((name, *(f"{line[key]:.3f}" for key in sums)) for name, line in rankers.items())
    yield Table("Pruner's sums (best-k: the k-th fastest of the first ten)", ("ranker", *sums), rows)
    kinds = tuple(next(iter(rankers.values()))["by class"])
    rows = tuple(
        (name, *(f"{line['by class'][k]['top-1']:.3f} / {line['by class'][k]['top-3']:.3f}" for k in kinds))
        for name, line in rankers.items()
    )
    yield Table("Top-1 / top-3 by class", ("ranker", *kinds), rows)
    yield Table(
        "Top-3 of each seed",
        ("ranker", *(f"seed {seed}" for seed in content["protocol"]["seeds"])),
        tuple((name, *(f"{value:.3f}" for value in line["seeds' top-3"])) for name, line in rankers.items()),
    )
    verdicts = content.get("release", {})
    if verdicts:
        bars = next(iter(verdicts.values()))
        keys = tuple(bars["figures"])
        limits = [("bar, opt-in", bars["opt-in bars"]), ("bar, default-on", bars["default-on bars"])]
        told = lambda figures: tuple(f"{figures[key]:.3f}" if key in figures else "" for key in keys)
        rows = tuple((name, one["state"], *told(one["figures"])) for name, one in verdicts.items())
        rows += tuple((name, "", *told(bar)) for name, bar in limits)
        title = "Release (against the bars; of the difference of top-3 the 5th percentile)"
        yield Table(title, ("", "state", *keys), rows)


def searches(content: Content) -> Iterator[Table]:
    """Measurements until near the best."""
    rows = tuple(
        (
            name, *(_interval(line[f"within {share}"], 1) for share in ("2%", "5%", "10%")),
            _interval(line["saved against analytical"], 1) if "saved against analytical" in line else "",
            *(f"{line['speed after'][n - 1]:.3f}" for n in (1, 8)),
        )
        for name, line in content["searches"].items()
    )  # fmt: skip
    columns = ("search", "to within 2 %", "5 %", "10 %", "saved (2 %)", "speed after 1", "after 8")
    title = f"Measurements until near the best, in batches of {content['protocol']['batch']}"
    yield Table(f"{title} (means over operators and seeds; 5th to 95th percentile over operators)", columns, rows)


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
        columns = (f"new {split}", *(f"{count} measured" for count in counts))
        yield Table(f"Transfer to new {split}: top-1 of programs not measured", columns, rows)
    if "abstention" in content:
        whats = ("with abstention", "worst with abstention", "without")
        slots = [f"{n} slots, {what}" for n in (3, 10) for what in whats]
        columns = tuple(name.replace(" slots, ", ": ") for name in slots)
        rows = tuple(
            (kind, str(line["operators"]), f"{line['abstained']:.0%}", *(f"{line[key]:.3f}" for key in slots))
            for kind, line in content["abstention"].items()
        )
        title = "A class held out whole: speed of the best of the first n over that of the model's order"
        yield Table(title, ("class", "operators x seeds", "abstained", *columns), rows)


def costs(content: Content) -> Iterator[Table]:
    """Time and size."""
    keys = [key for key, value in content.items() if key not in _ORIGIN and isinstance(value, (int, float))]
    yield Table("Costs (CPU time of one core)", ("what", ""), tuple((key, _short(content[key])) for key in keys))


def regret(content: Content) -> Iterator[Table]:
    """The operators whose first three lack most."""
    limiters = lambda line, key: ", ".join(f"{k} {v:.2f}" for k, v in line[f"limiters of the {key}"].items())
    rows = tuple(
        (
            line["operator"], *(f"{line[key]:.2f}" for key in ("top-1", "top-3")), str(line["rank of the best"]),
            *(f"{line[key]['predicted over measured']:.2f}" for key in ("best", "first")),
            *(limiters(line, key) for key in ("best", "first")),
        )
        for line in content["worst"]
    )  # fmt: skip
    columns = (
        "operator", "top-1", "top-3", "rank of the best", "best: predicted / measured", "first: predicted / measured",
        "limiters of the best", "of the first",
    )  # fmt: skip
    yield Table("Where the model's order loses most", columns, rows)


def spaces(content: Content) -> Iterator[Table]:
    """Rankers of one device's programs on another's."""
    pairs = {name: value for name, value in content.items() if " -> " in name}
    for name, value in pairs.items():
        counts = tuple(dict.fromkeys(count for of in value["transfer"].values() for count in of))
        told = lambda of, count: f"{of[count]['tau']:.2f}" if count in of else ""
        rows = tuple((method, *(told(of, count) for count in counts)) for method, of in value["transfer"].items())
        yield Table(f"{name}: Kendall's tau", ("method", *(f"{count} measured" for count in counts)), rows)
    kinds = tuple(next(iter(pairs.values()))["measurements to within 2%"])
    needed = lambda one: f"{one['mean']:.0f}" + (f" ({one['never']} never)" if one["never"] else "")
    rows = tuple(
        (name, *(needed(value["measurements to within 2%"][kind]) for kind in kinds)) for name, value in pairs.items()
    )
    title = f"Measurements until within 2 %, batches of {content['batch']}, means of {content['seeds']} seeds"
    yield Table(title, ("trained on -> used on", *kinds), rows)


RENDERED: Mapping[str, Callable[[Content], Iterator[Table]]] = {
    "evaluation": evaluation, "searches": searches, "ablation": ablation, "costs": costs, "regret": regret,
    "spaces": spaces,
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
    tables = [f"{one.title}:\n\n{_table(one.columns, one.rows)}\n" for one in RENDERED[path.stem](content)]
    return "\n".join([f"## {path.name}\n\n{origin_text(content)}\n", *tables])


def origin_text(content: Content) -> str:
    """When, where and of what code figures are, and on what."""
    machine = content["machine"]
    state = ", with uncommitted changes" if content["uncommitted_changes"] else ""
    text = f"{content['date'][:10]}, {machine['cpu']}, commit {content['commit'][:12] or 'unknown'}{state}"
    if "protocol" not in content:
        return f"{text}."
    left = [f"{name} was left out: {why}" for name, why in content["protocol"].get("left out", {}).items()]
    files = ", ".join(content["protocol"]["files"])
    return ". ".join([f"{text}; {protocol_text(content['protocol'])}; {files}", *left]) + "."


def protocol_text(protocol: Content) -> str:
    """What every figure says of how it was made."""
    objective = f", objective {protocol['objective']}" if "objective" in protocol else ""
    return (
        f"{protocol['records']} records of {protocol['operators']} operators, {protocol['folds']} folds "
        f"{protocol['split']}, seeds {', '.join(map(str, protocol['seeds']))}{objective}, "
        f"{protocol['constants']} constants"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _interval(value: Mapping[str, float], digits: int = 3) -> str:
    mean, low, high = (f"{value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _spread(line: Mapping[str, float]) -> str:
    return _interval({"mean": line["top-1"], "low": line["top-1 low"], "high": line["top-1 high"]})


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
