"""Compiling ahead: while one candidate is checked, the compiler works on the next ones.

Compilers release Python's lock.  PoCL lets one thread into its compiler at a time (four products of matrices took as
long in two threads as in one, with one OpenCL context and with one for each): one thread compiles there, and what it
works beside is the making of inputs, the runs and their comparison.  NVRTC works for several threads at once (two
products of matrices by wgmma in two threads take 0.57 of the time that they take one after the other).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from rollergen.emit import Source
from rollergen.hal.probes.host_facts import cores
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.runtime.executor import Compiled, Executor, RuntimeExecutor


class BackgroundCompiler:
    """An executor that compiles its sources in the background: `prepare` waits for what is not done yet.

    Other sources are compiled by `prepare` itself.  ``threads``: how many compile side by side.
    """

    def __init__(self, executor: Executor, sources: Iterable[Source], threads: int = 1) -> None:
        self._executor, self.memory = executor, executor.memory
        self._pool = ThreadPoolExecutor(threads, "compile ahead")
        self._begun: dict[str, Future[Compiled]] = {
            source.text: self._pool.submit(executor.prepare, source) for source in sources
        }

    @property
    def runtime(self) -> Any:
        """The executor's, None where it has none."""
        return getattr(self._executor, "runtime", None)

    def prepare(self, source: Source) -> Compiled:
        """The compiled source; raises what its compilation raised."""
        begun = self._begun.pop(source.text, None)
        return self._executor.prepare(source) if begun is None else begun.result()

    def close(self) -> None:
        """Waits for what is being compiled, and begins nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._begun.clear()


@contextmanager
def compiled_in_background(executor: RuntimeExecutor, sources: Iterable[Source]) -> Iterator[BackgroundCompiler]:
    """The executor, at work on the sources already where it has a core to do so beside the caller."""
    available = cores()
    threads = available if isinstance(executor.runtime, CudaRuntime) else 1
    ahead = BackgroundCompiler(executor, sources if available > 1 else (), threads)
    try:
        yield ahead
    finally:
        ahead.close()
