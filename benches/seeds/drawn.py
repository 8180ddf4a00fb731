"""The rows of a finding as a picture: one panel for each of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from textwrap import fill
from typing import Any

from benches.seeds.finding import Row
from rollergen.optional import blank_plot


def columns(rows: Sequence[Row]) -> list[str]:
    """All names, in the order in which they first stand."""
    return list(dict.fromkeys(name for row in rows for name in row))


def figures(rows: Sequence[Row]) -> list[str]:
    """The columns of numbers beside the first column, which says what a row is of; a number may be missing.

    >>> figures([{"M": 1, "us": 2.0, "binds": "issue"}, {"M": 2, "us": None, "binds": "launch"}])
    ['us']
    """
    is_number = lambda value: value is None or isinstance(value, (int, float))
    return [name for name in columns(rows)[1:] if all(is_number(row.get(name)) for row in rows)]


def drawn(title: str, rows: Sequence[Row]) -> Any:
    """matplotlib's figure: lines over a first column of numbers (both axes logarithmic), else bars."""
    names = figures(rows)
    of, grows = columns(rows)[0], all(isinstance(next(iter(row.values())), (int, float)) for row in rows)
    width = max(6.0, 0.0 if grows else 0.16 * len(rows))
    plot = blank_plot(width, 0.8 + 2.2 * len(names), layout="constrained")
    plot.suptitle(fill(title, int(11 * width)), fontsize=10)
    for number, (panel, name) in enumerate(zip(plot.subplots(len(names), squeeze=False)[:, 0], names, strict=True), 1):
        values = [nan if row.get(name) is None else row[name] for row in rows]
        if grows:
            panel.loglog([row[of] for row in rows], values, "o-")
        else:
            panel.bar([str(row[of]) for row in rows], values)
            panel.tick_params(axis="x", labelrotation=90, labelbottom=number == len(names))
        panel.set(ylabel=name, xlabel=of if number == len(names) else "")
        panel.tick_params(labelsize=7, which="both")
    return plot
