"""Sessions: the launches of a compiled program, on every runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rollergen.emit import Launch
from rollergen.gate.memory import Array
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np

if TYPE_CHECKING:
    from rollergen.hal.runtimes.pocl_calls import Made, Wanted
    from rollergen.hal.runtimes.pocl_work_groups import WorkGroups


class Reading(NamedTuple):
    """One timing of a call, in seconds: ``wall_s``, by which candidates are ranked, and the device's own ``event_s``,
    None where its events tell nothing or there are none (launches without a queue).

    On a CPU ``wall_s`` is by the host's clock.  On a GPU both are the device's time of one call among many in a row,
    all of which were enqueued before the first began (`hal/runtimes/held_stream.py`): neither launching from Python
    nor waiting for the device is in it.  ``host_bound``: why the host's pace is in them all the same, "" if it is not.
    """

    wall_s: float
    event_s: float | None
    host_bound: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians in seconds of one call: ``wall_s`` by the host's clock, ``event_s`` the device's own time, None where its
    events tell nothing.

    ``cache``: in what state the calls found the caches.
    """

    wall_s: float
    event_s: float | None
    rounds: int
    cache: str


@dataclass(frozen=True, slots=True)
class PreparedLaunches:
    """``run()`` makes the launches of a call, in order, and waits for the last where arrays are in host memory.

    ``setters``: for each input and output (set_argument, position) wherever a launch takes it; ``memory(array)``: what
    is set there for an array in host memory, which it keeps alive.  It raises ValueError for arrays that are strided or
    read-only.  ``by_address``: setters have (addresses, position) instead, where its address (``svm_ptr``) is stored.
    ``call_with``: what makes a function of plain NumPy arrays that looks at them, sets them and makes the launches
    (`hal/runtimes/pocl_calls.py`), given what each must be; None where Python does this.
    ``packed``: names among which are the constants that a call finds packed (`emit.packed_names`).  ``groups``: the
    launches where they are calls of machine code, which a job may hold beside those of other kernels (`Pool.job`).
    """

    run: Callable[[], None]
    setters: Mapping[str, Sequence[tuple[Any, int]]]
    memory: Callable[[np.ndarray], Any] | None = None
    by_address: bool = False
    call_with: Callable[[Sequence[Wanted]], Made | None] | None = None
    packed: Collection[str] = ()
    groups: Sequence[WorkGroups] = ()


class Session(Protocol):
    """The launches of one compiled program, with their arguments.  For one thread at a time."""

    def set(self, arrays: Mapping[str, Array]) -> None:
        """Buffers by name, C-contiguous, kept alive until set again or released; those of the executor's memory are
        used in place."""

    def release(self, names: Iterable[str]) -> None:
        """Lets go of the arrays; set them again before the next run."""

    def once(self) -> None:
        """Runs the launches that depend on constant tensors only, and waits."""

    def run(self) -> None:
        """Runs the launches of a call, in order, and waits for the last."""

    def event_seconds(self) -> float | None:
        """Runs the launches of a call; the device's own time for them, None where its events tell nothing."""

    def reading(self, sweep: Callable[[], None] | None) -> Reading:
        """A timing of a call; ``sweep``: called before each run, for cold caches."""

    def repeat(self, calls: int, sweep: Callable[[], None] | None) -> float:
        """Mean seconds of one call of so many in a row, by the clock of `reading`."""

    def prepare(self) -> PreparedLaunches | None:
        """The launches of a call that has run, on kernels of their own, whatever is set here later; None where arrays
        are not used in place."""


class Idle:
    """The session of a program without launches, as no output has elements: compiled by nobody, it does nothing."""

    def session(self) -> Idle:
        return self

    def launching(self, launches: Sequence[Launch]) -> Idle:
        return self

    def set(self, arrays: Mapping[str, Array]) -> None: ...

    def point(self, places: Mapping[str, Any]) -> None: ...

    def release(self, names: Iterable[str]) -> None: ...

    def once(self) -> None: ...

    def run(self) -> None: ...

    def event_seconds(self) -> float:
        return 0.0

    def reading(self, sweep: Callable[[], None] | None) -> Reading:
        return Reading(0.0, 0.0)

    def repeat(self, calls: int, sweep: Callable[[], None] | None) -> float:
        return 0.0

    def prepare(self) -> None: ...

    def setters(self) -> dict[str, list[tuple[Any, int]]]:
        return {}

    def launches_on(self, stream: int) -> Callable[[], None]:
        return self.run

    def enqueue(self, queue: Any, once: bool = False) -> list[Any]:
        return []
