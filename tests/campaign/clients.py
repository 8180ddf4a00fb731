"""A cluster within this process, which loses, repeats and dies as it is told."""

from dataclasses import replace

import rollergen as rg
from rollergen.campaign.plan import Plan, Task
from rollergen.construct.options import BuildOptions
from rollergen.errors import DeviceError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import device_hash
from rollergen.measure.profiler import propose
from rollergen.store.deliveries import Delivery
from rollergen.store.keys import key_of
from rollergen.store.records import records_of

DEVICE = rg.load_device("v100")


def plan(*extents):
    """Tasks of small elementwise operators."""
    tasks = tuple(
        Task("test", f"relu shape={extent}", "float32", DEVICE, 2, 2, 0.01, 0, BuildOptions(isolate=True))
        for extent in extents
    )
    return Plan("test", DEVICE, tasks)


def pretend(task, wall_s=1e-3):
    """What a worker would deliver, its times invented."""
    graph = canonicalize(task.expression())
    outcomes = propose(rg.construct(task.expression(), DEVICE, task.programs), DEVICE)
    timed = tuple(replace(one, wall_s=wall_s, times_s=(wall_s,) * 3) for one in outcomes)
    key = key_of(graph, DEVICE, BuildOptions(), task.programs, "none | none")
    assert key.device == device_hash(DEVICE)
    return Delivery(task.campaign, task.id, DEVICE, tuple(records_of(timed, graph, DEVICE, key, 1.0)))


def refuse(task):
    raise DeviceError("v100 is on holiday")


class Future:
    def __init__(self, client, function, task):
        self.client, self.function, self.task, self.released = client, function, task, False

    def done(self):
        return True

    @property
    def status(self):
        return "cancelled" if self.client.forgets else "finished"

    def result(self, timeout):
        self.client.performed.append(self.task)
        if len(self.client.performed) == self.client.dies_after:
            self.client.status = "closed"
        return self.function(self.task)

    def release(self):
        self.released = True


class Client:
    def __init__(self, dies_after=None, forgets=False):
        self.status, self.dies_after, self.forgets = "running", dies_after, forgets
        self.performed, self.asked = [], []

    def submit(self, function, task, *, key, pure, resources):
        self.asked.append((key, resources))
        return Future(self, function, task)
