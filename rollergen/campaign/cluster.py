"""The cluster that performs a campaign: one at an address, or one of this machine's own processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rollergen.errors import ArgumentError
from rollergen.hal.spec import Device
from rollergen.optional import optional

CONNECT_S = 30
_FAILURES = 1000
"""So many workers may be lost with one task before the scheduler gives it up: candidates run in processes of their
own, so whatever ends a worker is not the task's doing."""


def resource(device: Device) -> str:
    """What a worker offers, once, that has the device: ``dask worker ADDRESS --nthreads 1 --resources "cpu=1"``."""
    return device.name


@contextmanager
def connected(address: str | None, workers: int, device: Device) -> Iterator[Any]:
    """A `distributed.Client` of the scheduler at an address; None: of a cluster of this machine with so many workers.

    Raises DeviceError where the extra is missing, ArgumentError where nobody answers.
    """
    distributed = _package()
    if address is not None:
        with _client(distributed, address) as client:
            yield client
        return
    with local_cluster(workers, device) as cluster, _client(distributed, cluster) as client:
        yield client


@contextmanager
def local_cluster(workers: int, device: Device, **how: Any) -> Iterator[Any]:
    """A `distributed.LocalCluster` whose workers are processes that perform one task at a time."""
    distributed = _package()
    import dask

    settings = {
        "distributed.scheduler.allowed-failures": _FAILURES,
        "distributed.worker.daemon": False,
        "distributed.logging.distributed": "critical",
    }
    for name in ("distributed", "distributed.nanny", "distributed.scheduler", "distributed.worker"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with dask.config.set(settings):
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=0,
            **{"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "resources": {resource(device): 1}, **how},
        )  # fmt: skip
        with cluster:
            yield cluster


@contextmanager
def _client(distributed: Any, where: Any) -> Iterator[Any]:
    try:
        client = distributed.Client(where, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"no scheduler answers at {where}: {error}; `dask scheduler` starts one") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def workers_with(client: Any, device: Device) -> int:
    """How many workers offer the device."""
    found = client.run_on_scheduler(_offers, name=resource(device))
    return int(found)


def _offers(name: str, dask_scheduler: Any = None) -> int:
    return sum(bool(worker.resources.get(name)) for worker in dask_scheduler.workers.values())


def _package() -> Any:
    return optional("distributed", "dask")
