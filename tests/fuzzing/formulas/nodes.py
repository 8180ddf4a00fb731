"""What a drawn formula is made of, and its spelling in rollergen's language.

Indices and tests on indices are texts of Python arithmetic on axis names, which mean the same for rollergen's axes and
for NumPy's integer arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "eq": "==", "ne": "!=", "and": "&", "or": "|", "floor_divide": "//", "remainder": "%", "shl": "<<", "shr": ">>",
         "bitand": "&", "bitor": "|", "xor": "^"}  # fmt: skip
PREFIX = {"neg": "-", "not": "~"}
CALLS = {"max": "rg.maximum", "min": "rg.minimum"}
"""Other operations are called as they are named: rg.exp, rg.select, ..."""
ROUNDED = {"trunc_divide": ("divide", "trunc"), "trunc_remainder": ("remainder", "trunc"), "fmod": ("remainder", "trunc"),
           "floored": ("remainder", "floor")}  # fmt: skip
"""What is called with a named rounding; the last two are of floats."""


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a formula; nodes that occur twice are the same object twice."""

    dtype: str

    def arguments(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Const(Node):
    """A literal.  ``weak``: written as a bare number, which takes the dtype of what it meets."""

    value: float
    weak: bool


@dataclass(frozen=True, eq=False)
class Position(Node):
    """An index as a number (int32)."""

    index: str


@dataclass(frozen=True, eq=False)
class Test(Node):
    """A condition on indices (bool)."""

    text: str


@dataclass(frozen=True, eq=False)
class Load(Node):
    """An element of a tensor."""

    tensor: str
    indices: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Op(Node):
    """An operation, named as rollergen names it; ``cast`` has its target as ``dtype``."""

    name: str
    operands: tuple[Node, ...]

    def arguments(self) -> tuple[Node, ...]:
        return self.operands


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """``fold`` names an entry of `folds.FOLDS`; ``accumulator`` is the dtype that it works in ("": the default)."""

    fold: str
    bodies: tuple[Node, ...]
    axes: tuple[tuple[str, int], ...]
    component: int = 0
    accumulator: str = ""

    def arguments(self) -> tuple[Node, ...]:
        return self.bodies


def walk(node: Node) -> Iterator[Node]:
    """All nodes, operands first; a shared one each time that it occurs."""
    for argument in node.arguments():
        yield from walk(argument)
    yield node


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """``change`` of the node whose arguments are rebuilt; what stays the same is the same object."""
    old = node.arguments()
    new = tuple(rebuilt(argument, change) for argument in old)
    if any(a is not b for a, b in zip(old, new, strict=True)):
        node = replace(node, **{"bodies" if isinstance(node, Reduce) else "operands": new})  # type: ignore[arg-type]
    return change(node)


def text(node: Node, folds: Callable[[Reduce, tuple[str, ...]], str]) -> str:
    """The node in rollergen's language; ``folds`` spells a reduction of the texts of its bodies."""
    match node:
        case Const():
            number = _number(node.value)
            return number if node.weak else f'rg.cast({number}, "{node.dtype}")'
        case Position():
            return f"({node.index})"
        case Test():
            return f"({node.text})"
        case Load():
            return f"{node.tensor}[{', '.join(node.indices) or '()'}]"
        case Reduce():
            return folds(node, tuple(text(body, folds) for body in node.bodies))
        case Op():
            return _operation(node, tuple(text(operand, folds) for operand in node.operands))
    raise TypeError(type(node).__name__)


def _operation(node: Op, operands: tuple[str, ...]) -> str:
    if node.name == "cast":
        return f'rg.cast({operands[0]}, "{node.dtype}")'
    if node.name in INFIX:
        return f"({operands[0]} {INFIX[node.name]} {operands[1]})"
    if node.name in ROUNDED:
        function, rounding = ROUNDED[node.name]
        return f'rg.{function}({operands[0]}, {operands[1]}, "{rounding}")'
    if node.name in PREFIX:
        return f"({PREFIX[node.name]}{operands[0]})"
    return f"{CALLS.get(node.name, f'rg.{node.name}')}({', '.join(operands)})"


def _number(value: float) -> str:
    text = repr(value)
    return f"({text})" if text.startswith("-") else text
