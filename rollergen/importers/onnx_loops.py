"""ONNX's Loop as its specification has it, in ONNX's reference evaluator.

The evaluator's own takes a condition that is left out for a false one, and joins what the steps give along their first
axis, where the specification stacks it along a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference.ops.op_loop import Loop as Evaluated

from rollergen.errors import ArgumentError


class Loop(Evaluated):  # type: ignore[misc]
    """Its name is by which the evaluator finds it.  ArgumentError for a loop that nothing ends."""

    body: Any
    _run_body: Any

    def __init__(self, node: onnx.NodeProto, run_params: Any) -> None:
        super().__init__(node, run_params)
        if not any(node.input[:2]):
            raise ArgumentError(
                f"{node.name or 'Loop'} is a Loop without a trip count and without a condition, which never ends: the "
                "condition that its body gives counts where one is given first; expected input M or cond"
            )

    def _run(
        self, trips: Any, keep: Any, *carried: Any, context: Mapping[str, Any] | None = None, body: Any = None,
        attributes: Any = None, bindings: Any = None,
    ) -> Any:  # fmt: skip
        """The values carried through all steps, then what each step gave, stacked."""
        names, values = self.body.input_names, list(carried)
        steps: list[list[Any]] = []
        going = keep is None or bool(keep)
        while going and (trips is None or len(steps) < trips):
            number = np.array(len(steps), np.int64)
            given = dict(zip(names, (number, np.array(going), *values), strict=True))
            ended, *made = self._run_body({**(context or {}), **given}, attributes=attributes, bindings=bindings)
            going = keep is None or bool(ended)
            values = made[: len(values)]
            steps.append(made[len(values) :])
        return self._check_and_fix_outputs((*values, *self._stacked(steps, len(values))))

    def _stacked(self, steps: list[list[Any]], carried: int) -> list[np.ndarray]:
        if steps:
            return [np.stack(one) for one in zip(*steps, strict=True)]
        return [_nothing(one) for one in self.body.output_types[1 + carried :]]


def _nothing(kind: onnx.TypeProto) -> np.ndarray:
    """No steps of a result; extents that nobody tells are 0."""
    extents = [one.dim_value for one in kind.tensor_type.shape.dim]
    return np.zeros((0, *extents), onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
