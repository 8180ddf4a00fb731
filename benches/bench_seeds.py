"""The papers' evaluations: ``python benches/bench_seeds.py [--claim TEXT] [--list] [--again] [--plot FILE]``.

One entry for each figure and table (`benches/seeds/claims.py`), run on what is present: timed where the device is,
answered by the model where it is not, and told apart.  Of one entry the rows are printed, too, and drawn by `--plot`.
Findings are kept as they come, in results/seeds_<cpu>_<day>.json, and not made again by the same code (`--again`
does), but for those that are read in other benches' results.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.seeds.claims import CLAIMS, Claim, chosen
from benches.seeds.finding import IMPOSSIBLE, Finding
from rollergen.errors import RollergenError

NAME = "seeds"


def found(claim: Claim) -> Finding:
    """The finding; an error of ours becomes the reason why there is none."""
    try:
        return claim.run()
    except (RollergenError, ImportError) as error:
        return Finding(IMPOSSIBLE, "", why=f"{type(error).__name__}: {error}")


def told(claim: Claim, finding: Finding) -> dict[str, Any]:
    """The row of the overview."""
    return {
        "claim": claim.id, "of": claim.of, "what": claim.what, "state": finding.state, "ours": finding.ours,
        "paper": claim.paper, "note": finding.why,
    }  # fmt: skip


def kept(content: dict[str, Any]) -> dict[str, Any]:
    """The findings of an earlier run, by claim: its overview and its rows."""
    return {one["claim"]: {"told": one, "rows": content.get(one["claim"], [])} for one in content.get("claims", ())}


def content_of(findings: dict[str, Any]) -> dict[str, Any]:
    listed = [findings[claim.id] for claim in CLAIMS if claim.id in findings]
    rows = {one["told"]["claim"]: one["rows"] for one in listed}
    return {"load average as it was written": os.getloadavg()[1], "claims": [one["told"] for one in listed], **rows}


def show(console: Any, claim: Claim, rows: list[dict[str, Any]], picture: str | None) -> None:
    """The rows of one entry as a table, and drawn where that is asked for."""
    from rich.table import Table

    from benches.seeds.drawn import columns, drawn

    if not rows:
        console.print("it has no rows")
        return
    table = Table(*columns(rows), title=f"{claim.of}: {claim.what}")
    for row in rows:
        values = (row.get(name, "") for name in columns(rows))
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values))
    console.print(table)
    if picture:
        drawn(f"{claim.of}: {claim.what}", rows).savefig(picture)
        console.print(f"drawn in {picture}")


def options_and_claims() -> tuple[argparse.Namespace, list[Claim]]:
    """What the command line asks for; nothing heavy is imported yet, so that help and errors come at once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claim", default="", help="only entries whose name contains this text")
    parser.add_argument("--list", action="store_true", help="name the entries and stop")
    parser.add_argument("--again", action="store_true", help="make findings again that are kept already")
    parser.add_argument("--plot", metavar="FILE", help="draw the one entry that --claim names, in .svg, .png or .pdf")
    options = parser.parse_args()
    wanted = chosen(options.claim)
    if not wanted:
        parser.error(f"no entry has {options.claim!r} in its name; --list names them")
    if options.plot and len(wanted) != 1:
        parser.error(f"--plot draws one entry, and --claim {options.claim!r} names {len(wanted)}; --list names them")
    if options.plot and find_spec("matplotlib") is None:
        parser.error('--plot needs matplotlib; pip install "rollergen[plots]"')
    return options, wanted


def main() -> None:
    options, wanted = options_and_claims()
    if options.list:
        for claim in wanted:
            print(f"{claim.id}: {claim.of}: {claim.what}")
        return

    from rich.console import Console
    from rich.table import Table

    from benches.results import begun, keep, result_path

    console = Console(width=150)
    findings = kept(begun(result_path(NAME)))
    for number, claim in enumerate(wanted, 1):
        if claim.id not in findings or claim.linked or options.again:
            finding = found(claim)
            findings[claim.id] = {"told": told(claim, finding), "rows": list(finding.rows)}
            keep(NAME, content_of(findings))
        said = findings[claim.id]["told"]
        console.print(
            f"{number}/{len(wanted)} {claim.id}: {said['state']}: {said['ours'] or said['note']}", highlight=False
        )
    table = Table("claim", "state", "ours", "the paper's")
    for one in (findings[claim.id]["told"] for claim in wanted):
        table.add_row(one["claim"], one["state"], one["ours"] or one["note"], one["paper"])
    console.print(table)
    if len(wanted) == 1:
        show(console, wanted[0], findings[wanted[0].id]["rows"], options.plot)
    if result_path(NAME).exists():
        console.print(f"kept in {result_path(NAME)}")


if __name__ == "__main__":
    main()
