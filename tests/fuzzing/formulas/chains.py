"""Chains over rows: reductions that read what earlier ones of the same row made, as softmax and norms do."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.fuzzing.formulas.bounds import DIGITS
from tests.fuzzing.formulas.nodes import Const, Load, Node, Op, Reduce
from tests.fuzzing.formulas.programs import DEFAULT, Tensor, computed
from tests.fuzzing.formulas.scalars import Scalars

LENGTHS = (1, 3, 5, 7, 8, 16, 17, 32, 33, 61, 64, 67, 128, 131)


def rows(random: Random, tensors: list[Tensor], names: Iterator[str], dtype: str) -> None:
    """Appends to `tensors` one or two reductions of each row, and mostly a tensor of its elements and these."""
    draw = Scalars(random, tensors)
    lead = tuple(random.choice([1, 2, 3, 5, 8, 13]) for _ in range(random.choice([0, 1, 1, 2])))
    length = random.choice(LENGTHS)
    x = draw.given((*lead, length), dtype, "spread" if dtype in DIGITS else "full")
    outer = [f"i{n}" for n in range(len(lead))]
    known: list[Tensor] = []
    for _ in range(random.choice([1, 2, 2])):
        axis = (next(names), length)
        body = _joined(random, Load(dtype, x.name, (*outer, axis[0])), known, outer)
        fold = random.choice(["max", "sum", "sum", "min"])
        made = Reduce(DEFAULT.get(dtype, dtype), fold, (body,), (axis,))
        tensors.append(computed(tensors, lead, made))
        known.append(tensors[-1])
    if random.random() < 0.8:
        last = random.choice([f"i{len(lead)}", f"({length - 1} - i{len(lead)})"])
        body = _joined(random, Load(dtype, x.name, (*outer, last)), known, outer)
        tensors.append(computed(tensors, (*lead, length), body))


def _joined(random: Random, x: Node, known: list[Tensor], outer: list[str]) -> Node:
    """An element with what is known of its row, now and then behind a function."""
    for tensor in known:
        of_row: Node = Load(tensor.dtype, tensor.name, tuple(outer))
        if tensor.dtype != x.dtype:
            of_row = Op(x.dtype, "cast", (of_row,))
        x = Op(x.dtype, random.choice(["sub", "sub", "add", "mul", "max"]), (x, of_row))
    if x.dtype in DIGITS and random.random() < 0.4:
        return Op(x.dtype, "exp", (Op(x.dtype, "min", (x, Const(x.dtype, 2.0, True))),))
    return Op(x.dtype, "mul", (x, x)) if random.random() < 0.3 else x
