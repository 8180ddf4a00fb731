"""Numbers for a program's inputs, by a text that says how they are drawn: "spread:17" is of seed 17."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzzing.formulas.bounds import DIGITS, NUMPY
from tests.fuzzing.formulas.programs import Program


def numbers(program: Program) -> dict[str, Any]:
    """Arrays for the inputs, by name."""
    drawn = {tensor.name: contents(tensor.content, tensor.shape, tensor.dtype) for tensor in program.inputs}
    narrow = {one.name: getattr(ml_dtypes, one.stored) for one in program.inputs if one.packed}
    return drawn | {name: drawn[name].astype(four).astype(drawn[name].dtype) for name, four in narrow.items()}


def contents(how: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Floats: whole numbers, eighths, numbers between -2 and 2 ("spread"), few values ("ties"), halfway between two
    numbers of a narrower float and beside it ("halves"); integers: small ones, all that the dtype holds ("full"), the
    ends of its range, few values, and halves."""
    kind, _, seed = how.partition(":")
    rng, held = np.random.default_rng(int(seed)), NUMPY[dtype]
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in DIGITS:
        return np.asarray({
            "whole": lambda: rng.integers(-8, 9, shape), "eighths": lambda: rng.integers(-40, 41, shape) / 8,
            "spread": lambda: rng.uniform(-2, 2, shape), "ties": lambda: rng.choice([-1.5, 0.0, 0.5, 2.5], shape),
            "halves": lambda: halves(rng, shape, DIGITS[dtype]),
        }[kind]()).astype(held)  # fmt: skip
    info = np.iinfo(held)
    ends = np.array([info.min, info.min + 1, -1 if info.min else 2, 0, 1, info.max - 1, info.max], held)
    low = -9 if info.min else 0
    return np.asarray({
        "small": lambda: rng.integers(low, low + 19, shape, held), "ties": lambda: rng.integers(0, 3, shape, held),
        "full": lambda: rng.integers(info.min, info.max, shape, held, endpoint=True), "ends": lambda: rng.choice(ends, shape),
        "halves": lambda: np.trunc(_signed(halves(rng, shape, info.bits), info) * 2.0 ** (info.bits - 2)).astype(held),
    }[kind]())  # fmt: skip


def _signed(values: Any, info: Any) -> Any:
    return values if info.min else np.abs(values)


def halves(rng: Any, shape: tuple[int, ...], digits: int) -> Any:
    """Numbers of so many digits, from 1 to 2 but for their sign, at ties of float16, bfloat16 or float32 and next to
    them; float64."""
    kept = rng.choice([one for one in (8, 11, 24) if one < digits] or [digits - 1], shape)
    tie = 1 + (2 * np.floor(rng.random(shape) * 2.0 ** (kept - 1)) + 1) * 2.0**-kept
    return rng.choice([-1, 1], shape) * (tie + rng.integers(-1, 2, shape) * 2.0 ** -(min(digits, 53) - 1))
