"""What a kernel keeps for each thread that calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import Any

from rollergen.hal.dataclass import dataclass
from rollergen.runtime.code import Code, Constants
from rollergen.runtime.packed import Packed
from rollergen.runtime.session import PreparedLaunches, Session

Call = Callable[[tuple[Any, ...], Any, Packed, int], Any]
"""``call(arrays, out, packed, version)``: the result (a tuple of several) of a call with these inputs, which it has
made; None where it has not.  ``packed``: the constants that the thread's temporaries hold; ``version``: how often
`Kernel.repack` was called."""


def not_made(arrays: tuple[Any, ...], out: Any, packed: Packed, version: int) -> None:
    """The prepared call of a runtime that copies arrays: none is made."""


@dataclass(slots=True)
class Mine:
    """What a kernel keeps for one thread: ``call`` is prepared for arrays as the last call had that was not;
    ``constants``: of which the session's temporaries were made; ``session``, ``launches`` and ``calls`` by
    the arrays' class: of arrays in host memory, if there were some."""

    call: Call = not_made
    session: Session | None = None
    launches: PreparedLaunches | None = None
    calls: dict[type, Call] = field(default_factory=dict)
    constants: Constants = field(default_factory=Constants)


class Local(threading.local):
    """``mine``: of the thread that asks; ``code``: whose constants all threads share."""

    def __init__(self, code: Code | None) -> None:
        self.mine = Mine() if code is None else Mine(constants=code.constants)
