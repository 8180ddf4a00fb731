"""Kills builders that share one cache, then asks what is left: ``python benches/stress_cache.py``.

Two hundred kill -9 among eight processes that build, profile and deliver tasks of a campaign, all on one store;
`tests.store.killing` says how, and what must hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from results import keep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.store import killing
from tests.store.builders import WORK


@click.command()
@click.option("--kills", default=200, show_default=True)
@click.option("--builders", default=8, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kills: int, builders: int, seed: int) -> None:
    found = killing.main(kills, builders, seed, tuple(WORK))
    for name, value in found.items():
        click.echo(f"{name}: {value}")
    click.echo(f"kept in {keep('stress_cache', found)}")
    sys.exit(bool(found["problems"]))


if __name__ == "__main__":
    main()
