"""What an expression is called with: its outputs, and its inputs in order."""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.errors import ExpressionError, shown
from rollergen.expr.language import Tensor
from rollergen.expr.reads import given_tensors


def checked_outputs(outputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`outputs` as a tuple; ExpressionError for what is not computed, or given twice."""
    wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    if not wanted:
        raise ExpressionError("no outputs; expected a computed tensor or a sequence of them")
    for position, tensor in enumerate(wanted):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(
                f"output {position} is {shown(tensor)}; expected one computed by rg.compute or rg.ops"
            )
        if tensor.producer is None:
            raise ExpressionError(f"output {position} is the given tensor {tensor.label}: there is nothing to compute")
        if any(tensor is other for other in wanted[:position]):
            raise ExpressionError(f"{tensor.label} is given twice as an output")
    return wanted


def ordered_inputs(outputs: tuple[Tensor, ...], inputs: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """The given tensors in the order of `inputs`, or (None) in which they first appear."""
    found = given_tensors(outputs)
    if inputs is None:
        return found
    if not isinstance(inputs, (list, tuple)):
        raise ExpressionError(
            f"inputs= is {shown(inputs)}; expected a list of the tensors {', '.join(t.label for t in found)}"
        )
    order = tuple(inputs)
    for tensor in order:
        if not any(tensor is one for one in found):
            names = ", ".join(t.label for t in found)
            if not isinstance(tensor, Tensor):
                raise ExpressionError(
                    f"inputs= holds {shown(tensor)}; expected the tensors themselves: {names}, each once"
                )
            name = tensor.label
            if name in names.split(", "):
                raise ExpressionError(f"inputs= holds another tensor named {name}; expected the one that is read")
            raise ExpressionError(f"inputs= names {name}, which the expression does not read; it reads {names}")
    missing = [t.label for t in found if not any(t is one for one in order)]
    if missing or len(order) != len(found):
        what = f"lacks {', '.join(missing)}" if missing else "names a tensor twice"
        raise ExpressionError(f"inputs= {what}; expected each of {', '.join(t.label for t in found)} once")
    return order
