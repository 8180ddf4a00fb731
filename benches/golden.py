"""Whether a change of the code changes what it makes: ``python benches/golden.py keep FILE``, ``... compare FILE``.

``keep`` constructs every operator of the suites on every built-in device, the operators of `bench_operators` on this
machine's CPU and random expressions (tests/fuzzing/recipes) on one device each in turn, and writes for each the first
programs' predicted times and hashes of their programs and texts.  ``compare`` does it again and prints what differs:
nothing, or the cases with the time of the first choice before and after.  Exits with 1 where anything differs.

``--devices`` and ``--every N`` (every Nth case) make a quick look of it.  Nothing is run or measured.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.operator_cases import CASES
from rollergen.bench.suites import suite, suite_names
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit_all
from rollergen.errors import RollergenError
from rollergen.hal.load import device_names
from rollergen.measure.candidates import paused_collector
from rollergen.research import planned
from rollergen.targets import resolve
from tests.fuzzing.recipes import draw

CANDIDATES = 10
RANDOM = 300
Made = list[tuple[float, str, str]]
"""Of each program: predicted seconds, hash of the program, hash of its text."""


class Golden(NamedTuple):
    """An expression, or several outputs, on a device."""

    name: str
    device: str
    make: Callable[[], Any]

    @property
    def title(self) -> str:
        return f"{self.name} on {self.device}"


@lru_cache(maxsize=1)
def golden_cases(devices: tuple[str, ...]) -> tuple[Golden, ...]:
    return tuple(_cases(devices))


def _cases(devices: tuple[str, ...]) -> Iterator[Golden]:
    for name in suite_names():
        for entry in suite(name).entries:
            yield from (Golden(entry.name, device, entry.make) for device in devices)
    if "cpu" in devices:
        yield from (Golden(case.name, "cpu", case.make) for case in CASES)
    for seed in range(RANDOM):
        yield Golden(f"random {seed}", devices[seed % len(devices)], lambda seed=seed: draw(seed).outputs())


def made(case: Golden) -> tuple[str, Made | str]:
    """The first programs of a case, or the error that says why there is none."""
    device, options = resolve(case.device), BuildOptions()
    try:
        with paused_collector():
            ranked = construct(planned(case.make(), device, options), device, options, CANDIDATES)
            sources = emit_all([one.program for one in ranked], device)
    except RollergenError as error:
        return case.title, f"{type(error).__name__}: {error}"
    rows = zip(ranked, sources, strict=True)
    return case.title, [(one.seconds, _hash(repr(one.program)), _hash(source.text)) for one, source in rows]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _numbered(asked: tuple[int, tuple[str, ...]]) -> tuple[str, Made | str]:
    number, devices = asked
    return made(golden_cases(devices)[number])


def everything(devices: tuple[str, ...], every: int, jobs: int) -> dict[str, Made | str]:
    numbers = range(0, len(golden_cases(devices)), every)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        asked = [(number, devices) for number in numbers]
        return dict(pool.imap_unordered(_numbered, asked, chunksize=16))


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """A line for each case that differs; cases that were not made again are left out."""
    for title, now in after.items():
        then = before.get(title)
        if then == json.loads(json.dumps(now)):
            continue
        if isinstance(then, list) and isinstance(now, list) and then and now:
            what = "program" if [row[1] for row in then] != [row[1] for row in now] else "text or time only"
            yield f"{title}: {then[0][0]:.4g} -> {now[0][0]:.4g} s ({_ratio(now, then):.3f}), {what}"
        else:
            yield f"{title}: {_short(then)} -> {_short(now)}"


def _ratio(now: list[Any], then: list[Any]) -> float:
    """Of the first choices' seconds; of programs that compute nothing, which take none, 1."""
    return now[0][0] / then[0][0] if then[0][0] else 1.0


def _short(result: Any) -> str:
    return f"{len(result)} programs" if isinstance(result, list) else str(result)[:160]


@click.command()
@click.argument("action", type=click.Choice(["keep", "compare"]))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--devices", default=",".join(device_names()), show_default=True)
@click.option("--every", default=1, show_default=True, help="Only every Nth case.")
@click.option("--jobs", default=2, show_default=True)
def main(action: str, file: Path, devices: str, every: int, jobs: int) -> None:
    found = everything(tuple(devices.split(",")), every, jobs)
    if action == "keep":
        file.write_text(json.dumps(found, indent=0))
        click.echo(f"{len(found)} cases kept in {file}")
        return
    before = json.loads(file.read_text())
    lines = list(differences(before, found))
    ratios = [_ratio(now, before[title]) for title, now in found.items()
              if isinstance(now, list) and now and isinstance(before.get(title), list) and before[title]]  # fmt: skip
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    click.echo("\n".join([*lines, f"{len(lines)} of {len(found)} cases differ; first choices {mean:.4f} of before"]))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
