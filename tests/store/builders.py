"""Small kernels that many processes build on one store, and the processes' work.

``many``: expressions in random order, built or found; ``writing``: kernels built once and stored again and again
under other options, so that the process is nearly always within a transaction; ``campaign``: tasks of one campaign
that all of these processes perform and deliver, with times of their own; ``profiled``: kernels built, checked and
timed on this machine's CPU.  They work until they are killed, or whoever started them ends.
"""

from __future__ import annotations

import os
import random
import time
from functools import lru_cache

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.expr.canonical import canonicalize
from rollergen.store.cache import Cache
from rollergen.store.deliveries import deliver
from rollergen.store.location import store_path
from tests.campaign import clients

NUMBERS, PREPARED, VARIANTS, TASKS, PROFILED = 120, 6, 40, 60, 150


def expression(number: int, name: str = "x"):
    """One of `NUMBERS` small expressions of a tensor `name`."""
    extent = 60 + 7 * (number // 3)
    if number % 3 == 0:
        return rg.ops.relu(rg.tensor(name, (extent,)))
    if number % 3 == 1:
        return rg.ops.softmax(rg.tensor(name, (5, extent)))
    return rg.ops.matmul(rg.tensor(name, (9, extent)), rg.tensor("weights", (extent, 17)))


def build(number: int, name: str = "x", cache: bool = True):
    """Kernel `number`; from `NUMBERS` on, those of the first six expressions with as many other options."""
    expr, options = expression(number, name), BuildOptions()
    if number >= NUMBERS:
        variant, which = divmod(number - NUMBERS, PREPARED)
        expr, options = expression(which, name), BuildOptions(time_budget_s=1.0 + variant)
    return rg.build(expr, "v100", profile=False, top_k=3, options=options, cache=cache)


def build_without_end() -> None:
    """Builds expressions in random order, under changing tensor names, and says so line by line."""
    parent = os.getppid()
    while os.getppid() == parent:
        number = random.randrange(NUMBERS)
        build(number, f"x{random.randrange(3)}")
        print(number, flush=True)
        time.sleep(random.random() * 0.05)


@lru_cache(maxsize=1)
def prepared():
    """(graph, candidates) of the first `PREPARED` expressions."""
    return [(canonicalize(expression(n)), build(n, cache=False).candidates) for n in range(PREPARED)]


def write_without_end() -> None:
    """Stores kernels that were built once, and says so line by line."""
    device, kernels = rg.load_device("v100"), prepared()
    parent = os.getppid()
    while os.getppid() == parent:
        which, variant = random.randrange(PREPARED), random.randrange(VARIANTS)
        options = BuildOptions(time_budget_s=1.0 + variant)
        graph, candidates = kernels[which]
        Cache(graph, device, options, 3, None).keep(candidates, candidates[0])
        print(NUMBERS + variant * PREPARED + which, flush=True)
        time.sleep(random.random() * 0.005)


@lru_cache(maxsize=1)
def tasks():
    """The tasks of the campaign and what a worker would deliver for each."""
    plan = clients.plan(*(30 + 4 * n for n in range(TASKS)))
    return [(task, clients.pretend(task)) for task in plan.tasks]


def deliver_without_end() -> None:
    """Delivers tasks in random order, each measured anew, and says so line by line."""
    parent = os.getppid()
    while os.getppid() == parent:
        task, delivery = random.choice(tasks())
        deliver(store_path(), clients.pretend(task, random.random()) if random.random() < 0.2 else delivery)
        print(f"task {task.id}", flush=True)
        time.sleep(random.random() * 0.01)


def profile_without_end() -> None:
    """Builds kernels of this machine's CPU, checked and timed, and says so line by line."""
    parent = os.getppid()
    while os.getppid() == parent:
        number = random.randrange(PROFILED)
        build_profiled(number)
        print(f"profiled {number}", flush=True)


def build_profiled(number: int):
    """Kernel `number` of `PROFILED`, for this machine's CPU."""
    options = BuildOptions(time_budget_s=1.0 + number // 3)
    return rg.build(expression(number % 3), "cpu", top_k=1, options=options)


WORK = {
    "many": build_without_end,
    "writing": write_without_end,
    "campaign": deliver_without_end,
    "profiled": profile_without_end,
}


def work(mode: str, seed: int) -> None:
    """``mode``: one of `WORK`."""
    random.seed(seed)
    WORK[mode]()
