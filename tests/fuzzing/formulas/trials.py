"""What becomes of a program on a device: built and run on this machine's CPU, or interpreted; held to `reference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.errors import RollergenError
from tests.fuzzing.formulas.bounds import Bounded, differences
from tests.fuzzing.formulas.programs import Program

INTERPRETED = ("v100", "h200", "mi50", "ipu", "cortex-a53")
DRAFT = 3
"""Programs of the model's draft from which one is interpreted."""


@dataclass(frozen=True)
class Failure:
    """``kind``: what to compare failures by; ``text``: the whole story."""

    device: str
    kind: str
    text: str


def failure(program: Program, arrays: Mapping[str, Any], wanted: Mapping[str, Bounded], device: str, seed: int) -> Failure | None:
    """What is wrong on a device: "cpu" runs, "gate" lets the gate check several programs, others are interpreted."""
    try:
        got = _results(program, arrays, device, seed)
    except RollergenError as error:
        return Failure(device, f"refused: {type(error).__name__}", str(error))
    except Exception as error:  # none may be raised: a fault by definition
        return Failure(device, f"raised: {type(error).__name__}", f"{type(error).__name__}: {error}")
    if isinstance(got, Failure):
        return got
    for name, result in zip(program.outputs, got, strict=True):
        wrong = _wrong(name, np.asarray(result), wanted[name], program[name].dtype)
        if wrong:
            return Failure(device, "wrong", wrong)
    return None


def _results(program: Program, arrays: Mapping[str, Any], device: str, seed: int) -> Sequence[Any] | Failure:
    outputs = program.built()
    if device in INTERPRETED:
        count = Random(seed).randint(1, DRAFT)
        kernel = rg.build(outputs, device, top_k=count, profile=False, cache=False)
        return _interpreted(kernel, count, arrays)
    kernel = rg.build(outputs, "cpu", top_k=1 if device == "cpu" else None, profile=device == "gate", cache=False)
    refused = [problem for candidate in kernel.candidates for problem in candidate.problems]
    if refused:
        return Failure(device, "gate", "; ".join(refused))
    return _several(kernel(**arrays))


def _interpreted(kernel: rg.Kernel, count: int, arrays: Mapping[str, Any]) -> Sequence[Any]:
    """By the last of the first `count` candidates."""
    from rollergen.kernel import Kernel

    chosen = kernel.candidates[min(count, len(kernel.candidates)) - 1]
    return _several(Kernel(kernel.device, kernel.candidates, chosen).interpret(**arrays))


def _several(results: Any) -> Sequence[Any]:
    return results if isinstance(results, tuple) else (results,)


def _wrong(name: str, got: Any, want: Bounded, dtype: str) -> str:
    if got.shape != want.value.shape or str(got.dtype) != dtype:
        return f"{name} is {got.dtype}{got.shape}; expected {dtype}{want.value.shape}"
    found = np.argwhere(differences(got, want))
    if not len(found):
        return ""
    at = tuple(map(int, found[0]))
    error = np.broadcast_to(want.error, want.value.shape)[at]
    shown = want.value[at] if want.floating else int(want.value[at])
    return (
        f"{name}{list(at)} is {got[at]!r}; expected {shown} (error at most {float(error):.3g} before its rounding); "
        f"{len(found)} of {got.size} elements differ"
    )
