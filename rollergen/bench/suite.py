"""The CPU's benches one after the other, each in a process of its own; an interrupted run goes on where it ended.

What has ended at this commit is not run again.  Logs and what ended lie in `KEPT`, the results where each bench keeps
them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollergen.bench.origin import commit
from rollergen.bench.scripts import script, scripts
from rollergen.errors import ArgumentError, name_advice
from rollergen.hal.dataclass import dataclass

LISTED = Path("benches") / "cpu_suite.json"
KEPT = Path("benches") / ".suite"
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """A run of ``bench`` with its own ``arguments``, ended after ``minutes``.  ``resumes``: an interrupted run goes on
    from what it has kept, unless ``--again`` is given."""

    bench: str
    arguments: tuple[str, ...]
    minutes: float
    resumes: bool = False

    @property
    def title(self) -> str:
        return " ".join((self.bench, *self.arguments))


@dataclass(frozen=True, slots=True)
class Ended:
    """``status``: the exit status, None where the limit ended it; ``told``: its last line; ``crashed``: it ended in an
    error of its own; ``commit``: of the checkout; ``fresh``: run now."""

    title: str
    status: int | None
    seconds: float
    commit: str
    log: str
    told: str
    crashed: bool
    fresh: bool = True

    @property
    def complete(self) -> bool:
        """It ran to its end; a bench that exits with 1 tells of an aim that it missed."""
        return self.status in (0, 1) and not self.crashed


def steps(root: Path) -> tuple[Step, ...]:
    """Those of `LISTED`, in its order.  Raises ArgumentError for a bench that is none."""
    listed = json.loads((root / LISTED).read_text(encoding="utf-8"))
    found = tuple(
        Step(one["bench"], tuple(one.get("arguments", ())), float(one["minutes"]), one.get("resumes", False))
        for one in listed
    )
    known = {one.name for one in scripts(root)}
    for one in found:
        if one.bench not in known:
            raise ArgumentError(f"{LISTED} lists {one.bench!r}, which is no bench; {name_advice(one.bench, known)}")
    return found


def chosen(listed: Sequence[Step], only: Sequence[str]) -> tuple[Step, ...]:
    """The steps of these benches; all where none is named.  Raises ArgumentError for a name that is not listed."""
    names = {one.bench for one in listed}
    for name in only:
        if name not in names:
            raise ArgumentError(f"the suite has no bench {name!r}; expected one of {', '.join(sorted(names))}")
    return tuple(one for one in listed if not only or one.bench in only)


def run(root: Path, listed: Sequence[Step], *, again: bool = False) -> Iterator[tuple[Step, Ended]]:
    """Runs what has not ended at this commit yet (``again``: everything), one result after the other."""
    folder = root / KEPT
    folder.mkdir(exist_ok=True)
    now = commit(root)
    for step in listed:
        before = None if again else _ended(folder, now).get(step.title)
        if before is not None and before.complete:
            yield step, before
            continue
        ended = _run(root, step, folder, now, again)
        _keep(folder, ended)
        yield step, ended


def _run(root: Path, step: Step, folder: Path, commit: str, again: bool) -> Ended:
    log = folder / f"{step.title.replace(' ', '_').replace('/', '_')}.log"
    words = [sys.executable, str(script(root, step.bench).path), *step.arguments]
    words += ["--again"] * (again and step.resumes)
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as text:
        process = subprocess.Popen(words, stdout=text, stderr=subprocess.STDOUT, cwd=root, start_new_session=True)
        try:
            status: int | None = process.wait(60 * step.minutes)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    seconds = time.monotonic() - started
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    told = next((line.strip() for line in reversed(lines) if line.strip()), "")
    crashed = status != 0 and any(line.startswith("Traceback (most recent call last)") for line in lines)
    return Ended(step.title, status, seconds, commit, str(log.relative_to(root)), told, crashed)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the bench and what it has started, where they still run (a limit, or the user's interruption)."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sign)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def _ended(folder: Path, commit: str) -> Mapping[str, Ended]:
    """What ended at the commit, by title; nothing where the file is of another commit, damaged, or absent."""
    try:
        rows: list[dict[str, Any]] = json.loads((folder / "ended.json").read_text(encoding="utf-8"))
        found = [Ended(**{**row, "fresh": False}) for row in rows]
    except (OSError, ValueError, TypeError):
        return {}
    return {one.title: one for one in found if one.commit == commit and commit}


def _keep(folder: Path, ended: Ended) -> None:
    rows = {**_ended(folder, ended.commit), ended.title: ended}
    part = folder / "ended.part"
    part.write_text(json.dumps([asdict(one) for one in rows.values()], indent=1), encoding="utf-8")
    part.replace(folder / "ended.json")
