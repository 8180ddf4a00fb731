"""Builders that share one store are killed at random moments: ``python -m tests.store.killing KILLS BUILDERS SEED``.

The processes take turns in what they do (`builders.WORK`).  In between and at the end the store must open, every row
must be what was written and no record's key may stand twice; every kernel and every task that a process had announced
must be there, with all its records; and the kernels found must be those that are built without it.  Prints what was
found as one JSON object.

Builders are forked from this process, which has imported everything and opened nothing: no start-up to wait for.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rollergen.hal.files.user_cache import DIRECTORY_VARIABLE
from rollergen.store import admin
from rollergen.store.collection import stored
from rollergen.store.database import StoreError
from rollergen.store.deliveries import finished, key_of_record
from rollergen.store.location import store_path
from tests.store.builders import build, build_profiled, prepared, tasks, work

SAMPLE, CHECK_EVERY = 40, 25
MODES = ("many", "writing", "campaign")
_SLOWEST_S = 120.0


class Builder:
    """One process that works until it is killed; ``announced``: what it said was stored or found."""

    def __init__(self, seed: int, directory: Path, mode: str) -> None:
        self.mode = mode
        self._output, self._errors = directory / f"builder-{seed}.out", directory / f"builder-{seed}.err"
        for path in (self._output, self._errors):
            path.touch()
        self.pid = os.fork()
        if self.pid == 0:
            _become(mode, seed, self._output, self._errors)

    @property
    def announced(self) -> list[str]:
        """Whole lines: the last one may have been cut."""
        return self._output.read_text().split("\n")[:-1]

    @property
    def complaints(self) -> str:
        return self._errors.read_text()

    @property
    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait_until_at_work(self) -> None:
        deadline = time.monotonic() + _SLOWEST_S
        while not self.announced and not self.ended and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _become(mode: str, seed: int, output: Path, errors: Path) -> None:
    """The child's life: output and errors into files, work, never return."""
    status = 1
    try:
        for path, number in ((output, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_WRONLY), number)
        work(mode, seed)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def stress(directory: Path, kills: int, builders: int, seed: int, modes: Sequence[str]) -> dict[str, object]:
    """What is left after so many kills; ``problems`` is empty where all is well."""
    rng = random.Random(seed)
    running = [Builder(number, directory, modes[number % len(modes)]) for number in range(builders)]
    all_of_them, problems, in_wal = list(running), [], 0
    killed = dict.fromkeys(modes, 0)
    for kill in range(kills):
        victim = rng.randrange(builders)
        running[victim].wait_until_at_work()
        time.sleep(rng.random() * 0.2)
        in_wal += store_path().with_name(f"{store_path().name}-wal").exists()
        if running[victim].ended:
            problems.append(f"a builder ended by itself: {running[victim].complaints[-500:]}")
        running[victim].kill()
        killed[running[victim].mode] += 1
        running[victim] = Builder(builders + kill, directory, running[victim].mode)
        all_of_them.append(running[victim])
        if kill % CHECK_EVERY == CHECK_EVERY - 1:
            problems += _problems_of_the_store(f"after {kill + 1} kills, builders at work")
            print(f"{kill + 1} kills, {len(problems)} problems", file=sys.stderr, flush=True)
    for one in running:
        one.wait_until_at_work()
        one.kill()
    problems += [f"a builder complained: {b.complaints[-500:]}" for b in all_of_them if b.complaints]
    said = {line for b in all_of_them for line in b.announced}
    problems += _problems_of_the_store("at the end, deep", deep=True)
    problems += _problems_of_the_kernels({int(line) for line in said if line.isdigit()}, rng)
    problems += _problems_of_the_tasks({line.split()[1] for line in said if line.startswith("task")})
    problems += _problems_of_the_profiled({int(line.split()[1]) for line in said if line.startswith("profiled")})
    return {
        "kills": kills,
        "kills_by_work": killed,
        "builders": builders,
        "seed": seed,
        "announced": {mode: sum(len(b.announced) for b in all_of_them if b.mode == mode) for mode in modes},
        "tasks_delivered": len(finished(store_path())),
        "records": len(stored(store_path()).records),
        "kills_while_a_wal_was_open": in_wal,
        "kernels": len(admin.listing(store_path())["kernels"]),
        "bytes": store_path().stat().st_size,
        "problems": problems,
    }


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


def _problems_of_the_tasks(announced: set[str]) -> list[str]:
    """Every announced task is there, each task with all its records, no record twice."""
    known = finished(store_path())
    found = [f"task {one[:12]} was announced and is lost" for one in announced - known]
    keys = [one["campaign"]["key"] for one in stored(store_path()).records if "campaign" in one]
    expected = {
        key_of_record(record, task.id) for task, delivery in tasks() if task.id in known for record in delivery.records
    }
    if len(set(keys)) != len(keys):
        found.append(f"{len(keys) - len(set(keys))} records stand twice")
    if set(keys) != expected:
        found.append(f"{len(expected - set(keys))} records are lost, {len(set(keys) - expected)} are nobody's")
    return found


def _problems_of_the_profiled(announced: set[int]) -> list[str]:
    """Kernels that were measured are found, and so is the record that was committed with each."""
    before = len(stored(store_path()).records)
    for number in announced:
        build_profiled(number)
    now = stored(store_path()).records
    found = [f"{len(now) - before} kernels that were announced had to be measured again"] if len(now) > before else []
    own = [one for one in now if "campaign" not in one]
    if len(own) < len(announced):
        found.append(f"{len(announced)} kernels were measured; {len(own)} records are there")
    return found


def main(kills: int, builders: int, seed: int, modes: Sequence[str] = MODES) -> dict[str, object]:
    start = time.monotonic()
    prepared(), tasks()  # everything is imported and built before the first fork
    with tempfile.TemporaryDirectory(prefix="rollergen-stress-") as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        found = stress(Path(directory), kills, builders, seed, modes)
    return {**found, "seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:4]))))
