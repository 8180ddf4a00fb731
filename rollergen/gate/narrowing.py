"""What programs compute of their inputs: some look at fewer bits than the definition has, or keep fewer of sums; some
add up products of floats that stand in words, two of them at once."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Const, Load, Value, transform
from rollergen.expr.winograd import growth
from rollergen.gate.tolerance import Accuracy, accuracies
from rollergen.hal.dtypes import DOTS, DTYPES, WORD_OF
from rollergen.program.loops import added_terms
from rollergen.program.matrix import FLOAT8_FACTORS, FLOAT8_SUM_BITS, TF32
from rollergen.program.rprogram import RProgram, Stage

_AS_MANY_BITS = "float16"
"""Its significand has 11 bits, as tf32's; cutting the others off errs by no more than twice as much as rounding."""

_FLOAT8_TERMS = 32
"""Products that an instruction of float8 adds to a sum, which is cut off once (PTX ISA: k of m16n8k32, m64nNk32)."""
_FLOAT8_GROWTH = 2.0 ** (2 * (1 + DTYPES["float32"].significant - FLOAT8_SUM_BITS))
"""By how much a squared error grows where so few bits are kept; cutting off errs by twice as much as rounding."""


def is_narrowed(program: RProgram) -> bool:
    """Whether some stage cuts its factors or sums (see `Compute.factors`)."""
    return any(stage.compute.factors in (TF32, FLOAT8_FACTORS) for stage in program.stages)


def program_accuracies(program: RProgram) -> dict[str, Accuracy]:
    """Accuracy of every buffer that the program makes, added up in its order; any, of outputs without elements."""
    nothing = {buffer.name: Accuracy(0.0, 0.0) for buffer in program.outputs if not buffer.elements}
    terms, growths = tuple(map(_terms, program.stages)), tuple(map(_growth, program.stages))
    return nothing | accuracies(computed(program), program.inputs, terms=terms, growths=growths)


def _terms(stage: Stage) -> int:
    terms = added_terms(stage)
    return -(-terms // _FLOAT8_TERMS) if stage.compute.factors == FLOAT8_FACTORS else terms


def _growth(stage: Stage) -> float:
    if stage.compute.factors == FLOAT8_FACTORS:
        return _FLOAT8_GROWTH
    return growth(stage.winograd) if stage.winograd else 1.0


def computed(program: RProgram) -> tuple[TensorOp, ...]:
    """The tensor ops of the stages, with the rounding of factors written out where it takes place, and numbers instead
    of words of them."""
    return tuple(_computed(stage) for stage in program.stages)


def _computed(stage: Stage) -> TensorOp:
    op = _without_words(stage.op)
    if stage.compute.factors != TF32:
        return op
    reductions = tuple(replace(r, bodies=tuple(map(_rounded, r.bodies))) for r in op.reductions)
    return replace(op, reductions=reductions)


def _rounded(value: Value) -> Value:
    """`value` with every load rounded."""
    if isinstance(value, Load):
        return Cast(Cast(value, _AS_MANY_BITS), value.dtype)
    children = value.children()
    return value.with_children(tuple(_rounded(child) for child in children)) if children else value


_DOTS_OF_FLOATS = tuple(op for (dtype, _), op in DOTS.items() if DTYPES[dtype].kind == "float")


def _without_words(op: TensorOp) -> TensorOp:
    """The tensor op with one float in place of a word of two, and twice the product of two in place of a dot product:
    as large, and as inexact, as what it stands for."""

    def change(value: Value) -> Value | None:
        match value:
            case Binary(name, a, _) if name in WORD_OF.values():
                return a
            case Binary(name, a, b) if name in _DOTS_OF_FLOATS:
                return Binary("mul", Const(2.0, value.dtype), Binary("mul", a, b, value.dtype), value.dtype)
        return None

    reductions = tuple(replace(r, bodies=tuple(transform(b, change) for b in r.bodies)) for r in op.reductions)
    return replace(op, reductions=reductions, result=transform(op.result, change))
