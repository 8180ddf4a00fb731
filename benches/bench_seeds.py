"""The papers' evaluations: ``python benches/bench_seeds.py [--claim TEXT] [--list] [--again]``.

One entry for each figure and table (`benches/seeds/claims.py`), run on what is present: timed where the device is,
answered by the model where it is not, and told apart.  Findings are kept as they come, in
results/seeds_<cpu>_<day>.json, and not made again by the same code (`--again` does), but for those that are read in
other benches' results.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.results import begun, keep, result_path
from benches.seeds.claims import CLAIMS, Claim
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claim", default="", help="only entries whose name contains this text")
    parser.add_argument("--list", action="store_true", help="name the entries and stop")
    parser.add_argument("--again", action="store_true", help="make findings again that are kept already")
    options = parser.parse_args()
    console = Console(width=150)
    wanted = [claim for claim in CLAIMS if options.claim in claim.id]
    if options.list:
        for claim in wanted:
            console.print(f"{claim.id}: {claim.of}: {claim.what}", highlight=False)
        return
    findings = kept(begun(result_path(NAME)))
    for number, claim in enumerate(wanted, 1):
        if claim.id not in findings or claim.linked or options.again:
            finding = found(claim)
            findings[claim.id] = {"told": told(claim, finding), "rows": list(finding.rows)}
            path = keep(NAME, content_of(findings))
        said = findings[claim.id]["told"]
        console.print(
            f"{number}/{len(wanted)} {claim.id}: {said['state']}: {said['ours'] or said['note']}", highlight=False
        )
    table = Table("claim", "state", "ours", "the paper's")
    for one in content_of(findings)["claims"]:
        table.add_row(one["claim"], one["state"], one["ours"] or one["note"], one["paper"])
    console.print(table)
    if wanted and result_path(NAME).exists():
        path = result_path(NAME)
        console.print(f"kept in {path}")


if __name__ == "__main__":
    main()
