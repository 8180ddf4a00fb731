"""The results of all benches as one self-contained page: no network, readable on a phone."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from typing import Any

from rollergen.bench.claims import claim_rows, summary
from rollergen.bench.results import Figure, Result, Scatter, Table
from rollergen.bench.scripts import Script
from rollergen.errors import ArgumentError
from rollergen.hal.dataclass import dataclass
from rollergen.optional import blank_plot, optional

LONGEST, BARS, WIDEST, LONGEST_FACT = 6, 30, 60, 300
"""Rows of a table and bars of a plot that are shown, letters of a cell and of a fact: the file has the rest."""
MOST_BYTES = 1_000_000
"""Of the page: it is read on phones."""
LONGEST_BAR = 2.5

LEAST_TICKS, MOST_TICKS = 3, 7

_PAGE = """
{%- macro bars(plot) %}<p>{{ plot.label }}</p><div class="bars" style="--one:{{ "%.1f" % plot.share(1) }}%">
{%- for what, value, good in plot.rows %}
<span>{{ what }}</span><u><i {% if not good %}class="low" {% endif %}style="width:{{ "%.1f" % plot.share(value) }}%">
{#- #}</i></u><b>{{ "%.3g" % value }}</b>{% endfor %}</div>{% endmacro -%}
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>rollergen: measurements</title><style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; color: #1b1b1b; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; } .wide { overflow-x: auto; } svg, img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .85rem; } th, td { padding: .15rem .6rem; text-align: left;
border-bottom: 1px solid #e4e4e4; vertical-align: top; white-space: nowrap; } th { background: #f3f3f3; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .85rem; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; } nav a { margin-right: 1rem;
display: inline-block; overflow-wrap: anywhere; }
.claims td, .brief td { white-space: normal; min-width: 6rem; } .measured { background: #e3f1e3; }
.model { background: #fdf3d7; } .none { background: #f0f0f0; }
.missed { background: #f8dede; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #e4e4e4; } a { color: #8ab4f8; }
th { background: #333; } td { border-color: #444; } .measured { background: #1f3a1f; } .model { background: #46390f; }
.none { background: #333; } .missed { background: #5a2424; } dt { color: #aaa; } }
h2, h3 { overflow-wrap: anywhere; }
.bars { display: grid; grid-template-columns: fit-content(45%) 1fr auto; gap: 0 .6rem; font-size: .8rem;
max-width: 50rem; } .bars span { overflow-wrap: anywhere; } .bars u { position: relative; }
.bars i { display: block; height: .9rem; margin-top: .2rem; background: #4477aa; } .bars .low { background: #cc6677; }
.bars u::after { content: ""; position: absolute; top: 0; left: var(--one); height: 1.3rem;
border-left: 1px solid currentColor; }
@media (max-width: 40rem) { .bars { grid-template-columns: 1fr auto; } .bars span { grid-column: 1 / -1; }
.claims tr, .claims td, .brief tr, .brief td { display: block; border: 0; }
.claims tr, .brief tr { margin-bottom: .8rem; } .claims tr:first-child, .brief tr:first-child, .claims td:empty,
.brief td:empty { display: none; } .claims td:nth-child(4)::before { content: "ours: "; }
.claims td:nth-child(5)::before { content: "the paper's: "; } .brief td + td + td::before { content: "aim: "; }
.brief td:last-child::before { content: ""; } }
</style></head><body><h1>rollergen: measurements</h1>
<p>{{ results|length }} result files, each made by one command of benches/ and committed with machine, versions and
commit. Ratios are a peer's time over ours: above 1, ours is faster. {{ absent }}</p>
{% if results|selectattr("headlines")|list %}<section class="brief"><h2>In brief</h2>
<p>{{ conclusion }}</p>{% if overview.rows %}{{ bars(overview) }}{% endif %}
<div class="wide"><table><tr><th>what</th><th>figure</th><th>aim</th><th>from</th></tr>
{% for one in results %}{% for line in one.headlines %}<tr><td>{{ line.what }}</td><td>{{ line.figure }}</td>
<td{% if line.met is sameas false %} class="missed"{% endif %}>{{ line.aim }}{% if line.met is sameas false %} (missed)
{%- endif %}</td><td><a href="#{{ one.name }}">{{ one.name }}</a></td></tr>{% endfor %}{% endfor %}
</table></div></section>{% endif %}
<nav>{% for one in results %}<a href="#{{ one.name }}">{{ one.name }}</a> {% endfor %}</nav>
{% if claims %}<section class="claims"><h2>Claims of the papers</h2><p>One row for each figure and table of the papers'
evaluations: {{ summary }}. A figure that is model only was predicted for a device that is not here; nothing was run.
The paper's own figure stands beside it where it is known word for word.</p>
<div class="wide"><table>
<tr><th>paper</th><th>what</th><th>state</th><th>ours</th><th>the paper's</th><th>note</th></tr>
{% for row in claims %}<tr><td>{{ row.of }}</td><td>{{ row.what }}</td><td class="{{ row.kind }}">{{ row.state }}</td>
<td>{{ row.ours }}</td><td>{{ row.paper }}</td><td>{{ row.note }}</td></tr>{% endfor %}
</table></div></section>{% endif %}
{% for one in results %}<h2 id="{{ one.name }}">{{ one.name }}</h2>
{% if purposes[one.name] %}<p>{{ purposes[one.name] }}</p>{% endif %}
<dl>{% for key, value in one.origin + one.facts -%}
<dt>{{ key }}</dt><dd>{{ value|truncate(longest_fact) }}</dd>{% endfor %}</dl>
{% for space in one.scatters %}<h3>{{ space.title }}: predicted against measured</h3>
{{ plots[one.name, space.title]|safe }}{% endfor %}
{% for table in one.tables %}<h3>{{ table.title }}</h3>
{% if table.ratios %}{{ bars(ratios[one.name, table.title]) }}{% endif %}
<div class="wide"><table><tr>{% for c in table.columns %}<th>{{ c }}</th>{% endfor %}</tr>
{% for row in table.rows[:longest] %}<tr>{% for cell in row %}<td>{{ cell|truncate(widest) }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
{% if table.rows|length > longest %}<p>{{ table.rows|length - longest }} more rows stand in the file.</p>{% endif %}
{% endfor %}{% endfor %}
{% for name, source in figures %}<h3>{{ name }}</h3><img src="{{ source }}" alt="{{ name }}">{% endfor %}</body></html>
"""


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, 1 marked: what each is of, its length, whether it is good."""

    label: str
    rows: tuple[tuple[str, float, bool], ...]

    def share(self, value: float) -> float:
        """Of the width, in percent; longer ones than `LONGEST_BAR` are cut."""
        return 100 * min(value, LONGEST_BAR) / min(max(1.0, *(row[1] for row in self.rows)), LONGEST_BAR)


def page(
    found: Sequence[Result], absent: str, benches: Sequence[Script] = (), drawn: Sequence[Figure] = ()
) -> str:
    """The page as HTML of at most `MOST_BYTES`, for which tables show fewer rows where there are many.

    ``absent``: what could not be measured here, in words; ``benches``: what says what a result is of; ``drawn``: plots
    that are there already.  Raises DeviceError where a package for it is missing.
    """
    jinja = optional("jinja2", "bench")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined)
    claims = claim_rows(found)
    told: dict[str, Any] = {
        "results": found, "claims": claims, "summary": summary(claims), "absent": absent, "widest": WIDEST,
        "longest_fact": LONGEST_FACT, "conclusion": conclusion(found), "overview": _overview(found),
        "purposes": {one.name: purpose(one.name, benches) for one in found},
        "ratios": {(one.name, table.title): _ratios(table, one) for one in found for table in one.tables},
        "plots": {(one.name, space.title): _points(space) for one in found for space in one.scatters},
        "figures": [(one.name, _source(one.svg)) for one in drawn],
    }  # fmt: skip
    template = environment.from_string(_PAGE)
    for longest in range(LONGEST, -1, -1):
        text = str(template.render(told, longest=longest))
        if len(text.encode()) <= MOST_BYTES:
            return text
    raise ArgumentError(f"the page of {len(found)} results has over {MOST_BYTES} bytes without a row; give it fewer")


def conclusion(found: Sequence[Result]) -> str:
    """How many aims are met."""
    judged = [line.met for one in found for line in one.headlines if line.met is not None]
    return f"{sum(judged)} of {len(judged)} aims are met; what misses its aim is red."


def _overview(found: Sequence[Result]) -> Bars:
    """How far each aim in numbers is reached, the aim being 1."""
    rows = (
        (f"{line.what} [{one.name}]", share, line.met is not False)
        for one in found for line in one.headlines if (share := reached(line.figure, line.aim))
    )  # fmt: skip
    return Bars("How far each aim is reached (1: just; above: better).", tuple(rows))


def reached(figure: str, aim: str) -> float | None:
    """Share of an aim that a figure reaches; None where they are not both told by a number first.

    >>> reached("1.5", "at least 1.2"), reached("2.5 s", "at most 5 s"), reached("fast", "at most 1")
    (1.25, 2.0, None)
    """
    had, wanted = re.match(r"[\d.]+", figure), re.match(r"(at least|at most) ([\d.]+)", aim)
    if not had or not wanted or not float(had[0]) * float(wanted[2]):
        return None
    share = float(had[0]) / float(wanted[2])
    return share if wanted[1] == "at least" else 1 / share


def purpose(name: str, benches: Sequence[Script]) -> str:
    """What the bench is for that a result is named after (the longest name that it begins with); empty: none."""
    fitting = [one for one in benches if name.startswith(one.begins)]
    return max(fitting, key=lambda one: len(one.begins)).purpose if fitting else ""


def _ratios(table: Table, result: Result) -> Bars:
    """Ratios of a bench that leaves parts out are of ourselves, all others beside somebody."""
    label = "Peer's time over ours (above 1: ours is faster)."
    if "ablation" in result.name:
        label = "Time without the part over the time with all (above 1: the part gains)."
    return Bars(label, tuple((what, value, value >= 1) for what, value in table.ratios[:BARS]))


def _points(space: Scatter) -> str:
    """Programs of a space by measured and predicted time, on logarithmic axes; the line is where both are the same."""
    predicted, measured = zip(*space.points, strict=True)
    plot = blank_plot(6, 4.5, layout="constrained")
    axes = plot.add_subplot()
    axes.loglog(measured, predicted, ".", color="#4477aa", markersize=4, rasterized=True)
    for axis, values in ((axes.xaxis, measured), (axes.yaxis, predicted)):
        axis.set_ticks(ticks := _ticks(min(values), max(values)), [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    ends = [min(*predicted, *measured), max(*predicted, *measured)]
    axes.plot(ends, ends, color="#333333", linewidth=1)
    axes.set_xlabel("measured, ms")
    axes.set_ylabel("predicted, ms")
    axes.tick_params(labelsize=8)
    return _svg(plot)


def _ticks(low: float, high: float) -> list[float]:
    """Of a logarithmic axis: from three to seven places, in steps of 1, 2, 5 or of tens, closer ones in a short range:
    whatever the range, their labels do not touch."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1.0,), (1.0, 2.0, 5.0), tuple(range(1, 10)), tuple(n / 10 for n in range(10, 100))):
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        found = [one for one in found if low <= one <= high]
        if len(found) >= LEAST_TICKS:
            return found[:: -(-len(found) // MOST_TICKS)]
    return sorted({low, high})


def _source(svg: str) -> str:
    """As an image's address: what stands in the file is drawn and never run."""
    return "data:image/svg+xml;base64," + base64.b64encode(_rounded(_spelled(svg)).encode()).decode()


_OUTLINED = re.compile(
    r'<!-- (?P<text>[^\n$]*) -->\s*<g (?:style="(?P<style>[^"]*)" )?transform="(?P<place>translate\([^)]*\)'
    r'(?: rotate\([^)]*\))?) scale\((?P<size>[\d.]+) -[\d.]+\)">.*?</g>',
    re.DOTALL,
)


def _spelled(svg: str) -> str:
    """Text in place of the outlines of its letters, before which matplotlib writes it as a comment."""

    def text(found: re.Match[str]) -> str:
        style = f"font: {100 * float(found['size']):g}px sans-serif; {found['style'] or ''}"
        return f'<text transform="{found["place"]}" style="{style}">{found["text"]}</text>'

    return _OUTLINED.sub(text, svg)


def _rounded(svg: str) -> str:
    """The drawing with places to a tenth of a point from ten on, without comments and names that nothing refers to."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="(?:text|line2d|xtick|ytick|patch|axes|figure|matplotlib|legend)[^"]*"', "", svg)
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\d\.\d|\d\.\d\d)\d+", r"\1", tag[0]), svg)
    return re.sub(r"\s*\n\s*", "\n", svg)


def _svg(plot: Any) -> str:
    text = io.StringIO()
    with optional("matplotlib", "plots").rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        plot.savefig(text, format="svg", metadata={"Date": None}, dpi=60)
    content = text.getvalue()
    return _rounded(content[content.index("<svg") :])
