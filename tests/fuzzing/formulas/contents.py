"""Numbers for a program's inputs, by a text that says how they are drawn: "spread:17" is of seed 17."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzzing.formulas.bounds import DIGITS, NUMPY
from tests.fuzzing.formulas.programs import Program


def numbers(program: Program) -> dict[str, Any]:
    """Arrays for the inputs, by name."""
    return {tensor.name: contents(tensor.content, tensor.shape, tensor.dtype) for tensor in program.inputs}


def contents(how: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Floats: whole numbers, eighths, numbers between -2 and 2 ("spread"), few values ("ties"); integers: small ones,
    all that the dtype holds ("full"), the ends of its range, few values."""
    kind, _, seed = how.partition(":")
    rng, held = np.random.default_rng(int(seed)), NUMPY[dtype]
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in DIGITS:
        return np.asarray({
            "whole": lambda: rng.integers(-8, 9, shape), "eighths": lambda: rng.integers(-40, 41, shape) / 8,
            "spread": lambda: rng.uniform(-2, 2, shape), "ties": lambda: rng.choice([-1.5, 0.0, 0.5, 2.5], shape),
        }[kind]()).astype(held)  # fmt: skip
    info = np.iinfo(held)
    ends = np.array([info.min, info.min + 1, -1, 0, 1, info.max - 1, info.max], held)
    return {
        "small": lambda: rng.integers(-9, 10, shape, held), "ties": lambda: rng.integers(0, 3, shape, held),
        "full": lambda: rng.integers(info.min, info.max, shape, held, endpoint=True), "ends": lambda: rng.choice(ends, shape),
    }[kind]()  # fmt: skip
