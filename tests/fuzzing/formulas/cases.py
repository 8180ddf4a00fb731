"""One seed on all devices: what is told of it, and the script that shows a failure."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tests.fuzzing.formulas.contents import numbers
from tests.fuzzing.formulas.drawing import distinct, draw
from tests.fuzzing.formulas.programs import Program
from tests.fuzzing.formulas.reference import evaluated
from tests.fuzzing.formulas.shrink import shrunk
from tests.fuzzing.formulas.trials import INTERPRETED, OWN, RUN, Failure, failure

GATED, RAN = 25, 5
"""One program of so many goes through the gate, and is run as it is written for another device."""


@dataclass
class Tried:
    """``spent_s``: seconds by device; ``distinct``: of each output; elements of all outputs."""

    distinct: list[float] = field(default_factory=list)
    elements: int = 0
    exact_elements: int = 0
    unknown_elements: int = 0
    spent_s: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    was_lost: bool = False

    @staticmethod
    def lost(seed: int, how: str) -> Tried:
        """Of a seed that ended the process that tried it."""
        found = {"seed": seed, "device": "", "kind": "lost", "text": how, "script": draw(seed)[0].text}
        return Tried([1.0], failures=[found], was_lost=True)


def tried(seed: int, devices: tuple[str, ...] = (), minimise: bool = True) -> Tried:
    """The program of a seed on the devices named, else on all: the CPU (the model's first choice, called as a kernel, or
    another one), five interpreted, now and then others run here, and the gate."""
    start = time.perf_counter()
    program, arrays, wanted = draw(seed)
    found = Tried(list(map(distinct, wanted.values())), spent_s={"drawn": time.perf_counter() - start})
    for want in wanted.values():
        error = np.broadcast_to(want.error, want.value.shape)
        found.elements += error.size
        found.exact_elements += int(np.count_nonzero(error == 0))
        found.unknown_elements += int(np.count_nonzero(~np.isfinite(error)))
    for device in devices or _devices(seed):
        start = time.perf_counter()
        failed = failure(program, arrays, wanted, device, seed)
        found.spent_s[device] = time.perf_counter() - start
        if failed is not None:
            found.failures.append(_told(program, failed, seed, minimise))
    return found


def _devices(seed: int) -> tuple[str, ...]:
    run = (RUN[seed // RAN % len(RUN)],) if seed % RAN == 0 else ()
    return (OWN[seed % 2], *INTERPRETED, *run, *(("gate",) if seed % GATED == 0 else ()))


def _told(program: Program, failed: Failure, seed: int, minimise: bool) -> dict[str, Any]:
    if minimise:
        program = shrunk(program, lambda candidate: _again(candidate, failed, seed))
        failed = _failure(program, failed.device, seed) or failed
    return {"seed": seed, **asdict(failed), "text": failed.text[:2000], "script": script(program, failed.device, seed)}


def _failure(program: Program, device: str, seed: int) -> Failure | None:
    arrays = numbers(program)
    return failure(program, arrays, evaluated(program, arrays), device, seed)


def _again(candidate: Program, failed: Failure, seed: int) -> bool:
    """Whether it fails likewise: wrong results are alike, errors where they begin with the same words."""
    found = _failure(candidate, failed.device, seed)
    return found is not None and found.kind == failed.kind and (found.kind == "wrong" or found.text[:20] == failed.text[:20])


def script(program: Program, device: str, seed: int) -> str:
    """Lines that show the failure."""
    arrays = "\n".join(
        f'arrays["{one.name}"] = contents("{one.content}", {one.shape}, "{one.dtype}")' for one in program.inputs
    )
    return (
        "import rollergen as rg\nfrom tests.fuzzing.formulas.contents import contents\n"
        "from tests.fuzzing.formulas.trials import results\n\n"
        f"{program.text}\noutputs, arrays = [{', '.join(program.outputs)}], {{}}\n{arrays}\n"
        f'print(results(outputs, arrays, "{device}", {seed}))'
    )
