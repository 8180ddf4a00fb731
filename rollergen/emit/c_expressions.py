"""Expressions of the kernel IR -> C text: everything that OpenCL C and CUDA C++ share of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from rollergen.emit.index_code import LONG, index_code
from rollergen.expr.dtypes import is_integer
from rollergen.expr.index import Bounds, Index
from rollergen.hal.dtypes import DTYPES
from rollergen.lower.expressions import (
    STORAGE_BYTES,
    Aligned,
    Broadcast,
    Build,
    Call,
    Convert,
    Element,
    Exchange,
    Expr,
    Inside,
    Misalignment,
    Name,
    Number,
    Operation,
    Pick,
    Pointer,
    Position,
    Read,
    Shuffle,
    register_dtype,
)
from rollergen.lower.features import PLAIN

INDENT = "    "
ATOM, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUAL, BITS, LOGIC_AND, LOGIC_OR, TERNARY = range(11)
"""Precedence levels, tightest first."""
BINARY = {
    "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "mod": ("%", PRODUCT), "add": ("+", SUM), "sub": ("-", SUM),
    "shl": ("<<", SHIFT), "shr": (">>", SHIFT), "lt": ("<", ORDER), "le": ("<=", ORDER), "gt": (">", ORDER),
    "ge": (">=", ORDER), "eq": ("==", EQUAL), "ne": ("!=", EQUAL), "bitand": ("&", BITS), "bitor": ("|", BITS),
    "xor": ("^", BITS), "and": ("&&", LOGIC_AND), "or": ("||", LOGIC_OR),
}  # fmt: skip



def scalar_types(signed: Mapping[int, str], unsigned: Mapping[int, str]) -> dict[str, str]:
    """A language's types of elements in memory, by name of the dtype: from its words for integers of so many bits.

    Floats that exist in memory only are the bits that they are made of, conditions and masks signed integers.
    """
    names = {f"mask{bits}": word for bits, word in signed.items()}
    for row in (row for row in DTYPES.values() if not row.packed):
        if row.kind == "float" and not row.narrow:
            names[row.name] = {32: "float", 64: "double"}[row.bits]
        else:
            words = signed if row.signed and not row.narrow else unsigned
            names[row.name] = words[row.bits]
    return names


_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long"}
SCALARS = scalar_types(_INTEGERS, {bits: f"u{word}" for bits, word in _INTEGERS.items()})
"""OpenCL C's."""

_GROWING = ("add", "sub", "mul", "neg", "shl")
"""Operations whose result may lie outside the range of the operands' dtype."""

_LEFT = {SHIFT: UNARY, BITS: UNARY, ORDER: SUM, EQUAL: SUM}
"""Loosest operand that is written without parentheses, where that is less than the language allows."""


