"""A seed's program: several tensors that read each other, several outputs; drawn again while it would show little."""

from __future__ import annotations

from itertools import count
from math import prod
from random import Random
from typing import Any

import numpy as np

from rollergen.errors import RollergenError
from tests.fuzzing.formulas.bounds import Bounded
from tests.fuzzing.formulas.chains import rows
from tests.fuzzing.formulas.contents import numbers
from tests.fuzzing.formulas.nodes import Load, Reduce, walk
from tests.fuzzing.formulas.programs import Program, Tensor, computed
from tests.fuzzing.formulas.reductions import Reductions
from tests.fuzzing.formulas.reference import evaluated
from tests.fuzzing.formulas.scalars import DTYPES
from tests.fuzzing.formulas.shrink import shorter

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 31, 32, 33, 37, 61, 64, 67, 128, 131, 257)
LEAST_ELEMENTS, MOST_ELEMENTS = 24, 2000
"""Of a computed tensor; fewer than the least only now and then."""
EMPTIED = 0.1
"""Share of programs with a reduction over nothing."""


def draw(seed: int) -> tuple[Program, dict[str, Any], dict[str, Bounded]]:
    """The program of a seed, arrays for its inputs, and what its outputs are."""
    for attempt in range(200):
        random = Random(f"{seed}:{attempt}")
        program = _drawn(random)
        program = emptied(program, random) if Random(f"{seed}:{attempt}:emptied").random() < EMPTIED else program
        arrays = numbers(program)
        if not arrays:
            continue
        wanted = evaluated(program, arrays)
        if all(map(telling, wanted.values())) and _meant(program):
            return program, arrays, wanted
    raise RuntimeError(f"seed {seed}: 200 programs, and none that tells anything")


def _drawn(random: Random) -> Program:
    tensors: list[Tensor] = []
    names = (f"k{number}" for number in count())
    common = random.choices(DTYPES, [4, 3, 2, 2, 1, 1, 3, 2, 2, 2, 1, 1, 1, 1, 2], k=2)
    if random.random() < 0.15:
        rows(random, tensors, names, random.choice([dtype for dtype in DTYPES if dtype != "bool"]))
    for _ in range(random.choices([0 if tensors else 1, 1, 2, 3, 4], [4, 4, 4, 2, 1])[0]):
        dtype, shape = random.choice(common) if random.random() < 0.8 else random.choice(DTYPES), _shape(random)
        body = Reductions(random, tensors, names).body(dtype, {f"i{n}": extent for n, extent in enumerate(shape)})
        tensors.append(computed(tensors, shape, body))
    made = [tensor for tensor in tensors if tensor.body is not None]
    read = {node.tensor for tensor in made for node in walk(tensor.body) if isinstance(node, Load)}
    outputs = tuple(tensor.name for tensor in made if tensor.name not in read or random.random() < 0.25)
    return Program(tuple(tensors), outputs).used()


def emptied(program: Program, random: Random) -> Program:
    """The program with one of its reductions, where it has some, over nothing."""
    names = sorted({name for node in program.nodes() if isinstance(node, Reduce) for name, _ in node.axes})
    return shorter(program, random.choice(names), 0) if names else program


def _shape(random: Random) -> tuple[int, ...]:
    rank = random.choices([0, 1, 2, 3, 4, 5], [1, 8, 16, 8, 3, 1])[0]
    least = LEAST_ELEMENTS if rank and random.random() < 0.8 else 1
    while True:
        shape = tuple(random.choice(SIZES[: 24 if rank < 3 else 12 if rank < 5 else 7]) for _ in range(rank))
        if least <= prod(shape) <= MOST_ELEMENTS:
            return shape


def _meant(program: Program) -> bool:
    """Whether rollergen's language takes it; what it refuses is tested elsewhere."""
    try:
        program.built()
    except RollergenError:
        return False
    return True


def telling(output: Bounded) -> bool:
    """Whether a wrong kernel would show: nearly all elements are known, and most are different."""
    known = output.value[np.isfinite(np.broadcast_to(output.error, output.value.shape))]
    return known.size >= 0.8 * output.value.size and distinct(output) > 0.5


def distinct(output: Bounded) -> float:
    """Different values as a share of how many there could be (of a condition: whether both occur)."""
    values = np.unique(output.value).size
    if output.dtype == "bool":
        return values / min(output.value.size, 2)
    return min(1.0, values / min(output.value.size, {"int8": 200, "uint8": 200, "bfloat16": 200, "float8_e4m3fn": 50, "float8_e5m2": 50}.get(output.dtype, output.value.size)))
