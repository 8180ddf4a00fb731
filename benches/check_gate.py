"""Shows the gate seeded faults in lowering, printers and launches: ``python benches/check_gate.py``.

Prints what each fault is, the program it was seeded into and what the gate said; fails if one went unnoticed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from results import keep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.gate.mutants import Bench, mutants


@click.command()
@click.option("--only", default="", help="Faults whose name contains this.")
def main(only: str) -> None:
    bench, rows = Bench(), []
    for mutant in mutants():
        if only in mutant.name:
            problems = bench.caught(mutant)
            rows.append({"fault": mutant.name, "part": mutant.part, "outputs": _outputs(mutant), "caught": problems})
            said = problems[0] if problems else "NOT CAUGHT"
            click.echo(f"{mutant.part:9}{mutant.name:36}{_outputs(mutant):24}{said[:110]}")
    bench.close()
    missed = [row["fault"] for row in rows if not row["caught"]]
    click.echo(f"{len(rows) - len(missed)} of {len(rows)} caught; missed: {', '.join(missed) or 'none'}")
    if not only:
        click.echo(f"kept in {keep('check_gate', {'faults': len(rows), 'missed': missed, 'rows': rows})}")
    sys.exit(bool(missed))


def _outputs(mutant: object) -> str:
    return ", ".join(f"{b.name}{list(b.shape)}" for b in mutant.program.outputs)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