class CExpressions:
    """Prints expressions; `c_family.CFamily` prints the statements around them.

    Statements are printed in their order, so ``_integers`` tells of the integers in scope by which index a name was
    defined.
    """

    _levelled: ClassVar[dict[type, Callable[[Any, Any], tuple[str, int]]]]

    @classmethod
    def find_methods(cls) -> None:
        """The methods that spell each kind of node are looked for once, when the class is made."""
        cls._levelled = {kind: getattr(cls, name) for kind, name in _LEVELLED.items()}
        cls._levelled |= {kind: _at_level(getattr(cls, name), level) for kind, (name, level) in _EXPRESSIONS.items()}

    def __init_subclass__(cls) -> None:
        cls.find_methods()

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._ranges: Mapping[str, Bounds] = {}
        self._integers: dict[str, int | Index] = {}

    # What a language spells differently

    language = ""
    function_prefix = ""
    restrict = "restrict"
    scopes: ClassVar[Mapping[str, str]] = {}
    features = PLAIN
    """What may be written beside the plain language."""
    scalars: ClassVar[Mapping[str, str]] = SCALARS
    long = LONG
    """The type of 64-bit integers, and what their literals end in."""

    def literal(self, value: float | int | bool, dtype: str) -> str:
        return number(value, dtype, self.long[1])

    def vector_type(self, dtype: str, lanes: int) -> str:
        raise NotImplementedError

    def memory_type(self, dtype: str, lanes: int, aligned: bool) -> str:
        """Type through which `lanes` elements are read or written at once."""
        raise NotImplementedError

    def spread(self, text: str, dtype: str, lanes: int) -> str:
        """A scalar in every lane."""
        raise NotImplementedError

    def built(self, texts: list[str], dtype: str) -> str:
        raise NotImplementedError

    def picked(self, node: Pick) -> str:
        raise NotImplementedError

    def shuffled(self, node: Shuffle) -> str:
        raise NotImplementedError

    def exchanged(self, node: Exchange) -> str:
        raise NotImplementedError

    def converted(self, node: Convert) -> str:
        raise NotImplementedError

    def half_read(self, node: Read) -> str:
        raise NotImplementedError

    # Expressions

    def type(self, dtype: str, lanes: int = 1, memory: bool = False) -> str:
        """Type of a value in registers (float16 and bfloat16 are float there), or in memory."""
        dtype = dtype if memory else register_dtype(dtype)
        if lanes == 1:
            return "int" if dtype == "bool" and not memory else self.scalars[dtype]
        return self.vector_type(dtype, lanes)

    def index(self, index: Index) -> str:
        return index_code(index, self._ranges, False, self.long)

    def address(self, pointer: Pointer, offset: Index, lanes: int, aligned: bool) -> str:
        """A typed pointer to `lanes` elements."""
        at = pointer.name if not offset.terms and not offset.const else f"{pointer.name} + {self.index(offset)}"
        if lanes == 1:
            return at
        constness = "" if pointer.writable else "const "
        kind = f"{self.scopes[pointer.scope]}{constness}{self.memory_type(pointer.dtype, lanes, aligned)} *"
        return f"({kind})({at})" if " " in at else f"({kind}){at}"

    def cell(self, pointer: Pointer, offset: Index, lanes: int, aligned: bool) -> str:
        """An lvalue of `lanes` elements in memory."""
        if lanes == 1:
            return f"{pointer.name}[{self.index(offset)}]"
        return f"*{self.address(pointer, offset, lanes, aligned)}"

    def expression(self, node: Expr) -> str:
        return self.level(node)[0]

    def stored(self, node: Expr) -> str:
        """`node`'s text where what takes it has its dtype, and so cuts it off to that."""
        kind = type(node)
        if kind is Operation and _outgrows(node):
            return self.operation(node)[0]  # type: ignore[arg-type]
        return node.name if kind is Name else self._levelled[kind](self, node)[0]  # type: ignore[union-attr]

    def within(self, node: Expr, limit: int) -> str:
        """`node`'s text, in parentheses where it binds less tightly than `limit`."""
        text, level = self.level(node)
        return text if level <= limit else f"({text})"

    def level(self, node: Expr) -> tuple[str, int]:
        """Text and precedence."""
        kind = type(node)
        if kind is Name:
            return node.name, ATOM  # type: ignore[union-attr]
        spell = self._levelled.get(kind)
        if spell is None:
            raise TypeError(f"{kind.__name__} is no expression")
        return spell(self, node)

    def element(self, node: Element) -> tuple[str, int]:
        text = node.name
        for index in node.indices:
            text = f"{text}[{self.index(index)}]"
        return text, ATOM

    def constant_number(self, node: Number) -> tuple[str, int]:
        text = self.literal(node.value, node.dtype)
        if node.lanes > 1:
            return self.spread(text, node.dtype, node.lanes), UNARY
        return text, UNARY if text.startswith("-") else ATOM

    def computed(self, node: Operation) -> tuple[str, int]:
        written = self.operation(node)
        return self.cut_off(node, written) if _outgrows(node) else written

    def broadcast(self, node: Broadcast) -> str:
        return self.spread(self.expression(node.operand), node.dtype, node.lanes)

    def position(self, node: Position) -> tuple[str, int]:
        """The index in the dtype that it has as a value, whatever its text is computed in."""
        wide = node.dtype == "int64"
        text = index_code(node.index, self._ranges, wide, self.long)
        if not wide and f"({self.long[0]})" in text:
            return f"(int)({text})", UNARY
        return text, ATOM if text.isalnum() else (UNARY if text.lstrip("-").isalnum() else SUM)

    def vector(self, node: Build) -> str:
        return self.built([self.expression(o) for o in node.operands], node.dtype)

    def aligned(self, node: Aligned) -> str:
        return f"((size_t)({self.address(node.pointer, node.offset, 1, False)}) & {node.bytes - 1}) == 0"

    def misalignment(self, node: Misalignment) -> str:
        return f"(int)(((size_t)({node.pointer.name}) & {node.bytes - 1})/{STORAGE_BYTES[node.pointer.dtype]})"

    def read(self, node: Read) -> tuple[str, int]:
        if node.pointer.dtype == "float16":
            return self.half_read(node), ATOM
        text = self.cell(node.pointer, node.offset, node.lanes, node.aligned)
        return text, ATOM if node.lanes == 1 else UNARY

    def call(self, node: Call) -> str:
        return f"{node.name}({', '.join(self.expression(o) for o in node.operands)})"

    def inside(self, node: Inside) -> tuple[str, int]:
        at = self.index(node.index)
        if node.low is not None and node.high is not None:
            if node.high == node.low + 1:
                return f"{at} == {node.low}", EQUAL
            return f"{at} >= {node.low} && {at} < {node.high}", LOGIC_AND
        return (f"{at} >= {node.low}" if node.high is None else f"{at} < {node.high}"), ORDER

    def cut_off(self, node: Operation, written: tuple[str, int]) -> tuple[str, int]:
        """``written`` within the range of the dtype: C computes with chars and shorts as ints, which do not wrap."""
        text, level = written
        return f"({self.scalars[node.dtype]})" + (text if level == ATOM else f"({text})"), UNARY

    def operation(self, node: Operation) -> tuple[str, int]:
        if node.op == "select":
            condition, yes, no = node.operands
            # Compilers warn of a bit operation before "?".
            loosest = EQUAL if condition.lanes > 1 else LOGIC_OR
            parts = self.within(condition, loosest), self.within(yes, LOGIC_OR), self.within(no, LOGIC_OR)
            return f"{parts[0]} ? {parts[1]} : {parts[2]}", TERNARY
        if node.op == "every":
            (tests,) = node.operands
            lanes: list[Expr] = [Pick(tests, number) for number in range(tests.lanes)]
            met = reduce(lambda a, b: Operation("bitand", (a, b), tests.dtype), lanes)
            return self.operation(Operation("ne", (met, Number(0, tests.dtype)), "bool"))
        if node.op in ("neg", "not"):
            sign = "-" if node.op == "neg" else ("!" if node.lanes == 1 else "~")
            return sign + self.within(node.operands[0], ATOM), UNARY
        spelling, level = BINARY[node.op]
        if node.op in ("and", "or") and node.lanes > 1:
            spelling, level = spelling[0], BITS
        a, b = node.operands
        unsigned = node.op == "mul" and _outgrows(node)  # of two ushorts it passes what an int holds
        left = self.within(a, ATOM if unsigned else _LEFT.get(level, level))
        right = self.within(b, _LEFT.get(level, level if level >= LOGIC_AND else level - 1))
        if unsigned:
            left = f"({self.scalars['uint32']}){left}"
        return f"{left}*{right}" if spelling == "*" else f"{left} {spelling} {right}", level


