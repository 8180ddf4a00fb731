"""One task of a campaign, performed where it is called: as ``rollergen verify collect`` does, but isolated."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollergen.campaign.plan import Task
from rollergen.hal.load import device_hash
from rollergen.runtime.executor import executor_for
from rollergen.store.deliveries import Delivery
from rollergen.verify.collect import collect
from rollergen.verify.protocol import Protocol


def perform(task: Task) -> Delivery:
    """Constructs, compiles, checks and times the task's programs here.  Raises RollergenError: DeviceError where its
    device is not, and what construction refuses."""
    found = collect(
        task.expression(), task.device, executor_for(task.device), count=task.programs, drafted=task.top_k,
        protocol=Protocol(seconds=task.seconds), seed=task.seed, options=task.options,
        alone=lambda timing: holding(task, timing),
    )  # fmt: skip
    return Delivery(task.campaign, task.id, task.device, found.records)


@contextmanager
def holding(task: Task, timing: bool) -> Iterator[None]:
    """The device of this machine, shared with others that compile and check, or (timing) held alone.

    The operating system lets go of it where the process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # one worker for each device is then all there is
        yield
        return
    user = os.getuid()
    path = Path(tempfile.gettempdir()) / f"rollergen-{user}-{device_hash(task.device)[:16]}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if timing else fcntl.LOCK_SH)
        yield
