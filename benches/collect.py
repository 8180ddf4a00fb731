"""A collection by several processes: ``taskset -c 1 python benches/collect.py OUT.jsonl --part 0/2`` (1/2 beside it).

What ``rollergen verify collect`` does, for a machine of few cores: programs are compiled and checked on any core, but
timed by one process at a time, on the core that the process was started on, in real time (which needs the right to).
A part's file is resumed; parts are put together line by line, records after the header that they share.
"""

from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollergen.bench.suites import suite
from rollergen.runtime.executor import executor_for
from rollergen.store.record_files import append
from rollergen.targets import resolve
from rollergen.verify.collect import collect, expression_key, recorded
from rollergen.verify.protocol import Protocol

REAL_TIME = 20


def _threads() -> list[int]:
    return [int(one) for one in os.listdir("/proc/self/task")]


def _scheduled(cores: set[int], policy: int, priority: int) -> None:
    for thread in _threads():
        os.sched_setaffinity(thread, cores)
        os.sched_setscheduler(thread, policy, os.sched_param(priority))


@contextmanager
def alone(timing: bool, own: set[int], lock: Path) -> Iterator[None]:
    """Around checking (any core, usual priority) and timing (the core `own`, in real time, one process at a time)."""
    if not timing:
        _scheduled(set(range(os.cpu_count() or 1)), os.SCHED_OTHER, 0)
        yield
        return
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            _scheduled(own, os.SCHED_FIFO, REAL_TIME)
            yield
        finally:
            _scheduled(own, os.SCHED_OTHER, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", default="0/1", help="I/N: every Nth operator from the Ith")
    parser.add_argument("--only", action="append", default=[], help="identifiers of entries; default: all")
    parser.add_argument("--count", type=int, default=90)
    parser.add_argument("--drafted", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--lock", type=Path, default=Path("/tmp/rollergen_timing.lock"))
    given = parser.parse_args()
    own = os.sched_getaffinity(0)
    first, parts = (int(one) for one in given.part.split("/"))
    device = resolve("cpu")
    executor = executor_for(device)
    done = recorded(given.out)
    entries = suite("collection").chosen(given.only)
    for entry in entries[first::parts]:
        expr = entry.make()
        if expression_key(expr, device) in done:
            continue
        found = collect(
            expr, device, executor, count=given.count, drafted=given.drafted,
            protocol=Protocol(seconds=given.seconds), alone=lambda timing: alone(timing, own, given.lock),
        )  # fmt: skip
        append(given.out, device, found.records)
        how = f"spread {found.spread:.1%}, {found.drifted} drifted"
        print(f"{entry.id}: {len(found.records)} programs, {how}", flush=True)


if __name__ == "__main__":
    main()
