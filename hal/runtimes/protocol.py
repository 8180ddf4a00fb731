"""What a runtime does, and what one launch may ask of it; beyond it, runtimes end the process or the launch fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rollergen.hal.dataclass import dataclass

if TYPE_CHECKING:
    from rollergen.hal.runtimes.pocl_pool import Pool

BLOCKS = 2**31 - 1
"""Blocks of one launch: kernels number them with an ``int`` (and CUDA's grids end there, Programming Guide, table
"Technical Specifications per Compute Capability")."""

POCL_PRIVATE_BYTES = 1 << 20
"""Private memory of all threads of a block on PoCL, which keeps it on the stack of a worker thread: that is 8 MiB on
common systems, and shared with PoCL's own frames; beyond it the process ends with a segmentation fault."""


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """``local_bytes``: memory shared by a block; ``private_bytes``: private arrays of all threads of a block, None
    where the runtime sets no limit of its own."""

    threads: int
    local_bytes: int
    private_bytes: int | None = None
    blocks: int = BLOCKS


class Runtime(Protocol):
    """Compiles and runs source on one device of this machine.  Safe to share between threads; kernels are not."""

    @property
    def description(self) -> str:
        """Driver and device, as they call themselves."""

    @property
    def compiler(self) -> str:
        """The compiler with its version, as it calls itself."""

    @property
    def limits(self) -> LaunchLimits:
        """What one launch may ask for."""

    @property
    def compiles_slowly(self) -> bool:
        """Whether a build measures fewer candidates, because its compiler takes its time with each."""

    def compile(self, text: str, options: Sequence[str] = ()) -> Any:
        """A module; its ``kernel(entry)`` makes kernels.  Raises BuildError with the compiler's log."""

    def wrap(self, array: np.ndarray) -> Any:
        """A buffer over (or a copy of) a C-contiguous array."""

    def set_arguments(self, kernel: Any, buffers: Sequence[Any]) -> None:
        """All arguments of the kernel, in order; it keeps them alive."""

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False) -> Any:
        """Enqueues; the answer's ``seconds()`` is the device's own time, if `timed` and after `finish`."""

    def finish(self) -> None:
        """Waits for everything enqueued."""


class InPlaceRuntime(Runtime, Protocol):
    """One whose kernels work in the caller's own arrays, and may run in the calling thread (`alone`)."""

    def compile(self, text: str, options: Sequence[str] = (), alone: Collection[bool] = (False,)) -> Any:
        """As that of any runtime, for launches that are `alone`, or not, or some of each."""

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False, alone: bool = False) -> Any:
        """As that of any runtime."""

    @property
    def pool(self) -> Pool | None:
        """What makes launches without a queue; None where only queues do."""

    @property
    def takes_addresses(self) -> bool:
        """Whether kernels take addresses of host memory, as `memory` gives them."""

    @property
    def memory(self) -> Callable[[np.ndarray], Any]:
        """What makes an argument of an array's own memory, which it keeps alive, in a fraction of the time of `wrap`:
        ``svm_ptr`` is its address.  ValueError where the array is strided or read-only."""

    def prepared(self, launches: Sequence[tuple[Any, int, int, bool]]) -> Callable[[], None]:
        """Launches (kernel, blocks, threads, alone) in order, and waits; arguments may be set between two calls."""
