"""Python's cyclic garbage collector, paused where much is made and nothing in cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collections inside; the state that was found is restored, also after an exception.

    Constructing and emitting make some hundred thousand small frozen values without a cycle, which reference
    counts alone free; searching them for cycles took a tenth of the time.  Where another thread switches the
    collector on meanwhile, it is on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
