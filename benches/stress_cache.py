"""Kills builders that share one cache, then asks what is left: ``python benches/stress_cache.py``.

Six processes work without end on one store, half of them building small kernels, half storing built ones as
fast as they can; one after another is killed with SIGKILL at a random moment and replaced.  In between and at
the end the store must open, every row must be what was written, every kernel that a builder had announced must
be there, and the kernels found must be those that are built without it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from results import keep

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rollergen.store import admin  # noqa: E402
from rollergen.store.database import StoreError  # noqa: E402
from rollergen.store.location import DIRECTORY_VARIABLE, store_path  # noqa: E402
from tests.store.builders import build  # noqa: E402

SAMPLE = 100


class Builder:
    """One process that builds until it is killed; ``announced``: the expressions that it said it had built."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._output = directory / f"builder-{seed}.out"
        self._errors = directory / f"builder-{seed}.err"
        mode = "writing" if seed % 2 else "many"
        command = [sys.executable, "-m", "tests.store.builders", mode, str(seed)]
        with self._output.open("w") as out, self._errors.open("w") as err:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)

    @property
    def announced(self) -> list[int]:
        return [int(line) for line in re.findall(r"^(\d+)\n", self._output.read_text(), re.MULTILINE)]

    @property
    def complaints(self) -> str:
        return self._errors.read_text()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@click.command()
@click.option("--kills", default=100, show_default=True)
@click.option("--builders", default=6, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kills: int, builders: int, seed: int) -> None:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rollergen-stress-") as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        found = stress(Path(directory), kills, builders, seed)
    found["seconds"] = round(time.monotonic() - start, 1)
    for name, value in found.items():
        click.echo(f"{name}: {value}")
    click.echo(f"kept in {keep('stress_cache', found)}")
    sys.exit(bool(found["problems"]))


def stress(directory: Path, kills: int, builders: int, seed: int) -> dict:
    rng = random.Random(seed)
    running = [Builder(number, directory) for number in range(builders)]
    all_of_them, problems, in_wal = list(running), [], 0
    for kill in range(kills):
        victim = rng.randrange(builders)
        _wait_until_at_work(running[victim])
        time.sleep(rng.random() * 0.3)
        in_wal += store_path().with_name(store_path().name + "-wal").exists()
        if running[victim].ended:
            problems.append(f"a builder ended by itself: {running[victim].complaints[-500:]}")
        running[victim].kill()
        running[victim] = Builder(builders + kill, directory)
        all_of_them.append(running[victim])
        if kill % 10 == 9:
            problems += _problems_of_the_store(f"after {kill + 1} kills, builders at work")
            click.echo(f"{kill + 1} kills, {len(problems)} problems", err=True)
    for one in running:
        one.kill()
    problems += [f"a builder complained: {b.complaints[-500:]}" for b in all_of_them if b.complaints]
    announced = sum(len(b.announced) for b in all_of_them)
    problems += _problems_of_the_store("at the end, deep", deep=True)
    problems += _problems_of_the_kernels({n for b in all_of_them for n in b.announced}, rng)
    listing = admin.listing(store_path())
    return {
        "kills": kills,
        "builders": builders,
        "seed": seed,
        "kernels_stored_or_found": announced,
        "kills_while_a_wal_was_open": in_wal,
        "kernels": len(listing["kernels"]),
        "bytes": listing["bytes"],
        "problems": problems,
    }


def _wait_until_at_work(builder: Builder) -> None:
    deadline = time.monotonic() + 120
    while not builder.announced and not builder.ended and time.monotonic() < deadline:
        time.sleep(0.02)


def _problems_of_the_store(when: str, deep: bool = False) -> list[str]:
    try:
        return [f"{when}: {text}" for text in admin.verify(store_path(), deep=deep).problems]
    except StoreError as error:
        return [f"{when}: {error}"]


def _problems_of_the_kernels(announced: set[int], rng: random.Random) -> list[str]:
    """Every announced kernel is there; a sample of them is what is built without a cache."""
    kept = len(admin.listing(store_path())["kernels"])
    found = [] if kept >= len(announced) else [f"{kept} kernels are kept; {len(announced)} were announced"]
    for number in rng.sample(sorted(announced), min(SAMPLE, len(announced))):
        if build(number).candidates != build(number, cache=False).candidates:
            found.append(f"kernel {number} differs from the one that is built without a cache")
    if len(admin.listing(store_path())["kernels"]) != kept:
        found.append("kernels that were announced had to be built again")
    return found


if __name__ == "__main__":
    main()
