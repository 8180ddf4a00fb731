"""What a kernel keeps for each thread that calls it."""

from __future__ import annotations

import threading
from dataclasses import field

from rollergen.hal.dataclass import dataclass
from rollergen.runtime.code import Code, Constants
from rollergen.runtime.prepared import Call, not_made
from rollergen.runtime.session import PreparedLaunches, Session


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
