"""A campaign whose workers, scheduler and client are killed: ``python benches/check_campaign.py``.

Forty small operators on a `LocalCluster` of two workers.  Undisturbed: one run.  Disturbed: the cluster in a process
of its own; a worker is killed (kill -9) after a fifth and after two fifths of the tasks, the cluster's process, which
is its scheduler, after three fifths; the client must then end and say so.  The same plan is run again, by a client
with an embedded cluster that is killed with it after four fifths, and again to the end.  Both stores must hold the
same records, by key and by what became of the program (times aside), each once, and must be whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from results import keep

import rollergen as rg
from rollergen.campaign.plan import read_plan
from rollergen.store import admin
from rollergen.store.collection import stored
from rollergen.store.deliveries import finished

WORKERS, PATIENCE_S = 2, 900.0
CLUSTER = """
import signal, sys
import rollergen as rg
from rollergen.campaign.cluster import local_cluster

if __name__ == "__main__":
    with local_cluster(int(sys.argv[1]), rg.load_device("cpu"), dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        signal.pause()
"""


def problems(count: int) -> Iterator[str]:
    """So many small operators, all different."""
    for number in range(count):
        size = 17 + 3 * (number // 5)
        yield (
            f"matmul m={size} n=24 k={size + 6}", f"relu shape={size}x9", f"softmax shape=5x{size}",
            f"add shape={size}x11", f"sum shape=6x{size}x3 axis=1",
        )[number % 5]  # fmt: skip


def plan_text(count: int) -> str:
    head = 'name = "check"\ndevice = "cpu"\nprograms = 3\ntop_k = 2\nseconds = 0.01\n'
    return head + "".join(f'[[operators]]\nproblem = "{problem}"\n' for problem in problems(count))


class Client:
    """``rollergen campaign run`` in a process of its own."""

    def __init__(self, plan: Path, store: Path, *where: str) -> None:
        words = [sys.executable, "-m", "rollergen", "campaign", "run", str(plan), "--store", str(store), "--json"]
        words += where
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        assert out.strip(), errors[-2000:]
        return self.process.returncode, json.loads(out.strip().splitlines()[-1])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_for(store: Path, tasks: int, client: Client) -> int:
    """Until so many tasks are in the store."""
    deadline = time.monotonic() + PATIENCE_S
    while (count := len(finished(store))) < tasks:
        assert client.process.poll() is None, f"the client ended after {count} tasks"
        assert time.monotonic() < deadline, f"{count} tasks after {PATIENCE_S} s"
        time.sleep(0.05)
    return count


def workers_of(process: int) -> list[int]:
    """Processes of a cluster's workers, by their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words = (entry / "cmdline").read_bytes()
            except (OSError, ValueError):
                continue
            if parent == process and b"spawn_main" in words:
                found.append(int(entry.name))
    return sorted(found)


def disturbed(plan: Path, store: Path, count: int, directory: Path) -> list[dict[str, Any]]:
    """What was killed, and after how many tasks."""
    script = directory / "cluster.py"
    script.write_text(CLUSTER)
    cluster = subprocess.Popen([sys.executable, str(script), str(WORKERS)], stdout=subprocess.PIPE, text=True)
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    client = Client(plan, store, "--scheduler", address)
    events: list[dict[str, Any]] = []
    for fifth in (1, 2):
        done = wait_for(store, fifth * count // 5, client)
        victim = workers_of(cluster.pid)[fifth % WORKERS]
        os.kill(victim, signal.SIGKILL)
        events.append({"killed": "worker", "tasks_in_store": done})
    done = wait_for(store, 3 * count // 5, client)
    orphans = workers_of(cluster.pid)
    cluster.kill()
    cluster.wait()
    status, answer = client.end()
    events.append({"killed": "scheduler", "tasks_in_store": done, "client_ended_with": status, "client_said": answer})
    events[-1]["workers_left_behind"] = len(still_there(orphans))
    client = Client(plan, store, "--workers", str(WORKERS))
    done = wait_for(store, 4 * count // 5, client)
    client.kill()
    events.append({"killed": "client with its embedded cluster", "tasks_in_store": done})
    status, answer = Client(plan, store, "--workers", str(WORKERS)).end()
    return [*events, {"killed": "nothing", "client_ended_with": status, "client_said": answer}]


def still_there(processes: list[int]) -> list[int]:
    """Those that have not ended by themselves within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(Path(f"/proc/{one}").exists() for one in processes):
        time.sleep(0.2)
    return [one for one in processes if Path(f"/proc/{one}").exists()]


def contents(store: Path) -> list[tuple[str, str]]:
    """Key and state of every record."""
    return sorted((one["campaign"]["key"], one["result"]["status"]) for one in stored(store).records)


@click.command()
@click.option("--operators", default=40, show_default=True)
def main(operators: int) -> None:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rollergen-campaign-") as name:
        directory = Path(name)
        plan, calm, rough = directory / "ops.toml", directory / "calm.sqlite", directory / "rough.sqlite"
        plan.write_text(plan_text(operators))
        assert len(read_plan(plan).tasks) == operators
        status, answer = Client(plan, calm, "--workers", str(WORKERS)).end()
        assert status == 0, answer
        calm_s = time.monotonic() - start
        events = disturbed(plan, rough, operators, directory)
        ours, theirs = contents(calm), contents(rough)
        found = {
            "operators": operators, "workers": WORKERS, "device": rg.load_device("cpu").title,
            "undisturbed_s": round(calm_s, 1), "seconds": round(time.monotonic() - start, 1), "events": events,
            "records_undisturbed": len(ours), "records_disturbed": len(theirs), "same_records": ours == theirs,
            "duplicates": len(theirs) - len({key for key, _ in theirs}),
            "states": {state: sum(one == state for _, one in theirs) for state in sorted({s for _, s in theirs})},
            "problems": [*admin.verify(calm).problems, *admin.verify(rough).problems],
        }  # fmt: skip
    right = found["same_records"] and not found["duplicates"] and not found["problems"]
    good = right and events[-1]["client_ended_with"] == 0
    click.echo(json.dumps(found, indent=1))
    click.echo(f"kept in {keep('check_campaign', found)}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
