"""What the self-test of a saved kernel compares with: the float64 definition at points of every edge class.

The points and the tolerance are those of the gate that every built kernel has passed
(`gate.points`, `gate.tolerance`); the inputs are made by `inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np

from rollergen.bundle.inputs import made_array
from rollergen.errors import BundleError
from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.places import updated
from rollergen.expr.takes import ids_as_kernels_read_them
from rollergen.expr.values import Buffer
from rollergen.gate.blocks import blocks_of, places_of, puts_of
from rollergen.gate.comparison import Oracle, Points
from rollergen.gate.differences import allowed_error
from rollergen.gate.narrowing import computed, program_accuracies
from rollergen.gate.points import sample_points
from rollergen.gate.program_oracle import program_oracle
from rollergen.gate.tolerance import exact_magnitude
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram

MOST_POINTS = 100_000
_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True, slots=True)
class Reference:
    """One output in one test: at row-major ``offsets`` the values ``want`` (float64) with the error ``allowed``.

    Where that is 0 the result must be ``want`` exactly, which then is rounded to the output's dtype.
    """

    output: str
    offsets: tuple[int, ...]
    want: tuple[float, ...]
    allowed: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Inputs by ``seed`` and ``magnitude`` (see `inputs`), and what must come out."""

    title: str
    seed: int
    magnitude: int | None
    references: tuple[Reference, ...]


References = Callable[[RProgram], tuple[SelfTest, ...]]


def self_tests(program: RProgram, oracle: Oracle | None = None) -> tuple[SelfTest, ...]:
    """Two tests: random inputs; whole numbers with exact results, or random ones again where none are exact.

    ``oracle``: what is right; None: the program's own tensor ops.  Raises ArgumentError where these do
    not say it (see `program_oracle`), BundleError for a kernel whose arguments a self-test cannot make.
    """
    if any(put.ids for put in puts_of(program)):
        raise BundleError(
            "the kernel puts elements at ids that are all different, as no self-test can make them; expected a position"
        )
    oracle = oracle or program_oracle(program)
    blocks = blocks_of(program)
    magnitude = exact_magnitude(computed(blocks), program.inputs)
    second = "other random inputs" if magnitude is None else "whole-number inputs"
    points = sample_points(blocks, 1)
    return (
        _self_test("random inputs", 0, None, program, oracle, points),
        _self_test(second, 1, magnitude, program, oracle, points),
    )


def _self_test(
    title: str, seed: int, magnitude: int | None, program: RProgram, oracle: Oracle, points: Mapping[str, Points]
) -> SelfTest:
    made = (*program.inputs, *updated(program.outputs))
    arrays = {b.name: made_array(b, seed, position, magnitude) for position, b in enumerate(made)}
    blocks = blocks_of(program)
    known = program_accuracies(blocks)
    references = []
    for buffer in blocks.outputs:
        where = _distinct(points[buffer.name], buffer)
        with ids_as_kernels_read_them():  # of a small table most inputs that `made_array` makes are no ids
            want = np.atleast_1d(np.asarray(oracle(arrays, buffer.name, where), dtype=np.float64))
        accuracy = known[buffer.name]
        variance = 0.0 if magnitude is not None else accuracy.variance
        allowed = allowed_error(want, variance, buffer.dtype, accuracy.absolute)
        if not variance and is_float(buffer.dtype):
            want = want.astype(numpy_dtype(buffer.dtype)).astype(np.float64)
        offsets = np.ravel_multi_index(where, buffer.shape) if buffer.shape else np.zeros(1, np.int64)
        columns = (tuple(column.tolist()) for column in (offsets, want, allowed))
        references.append(_in_place(Reference(buffer.name, *columns), program, arrays))
    return SelfTest(title, seed, magnitude, tuple(references))


