"""Work done by several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

Result = TypeVar("Result")


def in_threads(work: Callable[[int], Result], count: int = 4) -> list[Result]:
    """What ``work(0)``, ``work(1)``, ... return, each run by a thread of its own and begun together; raises what the
    first of them raises."""
    together = Barrier(count)

    def begun(number: int) -> Result:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begun, range(count)))
