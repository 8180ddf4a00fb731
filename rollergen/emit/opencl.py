"""OpenCL C 1.2: only the spellings that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rollergen.emit import wavefronts
from rollergen.emit.c_expressions import ATOM, SCALARS
from rollergen.emit.c_family import CFamily
from rollergen.emit.division import WIDTH, functions, reciprocal
from rollergen.emit.opencl_functions import (
    ADDED_FLOAT,
    EVERY,
    HALVES_READ,
    HALVES_WRITTEN,
    MASKED_HALVES_LOADED,
    MASKED_HALVES_STORED,
    MASKED_LOAD,
    MASKED_STORE,
    OF_LANES,
)
from rollergen.emit.unrolling import steps_at_once
from rollergen.expr.dtypes import is_integer
from rollergen.hal.dot_products import filled, opencl_function
from rollergen.hal.dtypes import DOTS
from rollergen.hal.exchanges import EXTENSIONS, KEY
from rollergen.hal.masked_stores import Vectors
from rollergen.hal.spec import Device
from rollergen.lower.expressions import (
    BITS,
    STORAGE_BYTES,
    Broadcast,
    Call,
    Convert,
    Element,
    Exchange,
    Expr,
    Inside,
    Name,
    Number,
    Operation,
    Pick,
    Position,
    Read,
    Shuffle,
    register_dtype,
)
from rollergen.lower.features import Features
from rollergen.lower.ir import Barrier, For, Kernel, PrefetchLine, Write
from rollergen.lower.matrix_ir import Collective, LoadMatrix, MultiplyMatrix
from rollergen.program.matrix import WAVEFRONT
from rollergen.tile.rules import WIDEST_VECTOR

_HEX = "0123456789abcdef"
NONE: tuple[Vectors, Vectors] = (frozenset(), frozenset())
"""No vectors of which chosen lanes are stored, or loaded."""


class OpenCL(CFamily):
    """Vectors of any number of lanes; builtin functions of the language are calls.

    ``attribute``: text put on every kernel (the device's dialect).  ``exchange_extension``: the extension by which
    the threads of one execution width, which then is a sub-group, exchange registers (the dialect again).
    ``steps``: of an unrolled loop, where it may be unrolled in part, that the compiler is to see at once, 0: all (the
    dialect's ``unrolled_steps``): one that starts all loads of what it sees keeps them all in registers, and spills.
    ``masked``: as `Kind.masked_stores` and `Kind.masked_loads`; ``float64``: as `Kind.float64`.
    """

    language = "opencl"
    function_prefix = "__attribute__((always_inline)) static inline "
    scopes: ClassVar[Mapping[str, str]] = {"global": "global ", "local": "local ", "private": ""}

    def __init__(
        self, attribute: str = "", exchange_extension: str = "", steps: int = 0, masked: tuple[Vectors, Vectors] = NONE,
        float64: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attribute = attribute
        self.exchange_extension = exchange_extension
        self.steps = steps
        scaled = WIDEST_VECTOR if ("float32", WIDEST_VECTOR) in masked[0] else 0  # both are AVX-512's
        self.features = Features(
            bool(exchange_extension), {}, *masked, scaled_lanes=scaled, float64=float64, lanes_apart=False
        )

    def head(self, kernel: Kernel) -> str:
        attributes = f"__attribute__((reqd_work_group_size({kernel.threads}, 1, 1)))"
        if self.attribute:
            attributes = f"{self.attribute} {attributes}"
        return f"kernel {attributes}\nvoid {kernel.name}({self.parameters(kernel)})"

    def ids(self, kernel: Kernel) -> list[str]:
        lines = [f"const {self.integer(kernel.block_id)} {kernel.block_id} = get_group_id(0);"]
        if kernel.threads > 1:
            lines.append(f"const int {kernel.thread_id} = get_local_id(0);")
        return lines

    def unrolled(self, node: For) -> str:
        steps = steps_at_once(node, self.steps, self.steps) if self.steps else None
        return "#pragma unroll" if steps is None else f"#pragma unroll {steps}"

    def barrier(self, statement: Barrier) -> list[str]:
        return ["barrier(CLK_LOCAL_MEM_FENCE);"]

    def collective(self, statement: Collective) -> str:
        if not isinstance(statement, (LoadMatrix, MultiplyMatrix)) or statement.shape.layout != WAVEFRONT:
            return super().collective(statement)
        name, self.types[name] = wavefronts.helper(statement, self.function_prefix)
        if isinstance(statement, MultiplyMatrix):
            operands = statement.accumulator, statement.a, statement.b
            return f"{name}({', '.join(self.expression(one) for one in operands)})"
        at = self.address(statement.pointer, statement.offset, 1, False)
        return f"{self.expression(statement.fragment)} = {name}({at}, {statement.pitch})"

    def vector_type(self, dtype: str, lanes: int) -> str:
        """The language has vectors of 16 at most; the compiler takes longer ones in parts."""
        name = f"{SCALARS[dtype]}{lanes}"
        if lanes > WIDEST_VECTOR:
            self.types[name] = f"typedef {SCALARS[dtype]} {name} __attribute__((ext_vector_type({lanes})));"
        return name

    def memory_type(self, dtype: str, lanes: int, aligned: bool) -> str:
        """A vector type whose alignment is that of its elements, unless the address is aligned."""
        scalar = SCALARS[dtype]
        if aligned:
            return self.vector_type(dtype, lanes)
        name = f"{scalar}{lanes}u"
        form = f"ext_vector_type({lanes}), aligned({STORAGE_BYTES[dtype]})"
        self.types[name] = f"typedef {scalar} {name} __attribute__(({form}));"
        return name

    def spread(self, text: str, dtype: str, lanes: int) -> str:
        return f"({self.vector_type(register_dtype(dtype), lanes)})({text})"

    def built(self, texts: list[str], dtype: str) -> str:
        return f"({self.vector_type(dtype, len(texts))})({', '.join(texts)})"

    def picked(self, node: Pick) -> str:
        text = self.within(node.operand, ATOM)
        return f"{text}.{node.which}" if isinstance(node.which, str) else f"{text}.s{_HEX[node.which]}"

    def shuffled(self, node: Shuffle) -> str:
        operands = self.expression(node.first), self.expression(node.second)
        return f"__builtin_shufflevector({', '.join(operands)}, {', '.join(map(str, node.order))})"

    def exchanged(self, node: Exchange) -> str:
        pragma = f"#pragma OPENCL EXTENSION {self.exchange_extension} : enable"
        self.types.setdefault(self.exchange_extension, pragma)
        call = EXTENSIONS[self.exchange_extension].calls[node.how]
        return call.format(x=self.expression(node.operand), by=self.index(node.by))

    def converted(self, node: Convert) -> str:
        operand = node.operand
        if node.bits and node.lanes > WIDEST_VECTOR:
            return f"__builtin_astype({self.expression(operand)}, {self.type(node.dtype, node.lanes)})"
        if node.bits and not (node.lanes == 1 and is_integer(node.dtype) and is_integer(operand.dtype)):
            return f"as_{self.type(node.dtype, node.lanes)}({self.expression(operand)})"
        if node.lanes == 1:
            return f"({self.type(node.dtype)}){self.within(operand, 0)}"
        return f"__builtin_convertvector({self.expression(operand)}, {self.type(node.dtype, node.lanes)})"

    def half_read(self, node: Read) -> str:
        if node.lanes == 1:
            return f"vload_half(0, {self._half(node, constness='const ')})"
        return f"{self._halves(node.pointer.scope, node.lanes, 'load')}({self._place(node)})"

    def half_write(self, node: Write) -> str:
        value, lanes = self.expression(node.value), node.value.lanes
        if lanes == 1:
            return f"vstore_half({value}, 0, {self._half(node, constness='')})"
        return f"{self._halves(node.pointer.scope, lanes, 'store')}({value}, {self._place(node)})"

    def write(self, node: Write) -> str:
        if node.mask is None:
            return super().write(node)
        name = self._masked("store", node.pointer.dtype, node.value.lanes)
        values = self.expression(node.value), self.expression(node.mask)
        return f"{name}({self._place(node)}, {', '.join(values)})"

    def read(self, node: Read) -> tuple[str, int]:
        if node.mask is None:
            return super().read(node)
        name = self._masked("load", node.pointer.dtype, node.lanes)
        values = self.expression(Number(node.fill, node.dtype, node.lanes)), self.expression(node.mask)
        return f"{name}({self._place(node)}, {', '.join(values)})", ATOM

    def _masked(self, how: str, dtype: str, lanes: int) -> str:
        """The name of a function that stores or loads chosen lanes of a vector in memory dtype `dtype`."""
        if is_integer(dtype):
            return self._masked_integers(dtype, lanes)
        halves, double = dtype == "float16", dtype == "float64"
        name = f"{how}_{'halves' if halves else 'doubles' if double else 'lanes'}{lanes}" + "_masked" * halves
        width, scalar = lanes * BITS[dtype], "double" if double else "float"
        word, vector = "long" if double else "int", f"{scalar}{lanes}"
        features = ["F", "DQ", *(["VL"] if how == "load" or width < 512 or halves else []), *(["BW"] if halves else [])]
        words = {
            "NAME": name, "VECTOR": vector, "SCALAR": scalar, "LANES": str(lanes),
            "MASK": f"{word}{lanes}", "WORD": word, "KIND": f"{'d' if double else 's'}{width}", "WIDTH": str(width),
            "STORE": f"storeup{'d' if double else 's'}{width}", "GIVEN": "value",
            "BITS": "q" if double else "d", "TARGET": scalar if width == 512 else vector,
        }  # fmt: skip
        ways = (MASKED_HALVES_STORED, MASKED_HALVES_LOADED) if halves else (MASKED_STORE, MASKED_LOAD)
        return self._masked_function(ways[how == "load"], words, features)

    def _masked_integers(self, dtype: str, lanes: int) -> str:
        """The name of a function that stores chosen lanes of a vector of integers, by masks of 32 bits a lane."""
        scalar, byte = SCALARS[dtype], BITS[dtype] == 8
        name = f"store_{scalar}s{lanes}_masked"
        features = ("F", "DQ", "BW", "VL") if byte else ("F", "DQ")
        words = {
            "NAME": name, "VECTOR": f"{scalar}{lanes}", "SCALAR": scalar,
            "LANES": str(lanes), "MASK": f"int{lanes}", "WORD": "int", "WIDTH": str(32 * lanes), "BITS": "d",
            "STORE": "storedquqi128" if byte else "storedqusi512", "TARGET": "char16" if byte else "int",
            "GIVEN": "as_char16(value)" if byte else "value",
        }  # fmt: skip
        return self._masked_function(MASKED_STORE, words, features)

    def _masked_function(self, text: str, words: Mapping[str, str], features: Sequence[str]) -> str:
        """The name of the function that the text becomes with these words, by instructions of AVX-512's `features`."""
        guard = " && ".join(f"defined(__AVX512{feature}__)" for feature in features)
        self.types[words["NAME"]] = filled(text, {"PREFIX": self.function_prefix, **words, "GUARD": guard})
        return words["NAME"]

    def call(self, node: Call) -> str:
        if node.name not in OF_LANES:
            return super().call(node)
        text, guards = OF_LANES[node.name]
        name, lanes = node.name.replace("_", f"{node.lanes}_"), str(node.lanes)
        words = {"PREFIX": self.function_prefix, "NAME": name, "LANES": lanes,
                 "GUARD": guards.get(node.lanes, "0"), "BITS": str(32 * node.lanes)}  # fmt: skip
        self.types[name] = filled(text, words)
        return f"{name}({', '.join(self.expression(one) for one in node.operands)})"

    def operation(self, node: Operation) -> tuple[str, int]:
        if node.op in DOTS.values():
            return self._dot_product(node), ATOM
        if node.op == "every":
            return self._every(node), ATOM
        if node.op == "select" and node.lanes == 1 and BITS[node.dtype] == 8 and _may_compute_both(node):
            return self._chosen(node), ATOM
        if node.op != "div" or node.dtype != "float32" or node.lanes % WIDTH or not self.features.masked_stores:
            return super().operation(node)
        over, under = node.operands
        number = under.operand if isinstance(under, Broadcast) else under
        inverse = reciprocal(number.value) if isinstance(number, Number) else None
        if not isinstance(number, Number) or inverse is None:
            return super().operation(node)
        self.vector_type("float32", node.lanes)
        self.types |= functions(node.lanes, self.function_prefix)
        values = self.literal(number.value, "float32"), self.literal(inverse, "float32")
        return f"divided_by{node.lanes}({self.expression(over)}, {', '.join(values)})", ATOM

    def _chosen(self, node: Operation) -> str:
        """A choice by the builtin `select`, which evaluates both sides.  Over "?" between a byte and a number rusticl
        (Mesa 22) crashes."""
        condition, yes, no = (f"({SCALARS[node.dtype]}){self.within(one, ATOM)}" for one in node.operands)
        return f"select({no}, {yes}, {condition})"

    def _every(self, node: Operation) -> str:
        """Compilers see no reduction in a conjunction of picked lanes: 142 us of selecting 256 elements in each of 512
        rows, 104 by the function."""
        (tests,) = node.operands
        kind = self.vector_type(tests.dtype, tests.lanes)
        lanes = replace(node, operands=(Name("tests", tests.dtype, tests.lanes),))
        words = {"PREFIX": self.function_prefix, "KIND": kind, "LANE_BY_LANE": super().operation(lanes)[0]}
        self.types[f"every {kind}"] = filled(EVERY, words)
        return f"every_of_{kind}({self.expression(tests)})"

    def _dot_product(self, node: Operation) -> str:
        name, self.types[name] = opencl_function(node.op, node.lanes, self.function_prefix)
        none = Number(0, node.dtype, node.lanes)
        *factors, total = node.operands if len(node.operands) == 3 else (*node.operands, none)
        return f"{name}({', '.join(self.expression(one) for one in (total, *factors))})"

    def added(self, node: Write, value: str) -> str:
        if node.pointer.dtype == "int32":
            return f"atomic_add({self._place(node)}, {value})"
        self.types["atomic_add_float"] = filled(ADDED_FLOAT, {"PREFIX": self.function_prefix})
        return f"atomic_add_float({self._place(node)}, {value})"

    def _halves(self, scope: str, lanes: int, what: str) -> str:
        """The name of a function for halves at any multiple of 2 bytes.

        The language's own should do, but PoCL's promise LLVM an alignment of 16 bytes, and where it makes use of
        that, the process ends.  Through a variable, which stays in a register, it is ours that reads and writes.
        PoCL's are functions that are called, before which every vector register goes to the stack, so that units with
        instructions for the conversion are given it as one of vectors.
        """
        name = f"{what}_halves{lanes}" + ("" if scope == "global" else f"_{scope}")
        names = {"PREFIX": self.function_prefix, "NAME": name, "SCOPE": self.scopes[scope], "LANES": str(lanes)}
        names["ANYWHERE"] = self.memory_type("float16", lanes, aligned=False)
        self.types[name] = filled(HALVES_READ if what == "load" else HALVES_WRITTEN, names)
        return name

    def _place(self, node: Read | Write) -> str:
        return f"{node.pointer.name} + {self.index(node.offset)}"

    def _half(self, node: Read | Write, constness: str) -> str:
        return f"({self.scopes[node.pointer.scope]}{constness}half *)({self._place(node)})"

    def prefetch_line(self, node: PrefetchLine) -> str:
        at = self.address(node.pointer, node.offset, 1, True)
        locality = 3 if node.near or node.writing else 2
        return f"__builtin_prefetch((const void *)(size_t)({at}), {int(node.writing)}, {locality})"

    def streamed(self, address: str, value: str) -> str:
        return f"__builtin_nontemporal_store({value}, {address})"


def _may_compute_both(choice: Operation) -> bool:
    """Whether neither side reads what a guard keeps it from: memory, or an element whose place the condition tests."""
    condition, *sides = choice.operands
    tells_places = lambda one: isinstance(one, (Inside, Position)) or (isinstance(one, Name) and one.dtype == "bool")
    guard = any(map(tells_places, _parts(condition)))
    known = lambda one: isinstance(one, (Operation, Convert, Number, Name, Inside))
    register = lambda one: isinstance(one, Element) and not (guard and one.indices)
    return all(known(one) or register(one) for side in sides for one in _parts(side))


def _parts(node: Expr) -> Iterator[Expr]:
    yield node
    below = node.operands if isinstance(node, Operation) else (node.operand,) if isinstance(node, Convert) else ()
    for one in below:
        yield from _parts(one)


def printer(device: Device) -> OpenCL:
    """As the device's target says."""
    dialect = device.dialect(OpenCL.language)
    steps = int(dialect.get("unrolled_steps") or 0)
    masked = device.kind.masked_stores, device.kind.masked_loads
    attribute, extension = dialect.get("kernel_attribute", ""), dialect.get(KEY, "")
    return OpenCL(attribute, extension, steps, masked, device.kind.float64)
