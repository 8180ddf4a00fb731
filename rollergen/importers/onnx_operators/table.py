"""The table of ONNX operators, and what a converter sees of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from rollergen.expr.language import Tensor
from rollergen.hal.dataclass import dataclass
from rollergen.importers.refusals import Refused

Value = Any
"""Of an operand: a NumPy array where it is known, a Tensor, or None where it is left out."""
Converter = Callable[["Node"], Any]


TABLE: dict[str, Converter] = {}
"""How each operator is expressed."""


def operator(*names: str) -> Callable[[Converter], Converter]:
    """Enters a converter into `TABLE` under the given operators."""

    def enter(convert: Converter) -> Converter:
        TABLE.update(dict.fromkeys(names, convert))
        return convert

    return enter


def operators(**converters: Converter) -> None:
    """Enters converters into `TABLE`."""
    TABLE.update(converters)


@dataclass(frozen=True)
class Node:
    """One node: its operator, attributes, operands (None where left out) and the version of its operator set.

    ``given(name, array)``: a known value as a constant tensor; the name is empty where the converter computed it.
    """

    proto: onnx.NodeProto
    inputs: tuple[Value, ...]
    version: int
    given: Callable[[str, np.ndarray], Tensor]

    @property
    def outputs(self) -> int:
        return len(self.proto.output)

    def wants(self, position: int) -> bool:
        """Whether output `position` is used."""
        return position < self.outputs and self.proto.output[position] != ""

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value; strings are text."""
        for one in self.proto.attribute:
            if one.name == name:
                value = onnx.helper.get_attribute_value(one)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Value:
        return self.inputs[position] if self.has(position) else None

    def tensor(self, position: int) -> Tensor:
        """An operand as a tensor: a known one becomes a constant argument of the kernel."""
        value = self.inputs[position]
        return value if isinstance(value, Tensor) else self.given(self.proto.input[position], value)

    def optional(self, position: int) -> Any:
        """As `tensor`, or None."""
        return self.tensor(position) if self.has(position) else None

    def operand(self, position: int) -> Tensor | float | int | bool:
        """An operand of an elementwise operator: a known scalar is a number of the kernel's text."""
        value = self.inputs[position]
        return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else self.tensor(position)

    def operands(self) -> list[Any]:
        return [self.operand(n) for n in range(len(self.inputs))]

    def known(self, position: int, attribute: str = "") -> Any:
        """A known operand as an array, or the attribute of older versions; None where there is none."""
        value = self.value(position)
        if value is None:
            found = self.get(attribute) if attribute else None
            return None if found is None else np.asarray(found)
        if isinstance(value, Tensor):
            raise Refused("data-dependent parameter", f"operand {position} of {self.proto.op_type}")
        return value

    def integers(self, position: int, attribute: str = "") -> Any:
        """`known` as a tuple of integers, or None."""
        found = self.known(position, attribute)
        return None if found is None else tuple(int(v) for v in np.atleast_1d(found))

    def constant(self, array: Any) -> Tensor:
        """`array`, computed by the converter, as a constant tensor."""
        return self.given("", np.asarray(array))
