"""Operators of a suite, cut small, executed from their CUDA text on the CPU and held to the definition."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from rollergen.bench.suites import Entry
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.emit import Source, emit
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.matrix import matrix_instruction
from rollergen.program.rprogram import RProgram
from tests.agreement.cutting import cuts
from tests.agreement.suite_cases import assert_values, whole_numbers
from tests.cuda.cut_axes import LACKS, remainders, tiles, why_not
from tests.cuda.host import HEADER, HostError
from tests.cuda.test_programs import executed

POINTS, BYTES = 1 << 23, 1 << 22
"""What the fixture executes in seconds: loop iterations, and bytes of all tensors."""

CONTRACTIONS = ("matmul", "conv2d")
"""Kinds of the suite that matrix instructions compute."""

MATRIX = "float16"
"""The dtype of the programs with matrix instructions."""

MOST_DRAFTED = 50


@dataclass(frozen=True)
class Chosen:
    """A program of an operator cut small; ``rank``: its place in the model's order, from 0."""

    expression: Tensor
    program: RProgram
    rank: int


def execute(
    entry: Entry, device_name: str, points: int = POINTS, most_bytes: int = BYTES, *, dtype: str = "",
    known: str = "", reverse: bool = False, first_too: bool = True,
) -> dict[str, Any]:
    """What became of the operator's programs: ``state`` begins with "right", "wrong", "does not fit", or is "known".

    ``dtype`` other than the entry's: of all tensors; then the programs have matrix instructions.  ``known``: the
    `digest` of what was executed before and is not executed again.  ``reverse``: threads and blocks from the last to
    the first.  ``first_too``: also the model's first program where `choose` finds another one.
    """
    choice.cache_clear()
    device = load_device(device_name)
    try:
        chosen = choose(entry, device, points, most_bytes, dtype)
        chosen = chosen if first_too else chosen[-1:]
    except DoesNotFitError as error:
        return {"state": f"does not fit: {error}"}
    if not chosen:
        return {"state": f"wrong: none of {MOST_DRAFTED} programs has a matrix instruction"}
    sources = [emit(one.program, device, "cuda") for one in chosen]
    digest = _digest(sources, chosen, reverse)
    if digest == known:
        return {"state": "known"}
    start, compared = time.perf_counter(), 0
    row = {"programs": [_described(one) for one in chosen], "axes": axes(entry, chosen, device), "digest": digest}
    state = "right"
    for one, source in zip(chosen, sources, strict=True):
        arrays = whole_numbers(one.program)
        try:
            got = executed(one.program, source, arrays, reverse)
            compared += assert_values(one.expression, one.program, got, arrays)
        except (AssertionError, HostError) as error:
            state = f"wrong: rank {one.rank}: {error}"
            break
    return row | {"compared": compared, "state": state, "s": round(time.perf_counter() - start, 2)}


def _described(one: Chosen) -> dict[str, Any]:
    program = one.program
    return {
        "rank": one.rank,
        "inputs": [list(b.shape) for b in program.inputs],
        "blocks": [stage.blocks for stage in program.stages],
        "tiles": tiles(program),
        "axes_with_remainders": remainders(program),
    }


def choose(entry: Entry, device: Device, points: int, most_bytes: int, dtype: str = "") -> tuple[Chosen, ...]:
    """The model's first program for the operator cut evenly, and that with which fewest axes lack several tiles or a
    remainder without a reason, of all ways to cut it and the ten best programs of each, unless it is the same one.
    Empty: no program has matrix instructions."""
    best, first, fewest = None, None, (1 << 30, 0)
    for fields in cuts(entry, points, most_bytes):
        expression = entry.build({**fields, "dtype": dtype} if dtype else fields)
        for rank, program in enumerate(_programs(expression, device, matrix=dtype == MATRIX)):
            one = Chosen(expression, program, rank)
            first = first or one
            lacks = sum(reason in LACKS for reason in why_not(entry, program).values())
            if (lacks, rank) < fewest:
                best, fewest = one, (lacks, rank)
        if fewest == (0, 0):
            break
    return tuple(dict.fromkeys(one for one in (first, best) if one))


def _programs(expression: Tensor, device: Device, matrix: bool) -> list[RProgram]:
    """The ten best; with ``matrix``, those of the ten best that have matrix instructions, or the first of more."""
    graph = canonicalize(expression)
    for count in (10, MOST_DRAFTED) if matrix else (10,):
        programs = [one.program for one in construct(graph, device, top_k=count)]
        found = [p for p in programs if not matrix or any(matrix_instruction(stage, device) for stage in p.stages)]
        if found:
            return found
    return []


def _digest(sources: list[Source], chosen: tuple[Chosen, ...], reverse: bool) -> str:
    """Of all that a run depends on: texts, launches, sizes, and the header that executes them."""
    facts = [(s.text, s.launches, [b.shape for b in one.program.inputs]) for s, one in zip(sources, chosen, strict=True)]
    return hashlib.sha256(repr((facts, reverse, HEADER.read_text())).encode()).hexdigest()[:16]


def axes(entry: Entry, chosen: tuple[Chosen, ...], device: Device) -> dict[str, str]:
    """What each axis of the operator lacks in all of the programs: "" where one of them has several tiles along it and
    a tile that lies partly outside; else the reason."""
    found: dict[str, str] = {}
    for one in chosen:
        reasons = why_not(entry, one.program)
        for name in tiles(one.program):
            axis = name.split(".")[1]
            found[axis] = min((found.get(axis, reasons.get(name, "")), reasons.get(name, "")), key=_severity)
    if any(reason in LACKS for reason in found.values()):
        whole = construct(canonicalize(entry.make()), device, top_k=1)[0].program
        one_tile = {name.split(".")[1] for name, count in tiles(whole).items() if count == 1}
        return {
            axis: f"{reason}: at full size too" if reason in LACKS and axis in one_tile else reason
            for axis, reason in found.items()
        }
    return found


def _severity(reason: str) -> int:
    return 2 if reason in LACKS else 1 if reason else 0