_LEVELLED = {
    Element: "element", Number: "constant_number", Operation: "computed", Read: "read", Position: "position",
    Inside: "inside",
}  # fmt: skip
"""Those that give an expression's text and precedence."""
_EXPRESSIONS = {
    Broadcast: ("broadcast", UNARY), Call: ("call", ATOM), Build: ("vector", UNARY), Pick: ("picked", ATOM),
    Shuffle: ("shuffled", ATOM), Exchange: ("exchanged", ATOM), Convert: ("converted", UNARY),
    Aligned: ("aligned", EQUAL), Misalignment: ("misalignment", UNARY),
}  # fmt: skip
"""Those that give its text, and the precedence."""


def _at_level(spell: Callable[[Any, Any], str], level: int) -> Callable[[Any, Any], tuple[str, int]]:
    return lambda printer, node: (spell(printer, node), level)


def _outgrows(node: Expr) -> bool:
    """Whether C computes it in a wider dtype than its own."""
    narrow = node.dtype in DTYPES and is_integer(node.dtype) and DTYPES[node.dtype].bits < 32
    return narrow and isinstance(node, Operation) and node.lanes == 1 and node.op in _GROWING


def number(value: float | int | bool, dtype: str, long: str = "L") -> str:
    """A literal of `dtype`: shortest text that reads back as the same number; ``long``: what 64-bit integers end in.

    >>> number(0.1, "float32"), number(float("-inf"), "float32"), number(-2**31, "int32"), number(2**63, "uint64")
    ('0.1f', '-INFINITY', '(-2147483647 - 1)', '9223372036854775808UL')
    """
    if "float" in dtype:
        return _real(float(value), dtype)
    whole, wide, unsigned = int(value), dtype.endswith("64"), dtype.startswith("uint")
    suffix = ("U" if wide else "u") * unsigned + long * wide
    least = -(2**63) if wide else -(2**31)
    return f"({least + 1}{suffix} - 1)" if whole == least else f"{whole}{suffix}"


_WHOLE = 2.0**24
"""Up to here every integer is a number of single precision."""


def _real(value: float, dtype: str) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if dtype == "float64":
        return repr(value)
    if value.is_integer() and abs(value) <= _WHOLE:
        return f"{value!r}f"
    single = np.float32(value)
    if np.isinf(single):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(single.item()) if single.item() == value and len(repr(value)) < 12 else str(single)
    return (text if any(c in text for c in ".e") else text + ".0") + "f"
