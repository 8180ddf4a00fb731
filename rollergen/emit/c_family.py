"""Kernel IR -> C text: everything that OpenCL C and CUDA C++ share.

A language is a subclass of `CFamily` that overrides spellings, never structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from rollergen.emit.c_expressions import INDENT, SUM, CExpressions
from rollergen.emit.index_code import INT_MAX
from rollergen.errors import DeviceError
from rollergen.hal.spec import Device
from rollergen.lower.box_ir import BOX_STATEMENTS, BoxStatement
from rollergen.lower.expressions import (
    Element,
    Pointer,
    Position,
)
from rollergen.lower.ir import (
    Allocate,
    Assign,
    Barrier,
    EndGroup,
    For,
    Function,
    If,
    Kernel,
    Let,
    Point,
    PrefetchLine,
    Statement,
    Write,
)
from rollergen.lower.matrix_ir import (
    BeginProducts,
    Collective,
    CombinePairs,
    EndProducts,
    ExchangeResults,
    LoadAround,
    LoadMatrix,
    LoadNarrow,
    LoadNeighbours,
    LoadPieces,
    MultiplyLocal,
    MultiplyMatrix,
    OrderPieces,
    ShareWeights,
    StoreAround,
    StoreMatrix,
    WaitFactors,
    WaitProducts,
    WarpBarrier,
    WidenNarrow,
)
from rollergen.program.rprogram import RProgram

_LINES = {
    Let: "constant", Assign: "assignment", Write: "write", Point: "point", Allocate: "allocation",
    PrefetchLine: "prefetch_line",
    LoadMatrix: "collective", MultiplyMatrix: "collective", StoreMatrix: "collective", WarpBarrier: "collective",
    ExchangeResults: "collective", ShareWeights: "collective", LoadNeighbours: "collective", LoadNarrow: "collective",
    WidenNarrow: "collective", CombinePairs: "collective", LoadPieces: "collective", OrderPieces: "collective",
    WaitFactors: "collective", LoadAround: "collective", StoreAround: "collective",
    BeginProducts: "collective", MultiplyLocal: "collective", EndProducts: "collective", WaitProducts: "collective",
}  # fmt: skip
"""Methods of `CFamily` that spell statements of one line."""


class CFamily(CExpressions):
    """Prints kernels; one instance prints one source."""

    _lines: ClassVar[Mapping[type, Callable[[Any, Any], str]]]

    @classmethod
    def find_methods(cls) -> None:
        super().find_methods()
        cls._lines = {kind: getattr(cls, name) for kind, name in _LINES.items()}

    # What a language spells differently

    def head(self, kernel: Kernel) -> str:
        """Everything of a kernel's definition before its body."""
        raise NotImplementedError

    def ids(self, kernel: Kernel) -> list[str]:
        """Statements that define the block's and the thread's number."""
        raise NotImplementedError

    def barrier(self, statement: Barrier) -> list[str]:
        """Lines; asynchronous writes are plain ones unless a language has them."""
        raise NotImplementedError

    def collective(self, statement: Collective) -> str:
        """What the threads of an execution width do together."""
        raise DeviceError(f"{self.language} has no spelling for {type(statement).__name__}; expected a CUDA target")

    def dynamic_bytes(self, kernel: Kernel) -> int:
        """Bytes of a block's arrays whose size the launch gives, as the language has no words for so many."""
        return 0

    def end_group(self) -> list[str]:
        return []

    def boxes(self, statement: BoxStatement) -> list[str]:
        """Lines of what has to do with a copy engine."""
        raise DeviceError(f"{self.language} has no spelling for {type(statement).__name__}; expected a CUDA target")

    def half_write(self, node: Write) -> str:
        raise NotImplementedError

    def streamed(self, address: str, value: str) -> str:
        """A store past the caches."""
        raise NotImplementedError

    # Kernels

    def program(self, program: RProgram, device: Device, kernels: Iterable[Kernel]) -> str:
        """The text of a program, whose kernels these are."""
        return self.source(kernels)

    def source(self, kernels: Iterable[Kernel]) -> str:
        """All kernels, after the types and functions that they use."""
        kernels = tuple(kernels)
        functions = {f.name: f for kernel in kernels for f in kernel.functions}
        bodies = [self.function(f) for f in functions.values()] + [self.kernel(k) for k in kernels]
        parts = ["\n".join(self.types.values())] if self.types else []
        return "\n\n".join(parts + bodies) + "\n"

    def function(self, function: Function) -> str:
        self._ranges = {}
        result = self.type(function.result.dtype, function.result.lanes)
        parameters = ", ".join(f"{self.type(p.dtype, p.lanes)} {p.name}" for p in function.parameters)
        lines = [f"{self.function_prefix}{result} {function.name}({parameters})", "{"]
        self.add_block(lines, function.body, 1)
        lines += [f"{INDENT}return {self.expression(function.result)};", "}"]
        return "\n".join(lines)

    def kernel(self, kernel: Kernel) -> str:
        self._ranges, self._integers = kernel.ranges, {}
        lines = [f"/* {kernel.name}", *[f" * {line}".rstrip() for line in kernel.layout], " */", self.head(kernel), "{"]
        lines += [INDENT + line for line in self.ids(kernel)]
        self.add_block(lines, kernel.body, 1)
        lines.append("}")
        return "\n".join(lines)

    def parameters(self, kernel: Kernel) -> str:
        """The kernel's parameters: its buffers, then sizes."""
        every = [*map(self.parameter, kernel.parameters), *(f"const int {name}" for name in kernel.sizes)]
        return ",\n          ".join(every)

    def parameter(self, pointer: Pointer) -> str:
        constness = "" if pointer.writable else "const "
        return f"{self.scopes[pointer.scope]}{constness}{self.scalars[pointer.dtype]} *{self.restrict} {pointer.name}"

    # Statements

    def block(self, statements: Iterable[Statement], depth: int) -> list[str]:
        lines: list[str] = []
        self.add_block(lines, statements, depth)
        return lines

    def add_block(self, lines: list[str], statements: Iterable[Statement], depth: int) -> None:
        """The statements' lines behind those there are."""
        pad, spelled = INDENT * depth, self._lines
        for statement in statements:
            kind = type(statement)
            spell = spelled.get(kind)
            if spell is not None:
                lines.append(f"{pad}{spell(self, statement)};")
            elif kind is For:
                self.add_loop(lines, statement, depth)  # type: ignore[arg-type]
            elif kind is If:
                self.add_branch(lines, statement, depth)  # type: ignore[arg-type]
            else:
                lines += [pad + one for one in self.plain(statement)]

    def plain(self, statement: Statement) -> list[str]:
        """The lines of what is more than a line, or is no statement of C."""
        match statement:
            case Barrier():
                return self.barrier(statement)
            case EndGroup():
                return self.end_group()
            case one if isinstance(one, BOX_STATEMENTS):
                return self.boxes(one)
        raise TypeError(f"{type(statement).__name__} is no statement")

    def constant(self, node: Let) -> str:
        name, value = node.name, node.value
        if type(value) is Position:
            self._integers[name] = value.index
        else:
            self._integers.pop(name, None)
        return f"const {self.type(value.dtype, value.lanes)} {name} = {self.stored(value)}"

    def assignment(self, node: Assign) -> str:
        target = node.target
        place = self.element(target)[0] if isinstance(target, Element) else target.name
        return f"{place} = {self.stored(node.value)}"

    def add_loop(self, lines: list[str], node: For, depth: int) -> None:
        pad, variable, start, stop = INDENT * depth, node.variable, node.start, node.stop
        self._integers.pop(variable, None)
        if type(stop) is not int:
            stop = self.within(stop, SUM)  # type: ignore[arg-type, assignment]
        if type(start) is not int:
            start = self.expression(start)  # type: ignore[arg-type, assignment]
        if node.unroll:
            lines.append(pad + self.unrolled(node))
        lines.append(f"{pad}for ({self.integer(variable)} {variable} = {start}; {variable} < {stop}; ++{variable}) {{")
        self.add_block(lines, node.body, depth + 1)
        lines.append(pad + "}")

    def integer(self, variable: str) -> str:
        """Type of a loop's variable, or of a block's number: one step beyond its range fits it."""
        return "int" if self._ranges.get(variable, (0, 0))[1] < INT_MAX else self.long[0]

    def unrolled(self, node: For) -> str:
        return "#pragma unroll"

    def add_branch(self, lines: list[str], node: If, depth: int) -> None:
        pad = INDENT * depth
        lines.append(f"{pad}if ({self.expression(node.condition)}) {{")
        self.add_block(lines, node.body, depth + 1)
        if node.otherwise:
            lines.append(pad + "} else {")
            self.add_block(lines, node.otherwise, depth + 1)
        lines.append(pad + "}")

    def allocation(self, node: Allocate) -> str:
        extents = "".join(f"[{extent}]" for extent in node.shape)
        scope = self.scopes[node.scope] if node.scope != "register" else ""
        aligned = f" __attribute__((aligned({node.alignment})))" if node.alignment else ""
        kind = self.type(node.dtype, node.lanes, memory=node.scope != "register")
        return f"{scope}{kind} {node.name}{extents}{aligned}"

    def point(self, node: Point) -> str:
        constness = "" if node.pointer.writable else "const "
        kind = f"{self.scopes[node.pointer.scope]}{constness}{self.scalars[node.pointer.dtype]} *"
        return f"{kind}{node.pointer.name} = {node.base.name} + {self.index(node.offset)}"

    def added(self, node: Write, value: str) -> str:
        """A scalar added atomically."""
        raise NotImplementedError

    def write(self, node: Write) -> str:
        if node.pointer.dtype == "float16":
            return self.half_write(node)
        value = self.stored(node.value)
        if node.adds:
            return self.added(node, value)
        if node.streaming:
            return self.streamed(self.address(node.pointer, node.offset, node.value.lanes, True), value)
        return f"{self.cell(node.pointer, node.offset, node.value.lanes, node.aligned)} = {value}"

    def prefetch_line(self, node: PrefetchLine) -> str:
        """The call that prefetches a line."""
        raise NotImplementedError
