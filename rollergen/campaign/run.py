"""Performs what a store lacks of a plan: tasks go to the cluster, each delivery is committed as it arrives.

The store is all that is remembered.  Whoever dies (a worker, the scheduler, this process), what was committed stays,
and running the same plan again performs the rest.  A task that is performed twice is delivered once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollergen.campaign.cluster import resource
from rollergen.campaign.plan import Plan, Task
from rollergen.campaign.work import perform
from rollergen.dropped import error_text
from rollergen.errors import DeviceError, RollergenError
from rollergen.hal.dataclass import dataclass
from rollergen.store.deliveries import Delivery, deliver, finished

Progress = Callable[[int, int, str], None]
"""``progress(delivered, all, what)``."""

LOOK_S = 0.05


class ClusterLostError(DeviceError):
    """The scheduler is gone; what was delivered is in the store."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a plan's ``tasks``: ``before``: how many the store had; ``delivered``: how many this run
    delivered; ``twice``: how many another run delivered meanwhile; ``failed``: (title, reason) of each; ``records``:
    how many were appended."""

    tasks: int
    before: int
    delivered: int
    twice: int
    records: int
    failed: tuple[tuple[str, str], ...]


def all_delivered(plan: Plan, store: Path) -> bool:
    """Whether nothing is left to do.  Raises StoreError."""
    return finished(store).issuperset(task.id for task in plan.tasks)


def run(
    plan: Plan, store: Path, client: Any, progress: Progress = lambda done, of, what: None,
    task: Callable[[Task], Delivery] = perform,
) -> Summary:  # fmt: skip
    """Raises StoreError, and ClusterLostError that says how far it came; a task that fails does not end the others."""
    known = finished(store)
    waiting = {
        client.submit(task, one, key=f"rollergen-{one.id}", pure=False, resources={resource(one.device): 1}): one
        for one in plan.tasks
        if one.id not in known
    }
    before = len(plan.tasks) - len(waiting)
    delivered = twice = records = 0
    failed: list[tuple[str, str]] = []
    progress(before, len(plan.tasks), "")
    while waiting:
        ready = [future for future in waiting if future.done()]
        for future in ready:
            one = waiting.pop(future)
            found = _answer(future, client)
            if isinstance(found, str):
                failed.append((one.title, found))
            elif deliver(store, found):
                delivered, records = delivered + 1, records + len(found.records)
            else:
                twice += 1
            future.release()
            progress(before + delivered + twice, len(plan.tasks), one.title)
        if waiting and not ready:
            _check_alive(client)
            time.sleep(LOOK_S)
    return Summary(len(plan.tasks), before, delivered, twice, records, tuple(failed))


def _answer(future: Any, client: Any) -> Delivery | str:
    """What a task delivered, or why it could not."""
    _check_alive(client)
    if future.status == "cancelled":
        raise ClusterLostError(_lost("it forgot its tasks"))
    try:
        delivery = future.result(timeout=60)
    except RollergenError as error:
        return error_text(error)
    except (OSError, TimeoutError) as error:
        raise ClusterLostError(_lost(str(error) or type(error).__name__)) from None
    except Exception as error:  # a fault of the task's own: the others go on
        return error_text(error)
    assert isinstance(delivery, Delivery)
    return delivery


def _check_alive(client: Any) -> None:
    if client.status != "running":
        raise ClusterLostError(_lost(f"the connection is {client.status}"))


def _lost(why: str) -> str:
    return f"the scheduler was lost ({why}); what was delivered is in the store: run the same plan again for the rest"
