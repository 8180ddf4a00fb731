"""Who decides which programs are emitted: the model alone, or a verifier that reorders a larger draft.

Draft then verify is Pruner's (ASPLOS 2025): a larger draft of the model's, reordered, cut to what is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Union

from rollergen.construct.options import BuildOptions
from rollergen.dropped import standing
from rollergen.errors import ArgumentError
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.verify.objectives import RESIDUALS

if TYPE_CHECKING:
    from rollergen.construct import Ranked
    from rollergen.verify.verifier import Move, Verdict, Verifier

DRAFT = 50
"""Programs that the model drafts for a verifier to choose from."""

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

    def drafts(self, count: int, various: bool = False) -> int:
        """How many programs `programs` constructs, to give `count` of them."""

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        """What it did, for `explain`."""


class Model:
    """The model's order."""

    identity = ""

    def programs(
        self, graph: Graph, device: Device, options: BuildOptions, count: int, various: bool = False
    ) -> tuple[Ranked, ...]:
        from rollergen.construct import construct
        from rollergen.construct.variety import varied

        drafted = construct(graph, device, options, self.drafts(count, various))
        return varied(drafted, count) if various else drafted

    def drafts(self, count: int, various: bool = False) -> int:
        from rollergen.construct.variety import DRAFTED

        return max(count, DRAFTED) if various else count

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Verified:
    """A judge that drafts with the model and orders with a verifier."""

    verifier: Verifier

    @property
    def identity(self) -> str:
        return self.verifier.identity

    def programs(
        self, graph: Graph, device: Device, options: BuildOptions, count: int, various: bool = False
    ) -> tuple[Ranked, ...]:
        """The first in the verifier's order, as it was evaluated; where it abstains, the model's own."""
        drafted, verdict = self._asked(graph, device, options, count, reasons=False)
        if verdict.abstained is not None:
            return Model().programs(graph, device, options, count, various)
        return tuple(drafted[position] for position in verdict.order[:count])

    def drafts(self, count: int, various: bool = False) -> int:
        return max(count, DRAFT)

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        drafted, verdict = self._asked(graph, device, options, count, reasons=True)
        if verdict.abstained is not None:
            return (f"verifier: abstained, the model's order stands: {verdict.abstained}",)
        if not verdict.moved:
            return (f"verifier: of {len(drafted)} drafted programs the first {count} stay as the model ranked them",)
        elsewhere = f"it put {len(verdict.moved)} elsewhere among the first {count}"
        in_time = self.verifier.objective in RESIDUALS
        moves = (_told(move, in_time) for move in verdict.moved)
        return (f"verifier: of {len(drafted)} drafted programs {elsewhere}", *moves)

    def _asked(
        self, graph: Graph, device: Device, options: BuildOptions, count: int, reasons: bool
    ) -> tuple[tuple[Ranked, ...], Verdict]:
        from rollergen.construct import construct
        from rollergen.verify.verifier import Verdict

        drafted = construct(graph, device, options, self.drafts(count))
        rate = lambda some: self.verifier.rerank([one.program for one in some], device, count, reasons)
        rated = standing([drafted], rate, lambda some: f"the verifier's order of {len(some)} programs")
        failed = Verdict(tuple(range(len(drafted))), "it failed, as a drop tells")
        return drafted, next((verdict for _, verdict in rated), failed)


class NoneReleased(Model):
    """The model's order, for want of a verifier."""

    def __init__(self, family: str) -> None:
        self._family = family

    def notes(self, graph: Graph, device: Device, options: BuildOptions, count: int) -> tuple[str, ...]:
        return (f"verifier: none is released for a {self._family}; the model's order stands",)


def judge_of(chosen: VerifierLike, device: Device) -> Judge:
    """What ``verifier=`` of `rg.build` names: None, the model; a file, a `Verifier`, or "auto": the one that is
    released for the device's family, the model where none is.  Raises ArgumentError, VerifierError."""
    if chosen is None:
        return Model()
    from importlib.resources import as_file, files

    from rollergen.verify.verifier import Verifier, load  # a quarter of a second that most builds do without

    if isinstance(chosen, Verifier):
        return Verified(chosen)
    if not isinstance(chosen, (str, Path)):
        raise ArgumentError(f'verifier is {chosen!r}; expected None, "auto", a path, or a Verifier')
    if chosen != "auto":
        return Verified(load(chosen))
    family = device.kind.family
    released = files("rollergen.verify").joinpath(f"released/{family}.json")
    if not released.is_file():
        return NoneReleased(family)
    with as_file(released) as path:
        return Verified(load(path))


def _told(move: Move, in_time: bool) -> str:
    """``in_time``: reasons are shares of the time, else points of a score that has no unit."""
    told = (lambda share: f"{100 * share:+.1f} %") if in_time else (lambda share: f"{share:+.2f} points")
    why = ", ".join(f"{name} ({told(share)})" for name, share in move.reasons)
    return f"verifier: the model's number {move.position + 1} became number {move.now + 1}, for {why}"
