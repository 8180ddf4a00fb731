"""What becomes of a program on a device, held to `reference`.

"cpu" builds it for this machine's CPU and runs it, "gate" lets the gate check several candidates before; a device's name
interprets one of the model's best programs for it; "run:" before the name runs that one here, as OpenCL C, and "cuda:"
runs its CUDA text, by the fixture of tests/cuda.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.bsp.interpreter import interpret_bulk
from rollergen.construct.options import BuildOptions
from rollergen.dropped import every_drop_raises
from rollergen.emit import emit
from rollergen.errors import RollergenError
from rollergen.expr.language import Tensor
from rollergen.program.interpreter import interpret
from tests.agreement.readers import run_opencl
from tests.cuda.test_programs import executed
from tests.fuzzing.formulas.bounds import Bounded, differences
from tests.fuzzing.formulas.programs import Program
from tests.fuzzing.trial import PLAIN, drawn_options

INTERPRETED = ("v100", "h200", "mi50", "ipu", "cortex-a53")
OWN = ("cpu", "run:cpu")
RUN = ("run:v100", "cuda:h200", "run:mi50", "cuda:v100", "run:ipu", "cuda:a100", "run:k80")
DRAFT = 3
"""Programs of the model's draft from which one is taken."""
AS_WRITTEN = ("-cl-opt-disable",)
"""Text for GPUs is compiled without optimisation: PoCL 3.0's optimiser can lose a store behind barriers whose condition
a read in a loop between them has too (seed 7000255; oclgrind and PoCL without it compute that text rightly)."""


@dataclass(frozen=True)
class Failure:
    """``kind``: what to compare failures by; ``text``: the whole story."""

    device: str
    kind: str
    text: str


def failure(program: Program, arrays: Mapping[str, Any], wanted: Mapping[str, Bounded], device: str, seed: int) -> Failure | None:
    """What is wrong on a device, if anything: an error, of a single candidate even, or a wrong element."""
    try:
        with every_drop_raises():
            stored = {one.name: rg.pack(arrays[one.name]) for one in program.inputs if one.packed}
            got = results(program.built(), {**arrays, **stored}, device, seed)
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


def results(outputs: Sequence[Tensor], arrays: Mapping[str, Any], device: str, seed: int) -> Sequence[Any] | Failure:
    """What the outputs are on a device; ``seed`` draws options, and which of the model's best programs it is."""
    options = drawn_options(seed)
    if device in ("cpu", "gate"):
        count, checked = (1, False) if device == "cpu" else (None, True)
        kernel = rg.build(outputs, "cpu", top_k=count, profile=checked, cache=False, options=options)
        problems = [problem for candidate in kernel.candidates for problem in candidate.problems]
        return Failure(device, "gate", "; ".join(problems)) if problems else _several(kernel(**arrays))
    how, _, name = device.rpartition(":")
    spec, options = rg.load_device(name), BuildOptions() if how != "run" and options is PLAIN else options
    chosen = rg.construct(outputs, spec, Random(seed).randint(1, DRAFT), options=options)[-1]
    if how == "run":
        made = run_opencl(chosen, arrays, spec, () if name == "cpu" else AS_WRITTEN)
    elif how == "cuda":
        made = executed(chosen, emit(chosen, spec, "cuda"), arrays, reverse=seed % 2 == 1)
    else:
        emit(chosen, spec)
        made = (interpret_bulk if chosen.tile_mappings else interpret)(chosen, arrays, spec).outputs
    return [made[buffer.name] for buffer in chosen.outputs]


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
