"""A drawn program: input tensors, tensors computed from them, and which of these are outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rollergen as rg
from tests.fuzzing.formulas.folds import FOLDS
from tests.fuzzing.formulas.nodes import Load, Node, Reduce, text, walk

DEFAULT = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "uint32"}
"""Dtype of a reduction of a body, where it is another."""


@dataclass(frozen=True)
class Tensor:
    """``body`` None: an input, whose numbers are drawn as ``content`` says (see `contents`); ``packed``: of four bits,
    two to a byte, while formulas have them in ``dtype``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    body: Node | None = None
    content: str = ""
    constant: bool = False
    packed: bool = False

    @property
    def stored(self) -> str:
        """The dtype of an input as the language is told it."""
        return self.dtype.replace("8", "4") if self.packed else self.dtype

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(f"i{n}" for n in range(len(self.shape)))

    @property
    def line(self) -> str:
        if self.body is None:
            constant = ", constant=True" if self.constant else ""
            return f'{self.name} = rg.tensor("{self.name}", {self.shape}, "{self.stored}"{constant})'
        body = text(self.body, spelled)
        return f'{self.name} = rg.compute({self.shape}, lambda {", ".join(self.axes)}: {body}, name="{self.name}")'


@dataclass(frozen=True)
class Program:
    """Tensors in an order in which each comes after those that it reads."""

    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]

    def __getitem__(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.body is None)

    @property
    def text(self) -> str:
        """Lines of Python that define every tensor."""
        axes = dict(axis for node in self.nodes() if isinstance(node, Reduce) for axis in node.axes)
        head = [f'{name} = rg.reduce_axis("{name}", {extent})' for name, extent in sorted(axes.items())]
        return "\n".join([*head, *(tensor.line for tensor in self.tensors)])

    def nodes(self) -> Iterator[Node]:
        for tensor in self.tensors:
            if tensor.body is not None:
                yield from walk(tensor.body)

    def built(self) -> tuple[Any, ...]:
        """The outputs as rollergen's tensors; whatever the language raises."""
        names: dict[str, Any] = {"rg": rg}
        exec(self.text, names)
        return tuple(names[name] for name in self.outputs)

    def used(self) -> Program:
        """Without the tensors that no output needs."""
        kept, needed = [], set(self.outputs)
        for tensor in reversed(self.tensors):
            if tensor.name in needed:
                kept.append(tensor)
                nodes = walk(tensor.body) if tensor.body is not None else ()
                needed |= {node.tensor for node in nodes if isinstance(node, Load)}
        return Program(tuple(reversed(kept)), self.outputs)


def computed(tensors: Sequence[Tensor], shape: tuple[int, ...], body: Node) -> Tensor:
    """The next computed tensor after `tensors`."""
    return Tensor(f"t{sum(one.body is not None for one in tensors)}", shape, body.dtype, body)


def spelled(node: Reduce, bodies: tuple[str, ...]) -> str:
    """A reduction in rollergen's language."""
    names = [name for name, _ in node.axes]
    axis = names[0] if len(names) == 1 else f"({', '.join(names)})"
    fold, wide = FOLDS[node.fold], node.bodies[0].dtype
    if not fold.combine:
        given = f', acc="{node.accumulator}"' if node.accumulator else ""
        given += f', dtype="{node.dtype}"' if node.dtype != DEFAULT.get(wide, wide) else ""
        return f"rg.{node.fold}({bodies[0]}, axis={axis}{given})"
    body = bodies[0] if len(bodies) == 1 else f"({', '.join(bodies)})"
    picked = "" if len(bodies) == 1 else f"[{node.component}]"
    return f"rg.reduce({fold.combine}, {fold.identity(wide)}, {body}, axis={axis}){picked}"
