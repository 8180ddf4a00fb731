"""Candidates that use local memory are told by NVIDIA's compiler, and dropped where nothing else could tell.

Registers that a thread cannot have are spilled to its local memory, which is as far away as the backing store.  On a
machine with the GPU the clock finds that out; without one, the compiler does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollergen.dropped import collected_drops, error_text, standing
from rollergen.errors import BuildError, DeviceError, RuntimeUnavailableError
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.measure.compile_report import CompileReport, compile_report, compiled_target
from rollergen.measure.outcome import Outcome, Progress, silent

MEASURED = "compile check: left out, as the device is present and candidates are timed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the compiler said of one candidate: bytes of local memory of a thread, all launches together, of which
    spilled registers are written and read ``spill_bytes``; or why it refused the source."""

    outcome: Outcome
    local_bytes: int = 0
    spill_bytes: int = 0
    where: tuple[str, ...] = ()
    refused: str = ""

    @property
    def text(self) -> str:
        return (
            f"{self.local_bytes} bytes of local memory a thread in {' and '.join(self.where)} "
            f"({self.spill_bytes} bytes of spilled registers written and read)"
        )


def compile_checked(
    candidates: Sequence[Outcome], device: Device, progress: Progress = silent
) -> tuple[Outcome, ...]:
    """The candidates, in the order given; those that use local memory, or that the compiler refuses, have it among
    their problems, and fail.  Where all use local memory, the one that uses least is kept, and its note says so.

    Raises DeviceError for a device that nothing compiles for without it, RuntimeUnavailableError where the compiler is
    not installed, BuildError where it refuses all candidates or has not got the architecture.
    """
    by = _compiler(device)
    verdicts, written = [], [one for one in candidates if not one.problems and one.source.launches]
    for number, candidate in enumerate(written):
        verdicts.append(_verdict(candidate, device))
        progress("compiled", number + 1, len(written))
    compiled = [one for one in verdicts if not one.refused]
    if not written:
        return tuple(candidates)  # of outputs without elements, which nothing is compiled for
    if not compiled:
        raise BuildError(f"{by}: all {len(verdicts)} candidates are refused; the first: {verdicts[0].refused}")
    least = min(compiled, key=lambda one: (one.local_bytes, one.spill_bytes, one.outcome.rank))
    told = {one.outcome.rank: _told(one, least, by) for one in verdicts}
    return tuple(told.get(one.rank, one) for one in candidates)


def check_notes(candidates: Sequence[Outcome]) -> tuple[str, ...]:
    """What the check did, for `explain`: every candidate that it dropped, and why; one that it kept all the same."""
    dropped = [f"number {one.rank + 1} dropped: {'; '.join(one.problems)}" for one in candidates if one.problems]
    kept = [f"number {one.rank + 1} kept: {one.note}" for one in candidates if one.note]
    none = [] if dropped or kept else [f"of {len(candidates)} candidates, none uses local memory"]
    return tuple(f"compile check: {text}" for text in (*dropped, *kept, *none))


def _compiler(device: Device) -> str:
    try:
        target, compiler = compiled_target(device)
        return f"by {compiler.named(target.arch)} for {target.arch}"
    except (DeviceError, RuntimeUnavailableError, BuildError) as error:
        raise type(error)(f"compile_check=True: {error}") from None


def _verdict(candidate: Outcome, device: Device) -> Verdict:
    report = lambda one: compile_report(one.program, device, one.source, instructions=False)
    with collected_drops() as dropped:
        for _, found in standing([candidate], report, lambda one: f"candidate {one.rank + 1}"):
            return _counted(candidate, found)
    error = dropped[0].error
    return Verdict(candidate, refused=str(error) if isinstance(error, BuildError) else error_text(error))


def _counted(candidate: Outcome, report: CompileReport) -> Verdict:
    using = [one for one in report.kernels if one.uses_local_memory]
    local, spilled = sum(one.stack_bytes for one in using), sum(one.spill_bytes for one in using)
    return Verdict(candidate, local, spilled, tuple(one.entry for one in using))


def _told(one: Verdict, least: Verdict, by: str) -> Outcome:
    if one.refused:
        return replace(one.outcome, problems=(*one.outcome.problems, one.refused))
    if not one.local_bytes:
        return one.outcome
    if one is least:
        return replace(one.outcome, note=f"{one.text} {by}; all candidates use it, none less")
    return replace(one.outcome, problems=(*one.outcome.problems, f"{one.text} {by}"))
