"""Programs that look at fewer bits of their inputs than the definition has: what they then compute."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Cast, Load, Value
from rollergen.expr.winograd import growth
from rollergen.gate.tolerance import Accuracy, accuracies
from rollergen.program.loops import added_terms
from rollergen.program.rprogram import RProgram, Stage

_AS_MANY_BITS = "float16"
"""Its significand has 11 bits, as tf32's; cutting the others off errs by no more than twice as much as rounding."""


def is_narrowed(program: RProgram) -> bool:
    """Whether some stage cuts its factors (see `Compute.factors`)."""
    return any(stage.compute.factors for stage in program.stages)


def program_accuracies(program: RProgram) -> dict[str, Accuracy]:
    """Accuracy of every buffer that the program makes, added up in its order; any, of outputs without elements."""
    nothing = {buffer.name: Accuracy(0.0, 0.0) for buffer in program.outputs if not buffer.elements}
    terms = tuple(map(added_terms, program.stages))
    growths = tuple(growth(stage.winograd) if stage.winograd else 1.0 for stage in program.stages)
    return nothing | accuracies(computed(program), program.inputs, terms=terms, growths=growths)


def computed(program: RProgram) -> tuple[TensorOp, ...]:
    """The tensor ops of the stages, with the rounding of factors written out where it takes place."""
    return tuple(_computed(stage) for stage in program.stages)


def _computed(stage: Stage) -> TensorOp:
    op = stage.op
    if not stage.compute.factors:
        return op
    reductions = tuple(replace(r, bodies=tuple(map(_rounded, r.bodies))) for r in op.reductions)
    return replace(op, reductions=reductions)


def _rounded(value: Value) -> Value:
    """`value` with every load rounded."""
    if isinstance(value, Load):
        return Cast(Cast(value, _AS_MANY_BITS), value.dtype)
    children = value.children()
    return value.with_children(tuple(_rounded(child) for child in children)) if children else value
