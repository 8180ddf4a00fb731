"""The candidates of a build as JSON and back; of the chosen one, program and source stand in files of their own."""

from __future__ import annotations

from typing import Any

from rollergen.bundle.manifest import launches, launches_of
from rollergen.emit import Source
from rollergen.errors import BundleError, ProgramError
from rollergen.measure.outcome import Outcome
from rollergen.program import serial
from rollergen.program.rprogram import RProgram

_SECONDS = ("predicted_s", "compile_s", "wall_s", "event_s", "check_s")
_LATER = {"check_s": None, "ended": "", "doubt": "", "note": "", "noisy": "", "sent_bytes": 0, "fetched_bytes": 0}
"""Keys that bundles written by earlier versions do not have, and what their absence means."""
_COUNTS = ("rank", "rounds", "compared", "sent_bytes", "fetched_bytes")
MOST = 1000


def to_json(candidates: tuple[Outcome, ...], chosen: Outcome) -> dict[str, Any]:
    """``{"chosen": its number, "candidates": [...]}``."""
    number = next(number for number, one in enumerate(candidates) if one is chosen)
    return {"chosen": number, "candidates": [_one(one, one is chosen) for one in candidates]}


def _one(outcome: Outcome, chosen: bool) -> dict[str, Any]:
    return {
        **{key: getattr(outcome, key) for key in (*_COUNTS, *_SECONDS)},
        "ended": outcome.ended,
        "doubt": outcome.doubt,
        "note": outcome.note,
        "noisy": outcome.noisy,
        "times_s": list(outcome.times_s),
        "problems": list(outcome.problems),
        "program": None if chosen else serial.to_json(outcome.program),
        "source": None if chosen else outcome.source.text,
        "launches": None if chosen else launches(outcome.source),
    }


def from_json(data: Any, program: RProgram, source: Source, where: str) -> tuple[tuple[Outcome, ...], Outcome]:
    """The candidates and the chosen one, whose ``program`` and ``source`` are given; BundleError names the place."""
    if not isinstance(data, dict) or data.keys() != {"chosen", "candidates"}:
        raise BundleError(f'{where}: expected an object with "chosen" and "candidates"')
    number, several = data["chosen"], data["candidates"]
    if not isinstance(several, list) or not 1 <= len(several) <= MOST:
        raise BundleError(f"{where}: candidates: expected a list of 1 to {MOST}")
    if type(number) is not int or not 0 <= number < len(several):
        raise BundleError(f"{where}: chosen is no number of a candidate; expected 0 to {len(several) - 1}")
    outcomes = tuple(
        _outcome(one, (program, source) if at == number else None, source.language, f"{where}: candidates[{at}]")
        for at, one in enumerate(several)
    )
    return outcomes, outcomes[number]


def _outcome(data: Any, known: tuple[RProgram, Source] | None, language: str, where: str) -> Outcome:
    keys = {*_COUNTS, *_SECONDS, *_LATER, "times_s", "problems", "program", "source", "launches"}
    if not isinstance(data, dict) or (data := {**_LATER, **data}).keys() != keys:
        raise BundleError(f"{where}: expected an object with {', '.join(sorted(keys))}")
    if data["ended"] not in ("", "time", "crash"):
        raise BundleError(f'{where}.ended: expected "", "time" or "crash"')
    for key in _COUNTS:
        if type(data[key]) is not int or not 0 <= data[key] < 1 << 62:
            raise BundleError(f"{where}.{key}: expected an integer of at least 0")
    for key in _SECONDS:
        absent = data[key] is None and key != "predicted_s"
        if not (absent or _is_seconds(data[key])):
            raise BundleError(f"{where}.{key}: expected seconds of at least 0")
    times, problems = data["times_s"], data["problems"]
    if not isinstance(times, list) or not all(map(_is_seconds, times)):
        raise BundleError(f"{where}.times_s: expected a list of seconds of at least 0")
    if not isinstance(problems, list) or not all(isinstance(text, str) for text in problems):
        raise BundleError(f"{where}.problems: expected a list of texts")
    for key in ("doubt", "note", "noisy"):
        if not isinstance(data[key], str):
            raise BundleError(f"{where}.{key}: expected a text")
    program, source = known or _written(data, language, where)
    figures = {key: data[key] for key in (*_COUNTS, *_SECONDS)}
    return Outcome(
        program=program, source=source, problems=tuple(problems), times_s=tuple(times), ended=data["ended"],
        doubt=data["doubt"], note=data["note"], noisy=data["noisy"], **figures,
    )  # fmt: skip


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


def _written(data: Any, language: str, where: str) -> tuple[RProgram, Source]:
    try:
        program = serial.from_json(data["program"])
    except ProgramError as error:
        raise BundleError(f"{where}.program: {error}") from None
    if not isinstance(data["source"], str):
        raise BundleError(f"{where}.source: expected a text")
    try:
        listed = launches_of(data["launches"])
    except (TypeError, KeyError, AttributeError):
        raise BundleError(f"{where}.launches: expected launches as those of the manifest") from None
    return program, Source(data["source"], listed, language)