def _in_place(of_block: Reference, program: RProgram, arrays: Mapping[str, np.ndarray]) -> Reference:
    """The reference of a block at its places in the array that is updated, and of elements beside it, which stay."""
    if of_block.output not in {one.name for one in updated(program.outputs)}:
        return of_block
    places = places_of(next(stage.op for stage in program.stages if stage.op.output.name == of_block.output), arrays)
    before = arrays[of_block.output].reshape(-1)
    others = np.setdiff1d(np.linspace(0, before.size - 1, min(before.size, _OTHERS)).astype(np.int64), places)
    columns = zip(of_block.offsets, of_block.want, of_block.allowed, strict=True)
    at = {int(places[offset]): [want, allowed] for offset, want, allowed in columns}
    at |= {int(offset): [float(before[offset]), 0.0] for offset in others}
    offsets = sorted(at)
    return Reference(of_block.output, tuple(offsets), *(tuple(at[one][n] for one in offsets) for n in (0, 1)))


_OTHERS = 1024
"""Elements at most that are looked at of what is not written."""


def _distinct(points: Points, buffer: Buffer) -> Points:
    """Each element once, in the order of memory."""
    if not buffer.shape:
        return ()
    return np.unravel_index(np.unique(np.ravel_multi_index(points, buffer.shape)), buffer.shape)


def to_json(tests: tuple[SelfTest, ...]) -> dict[str, Any]:
    """Plain lists and numbers; what JSON has no number for is "nan", "inf" or "-inf"."""
    return {
        "tests": [
            {
                "title": test.title,
                "seed": test.seed,
                "magnitude": test.magnitude,
                "outputs": {
                    one.output: {
                        "offsets": list(one.offsets),
                        "want": [value if isfinite(value) else repr(value) for value in one.want],
                        "allowed": list(one.allowed),
                    }
                    for one in test.references
                },
            }
            for test in tests
        ]
    }


def from_json(data: Any, outputs: tuple[Buffer, ...], where: str) -> tuple[SelfTest, ...]:
    """The tests that `to_json` gave for a program with these ``outputs``; BundleError, which names the place."""
    tests = _at(data, "tests", where, list)
    if not 1 <= len(tests) <= 16:
        raise BundleError(f"{where}: tests is a list of {len(tests)}; expected 1 to 16")
    return tuple(_test(one, outputs, f"{where}: tests[{number}]") for number, one in enumerate(tests))


def _test(data: Any, outputs: tuple[Buffer, ...], where: str) -> SelfTest:
    title, seed = _at(data, "title", where, str), _at(data, "seed", where, int)
    magnitude = _at(data, "magnitude", where, int, type(None))
    if not 0 <= seed < 256 or not (magnitude is None or 1 <= magnitude <= 64) or len(title) > 100:
        raise BundleError(f"{where} has seed {seed} and magnitude {magnitude}; expected 0 to 255, and null or 1 to 64")
    by_name = _at(data, "outputs", where, dict)
    if set(by_name) != {b.name for b in outputs}:
        names = ", ".join(b.name for b in outputs)
        raise BundleError(f"{where}.outputs has {len(by_name)} keys; expected exactly {names}")
    return SelfTest(title, seed, magnitude, tuple(_reference(b, by_name[b.name], f"{where}.{b.name}") for b in outputs))


def _reference(buffer: Buffer, data: Any, where: str) -> Reference:
    offsets, want, allowed = (_at(data, key, where, list) for key in ("offsets", "want", "allowed"))
    if not len(offsets) == len(want) == len(allowed) <= MOST_POINTS:
        text = f"{len(offsets)} offsets, {len(want)} wants, {len(allowed)} allowed errors"
        raise BundleError(f"{where} has {text}; expected equally many, at most {MOST_POINTS}")
    if not all(type(at) is int and 0 <= at < buffer.elements for at in offsets):
        raise BundleError(f"{where}.offsets: expected integers from 0 to {buffer.elements - 1}")
    wanted = [_WORDS.get(value, value) if isinstance(value, str) else value for value in want]
    for key, values in (("want", wanted), ("allowed", allowed)):
        if not all(type(value) in (int, float) for value in values):
            raise BundleError(f"{where}.{key}: expected numbers")
    return Reference(buffer.name, tuple(offsets), tuple(map(float, wanted)), tuple(map(float, allowed)))


def _at(data: Any, key: str, where: str, *kinds: type) -> Any:
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise BundleError(f"{where}: {key} is {type(value).__name__}; expected {expected}")
    return value
