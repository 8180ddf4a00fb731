"""Who decides which programs are emitted: the model alone, or a verifier that reorders a larger draft."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Union

from rollergen.construct import construct
from rollergen.construct.choose import Ranked
from rollergen.construct.variety import DRAFTED, varied
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions

if TYPE_CHECKING:
    from rollergen.verify.verifier import Verifier

VerifierLike = Union[str, Path, "Verifier", None]


class Judge(Protocol):
    """``identity`` is a hash of all that its choice depends on beside the arguments; empty for the model's own."""

    @property
    def identity(self) -> str: ...

    def programs(
        self, graph: Graph, device: Device, options: BuildOptions, count: int, various: bool = False
    ) -> tuple[Ranked, ...]:
        """Up to `count` programs, best first; `various`: where the model's order stands, of a larger draft, also the
        best of other variants."""

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        """What it did, for `explain`."""


class Model:
    """The model's order."""

    identity = ""

    def programs(
        self, graph: Graph, device: Device, options: BuildOptions, count: int, various: bool = False
    ) -> tuple[Ranked, ...]:
        if not various:
            return construct(graph, device, options, count)
        return varied(construct(graph, device, options, max(count, DRAFTED)), count)

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        return ()


def judge_of(verifier: VerifierLike, device: Device) -> Judge:
    """None: the model.  A path, "auto" or a `Verifier`: as `verify.draft.judge_of` says; nothing of the verifier is
    imported otherwise."""
    if verifier is None:
        return Model()
    from rollergen.verify.draft import judge_of as verified

    return verified(verifier, device)
