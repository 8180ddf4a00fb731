"""CUDA C++: only the spellings that differ.

CUDA's vectors are plain structs, so the operators, selects and conversions that a kernel applies to vectors stand
as small inline functions before it: those that it uses and no others.  No header is included; NVRTC and nvcc
compile the text as it is.

Vectors in memory are read and written whole where their address is a proven multiple of their size (arguments start
at multiples of `source.ARGUMENT_BYTES`), else in the largest parts for which that holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import ClassVar

from rollergen.emit import asynchronous, conversions, products, quad_pairs, realigned
from rollergen.emit.boxes import CudaBoxes
from rollergen.emit.c_expressions import INDENT, LOGIC_OR, ORDER, number
from rollergen.emit.cuda_vectors import INLINE, WIDEST_BYTES, lane
from rollergen.emit.index_code import Alignment, is_wide
from rollergen.emit.matrix_code import exchange, helper
from rollergen.emit.unrolling import MOST_WHOLE, steps_at_once
from rollergen.expr.index import Index
from rollergen.lower.expressions import (
    STORAGE_BYTES,
    Inside,
    Pointer,
    Read,
)
from rollergen.lower.features import Features
from rollergen.lower.ir import LOCAL, Allocate, Barrier, For, Kernel, Point, PrefetchLine, Write
from rollergen.lower.matrix_ir import (
    BeginProducts,
    Collective,
    EndProducts,
    ExchangeResults,
    LoadMatrix,
    MultiplyLocal,
    MultiplyMatrix,
    Operand,
    ShareWeights,
    WaitFactors,
    WaitProducts,
    WarpBarrier,
)

_SPECIAL = {
    "float32": ("__int_as_float(0x7f800000)", "__int_as_float(0xff800000)", "__int_as_float(0x7fffffff)"),
    "float64": (
        "__longlong_as_double(0x7ff0000000000000LL)",
        "__longlong_as_double(0xfff0000000000000LL)",
        "__longlong_as_double(0x7fffffffffffffffLL)",
    ),
}
"""Infinity, its negative, NaN: NVRTC has no macros for them."""
_HALF = """#ifdef __CUDACC__
__device__ __forceinline__ float half_to_float(const unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ unsigned short half_from_float(const float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif
"""


class Cuda(CudaBoxes):
    """Float16 and bfloat16 lie in memory as unsigned short."""

    language = "cuda"
    features = Features(
        True,
        {
            "exp": "expf", "exp2_approx": "exp2_approx", "max": "max_nan", "min": "min_nan", "max_number": "fmaxf",
            "abs": "fabsf",
        },
    )  # fmt: skip
    restrict = "__restrict__"
    scopes: ClassVar[Mapping[str, str]] = {"global": "", "local": "", "private": ""}
    long = ("long long", "LL")  # a long has 32 bits where the compiler follows Windows

    def __init__(self) -> None:
        super().__init__()
        self._alignment = Alignment()
        self._places: Mapping[str, tuple[int, int]] = {}
        self._dynamic_alignment = 0
        self._maps: frozenset[str] = frozenset()

    # Kernels and statements

    def head(self, kernel: Kernel) -> str:
        bounds = str(kernel.threads) + (f", {kernel.resident_blocks}" if kernel.resident_blocks else "")
        cluster = f" __cluster_dims__({kernel.cluster}, 1, 1)" if kernel.cluster else ""
        head = f'extern "C" __global__ void __launch_bounds__({bounds}){cluster}'
        return f"{head}\n{kernel.name}({self.parameters(kernel)})"

    def kernel(self, kernel: Kernel) -> str:
        self._alignment = Alignment(kernel)
        self._places = dynamic_places(kernel)
        self._dynamic_alignment = max((one.alignment for one in kernel.arrays), default=0)
        self._maps = frozenset(name for name, _ in kernel.maps)
        return super().kernel(kernel)

    def dynamic_bytes(self, kernel: Kernel) -> int:
        return sum(size for _, size in dynamic_places(kernel).values())

    def ids(self, kernel: Kernel) -> list[str]:
        lines = [f"const {self.integer(kernel.block_id)} {kernel.block_id} = blockIdx.x;"]
        if kernel.threads > 1:
            lines.append(f"const int {kernel.thread_id} = threadIdx.x;")
        return lines

    def parameter(self, pointer: Pointer) -> str:
        if pointer.name in self._maps:
            return f"const __grid_constant__ TensorMap {pointer.name}"
        return super().parameter(pointer)

    def point(self, node: Point) -> str:
        self._alignment.point(node)
        return super().point(node)

    def unrolled(self, node: For) -> str:
        start, stop = node.start, node.stop
        if type(start) is int and type(stop) is int and stop - start <= MOST_WHOLE:
            return "#pragma unroll"
        steps = steps_at_once(node)
        return "#pragma unroll" if steps is None else f"#pragma unroll {steps}"

    def barrier(self, statement: Barrier) -> list[str]:
        lines = ["__syncthreads();"]
        if statement.products:
            self.types.setdefault("products", products.GROUPS)
            lines = ["show_to_products();", *lines]
        if statement.pending is not None:
            self.types.setdefault("asynchronous", asynchronous.GROUPS)
            lines = [f"wait_copies<{statement.pending}>();", *lines]
        return lines

    def end_group(self) -> list[str]:
        self.types.setdefault("asynchronous", asynchronous.GROUPS)
        return ["end_copies();"]

    def collective(self, statement: Collective) -> str:
        if isinstance(statement, WarpBarrier):
            return "__syncwarp()"
        if isinstance(statement, (BeginProducts, MultiplyLocal, EndProducts, WaitFactors, WaitProducts)):
            return self._beside(statement)
        if isinstance(statement, ExchangeResults):
            name, texts = exchange(statement)
            self.types.update((text, text) for text in texts)
            return f"{name}({', '.join(map(self.expression, statement.tiles))})"
        if isinstance(statement, ShareWeights):
            self.types.setdefault("share", quad_pairs.SHARE)
            return f"share_weights({self.expression(statement.own)}, {self.expression(statement.weights)})"
        if isinstance(statement, conversions.STATEMENTS):
            return self._called(conversions.call(statement))
        if isinstance(statement, realigned.STATEMENTS):
            return self._called(realigned.call(statement))
        name, text = helper(statement)
        self.types.setdefault(text, text)
        if isinstance(statement, MultiplyMatrix):
            operands = statement.accumulator, statement.a, statement.b
            return f"{name}({', '.join(self.expression(one) for one in operands)})"
        fragment = statement.fragment if isinstance(statement, LoadMatrix) else statement.accumulator
        at = self.address(statement.pointer, statement.offset, 1, False)
        own = statement.shape.layout == "opaque" or statement.shape.dtype == "float64"
        pitch = f", {statement.pitch}" if own else ""
        return f"{name}({self.expression(fragment)}, {at}{pitch})"

    def _called(self, made: conversions.Call) -> str:
        for name, text in made.definitions.items():
            self.types.setdefault(name, text)
        given = [self.expression(one) for one in made.operands]
        given += [self.address(*made.place, 1, False)] if made.place is not None else []
        return f"{made.name}({', '.join([*given, *([] if made.number is None else [str(made.number)])])})"

    def _beside(self, statement: BeginProducts | MultiplyLocal | EndProducts | WaitFactors | WaitProducts) -> str:
        """A statement of products that run beside the program."""
        self.types.setdefault("products", products.GROUPS)
        match statement:
            case BeginProducts():
                return "begin_products()"
            case EndProducts(pending):
                return f"end_products<{pending}>()"
            case WaitFactors():
                self.types.setdefault("factors", products.FACTORS)
                return "wait_factors()"
            case WaitProducts(names, dtype, elements):
                scalar = self.scalars[dtype]
                return "; ".join(f"wait_products<{elements}>(({scalar} *){name})" for name in names)
        name, text = products.multiply(statement)
        self.types.setdefault(text, text)
        at = [
            f"operand_at<{one.panel_bytes}>({one.pointer.name}, {self.index(one.offset)})"
            if isinstance(one, Operand) else self.expression(one)
            for one in (statement.a, statement.b)
        ]  # fmt: skip
        return f"{name}({', '.join([self.expression(statement.accumulator), *at])})"

    def allocation(self, node: Allocate) -> str:
        self._alignment.allocate(node)
        if node.name in self._places:
            at, kind = self._places[node.name][0], self.type(node.dtype, node.lanes, memory=True)
            align = max(DYNAMIC_ALIGNMENT, self._dynamic_alignment)
            array = f"extern __shared__ __align__({align}) unsigned char block_memory[]"
            declared = "" if at else f"{array};\n{INDENT}"
            return f"{declared}{kind} *const {node.name} = ({kind} *)(block_memory + {at})"
        extents = "".join([f"[{extent}]" for extent in node.shape])
        scope = "__shared__ " if node.scope == LOCAL else ""
        aligned = f"__align__({node.alignment}) " if node.alignment else ""
        kind = self.type(node.dtype, node.lanes, memory=node.scope != "register")
        return f"{scope}{aligned}{kind} {node.name}{extents}"

    def inside(self, node: Inside) -> tuple[str, int]:
        """One comparison for both bounds: what lies below the lower one is large as an unsigned number."""
        if node.low is None or node.high is None or node.high == node.low + 1:
            return super().inside(node)
        above = node.index - node.low
        if is_wide(above, self._ranges):
            return super().inside(node)
        shifted = self.index(above)
        text = shifted if shifted.isidentifier() else f"({shifted})"
        return f"(unsigned int){text} < {node.high - node.low}u", ORDER

    def literal(self, value: float | int | bool, dtype: str) -> str:
        if "float" not in dtype or math.isfinite(value):
            text = number(value, dtype, self.long[1])
            if "INFINITY" not in text:
                return text
        infinity, negative, nan = _SPECIAL["float64" if dtype == "float64" else "float32"]
        return nan if math.isnan(value) else (infinity if value > 0 else negative)

    # Memory

    def cell(self, pointer: Pointer, offset: Index, lanes: int, aligned: bool) -> str:
        if lanes == 1:
            return super().cell(pointer, offset, lanes, aligned)
        part = self._part(pointer, offset, lanes, aligned)
        if part == self._widest(pointer, lanes):
            return super().cell(pointer, offset, lanes, aligned)
        kind = self._vector(self.scalars[pointer.dtype], lanes)
        return f"{self._loader(pointer.dtype, lanes, part, kind)}({self.address(pointer, offset, 1, False)})"

    def write(self, node: Write) -> str:
        lanes, dtype = node.value.lanes, node.pointer.dtype
        if node.asynchronous:
            return self._copied(node)
        if dtype == "float16":
            return self.half_write(node)
        if lanes == 1:
            return super().write(node)
        part = self._part(node.pointer, node.offset, lanes, node.aligned or node.streaming)
        if part == self._widest(node.pointer, lanes):
            return super().write(node)
        return self._stored(node.pointer, node.offset, lanes, part, self.expression(node.value))

    def added(self, node: Write, value: str) -> str:
        return f"atomicAdd({self.address(node.pointer, node.offset, 1, False)}, {value})"

    def _copied(self, node: Write) -> str:
        """Calls of the function that copies past the registers, in the largest parts that are proven aligned."""
        source, condition = asynchronous.source_of(node)
        lanes, size = node.value.lanes, STORAGE_BYTES[node.pointer.dtype]
        parts = (self._part(node.pointer, node.offset, lanes, node.aligned),
                 self._part(source.pointer, source.offset, lanes, source.aligned))  # fmt: skip
        part = math.gcd(*parts)
        bytes_ = asynchronous.checked_bytes(part * size, node)
        self.types.setdefault("asynchronous", asynchronous.GROUPS)
        name = asynchronous.name_of(bytes_, node.asynchronous)
        self.types.setdefault(name, asynchronous.function(name, bytes_))
        wanted = str(bytes_) if condition is None else f"{self.within(condition, LOGIC_OR)} ? {bytes_} : 0"
        calls = []
        for e in range(0, lanes, part):
            to = self.address(node.pointer, node.offset + e, 1, False)
            at = self.address(source.pointer, source.offset + e, 1, False)
            calls.append(f"{name}({to}, {at}, {wanted})")
        return "; ".join(calls)

    def _widest(self, pointer: Pointer, lanes: int) -> int:
        return min(lanes, WIDEST_BYTES // STORAGE_BYTES[pointer.dtype])

    def _part(self, pointer: Pointer, offset: Index, lanes: int, aligned: bool) -> int:
        """How many elements go at once: as many as the address is known to be aligned to."""
        widest = self._widest(pointer, lanes)
        if aligned:
            return widest
        known = self._alignment.of(pointer, offset, self._integers) // STORAGE_BYTES[pointer.dtype]
        return math.gcd(widest, known) if known else widest

    def _loader(self, dtype: str, lanes: int, part: int, kind: str) -> str:
        """The function that reads a vector in parts."""
        scalar = self.scalars[dtype]
        if part == 1:
            body = self._lanewise_at(scalar, lanes)
        else:
            sub = self._vector(scalar, part)
            pieces = [f"((const {sub} *)p)[{i // part}]{lane(part, i % part)}" for i in range(lanes)]
            body = f"make_{kind}({', '.join(pieces)})"
        name = f"load_{kind}" + (f"_by{part}" if part > 1 else "")
        return self._helper(kind, name, f"const {scalar} *p", body)

    def _lanewise_at(self, scalar: str, lanes: int) -> str:
        return f"make_{self._vector(scalar, lanes)}({', '.join(f'p[{i}]' for i in range(lanes))})"

    def _stored(self, pointer: Pointer, offset: Index, lanes: int, part: int, value: str) -> str:
        """A call of the function that writes a vector in parts."""
        scalar = self.scalars[pointer.dtype]
        kind = self._vector(scalar, lanes)
        name = f"store_{kind}" + (f"_by{part}" if part > 1 else "")
        if part == 1:
            lines = [f"p[{i}] = v{lane(lanes, i)};" for i in range(lanes)]
        else:
            sub = self._vector(scalar, part)
            packs = [", ".join(f"v{lane(lanes, i + e)}" for e in range(part)) for i in range(0, lanes, part)]
            lines = [f"(({sub} *)p)[{i}] = make_{sub}({pack});" for i, pack in enumerate(packs)]
        head = f"{INLINE}void {name}({scalar} *p, const {kind} v)"
        self.types.setdefault(name, f"{head}\n{{\n" + "\n".join(INDENT + line for line in lines) + "\n}")
        return f"{name}({self.address(pointer, offset, 1, False)}, {value})"

    def half_read(self, node: Read) -> str:
        self.types.setdefault("half", _HALF)
        bits = self.cell(node.pointer, node.offset, node.lanes, node.aligned)
        if node.lanes == 1:
            return f"half_to_float({bits})"
        kind, halves = self._vector("float", node.lanes), self._vector("unsigned short", node.lanes)
        body = self._lanewise("float", node.lanes, "half_to_float({0})")
        return f"{self._helper(kind, f'half_to_{kind}', f'const {halves} a', body)}({bits})"

    def half_write(self, node: Write) -> str:
        self.types.setdefault("half", _HALF)
        lanes, value = node.value.lanes, self.expression(node.value)
        if lanes == 1:
            return f"{self.cell(node.pointer, node.offset, 1, False)} = half_from_float({value})"
        kind, halves = self._vector("float", lanes), self._vector("unsigned short", lanes)
        body = self._lanewise("unsigned short", lanes, "half_from_float({0})")
        value = f"{self._helper(halves, f'half_from_{kind}', f'const {kind} a', body)}({value})"
        part = self._part(node.pointer, node.offset, lanes, node.aligned)
        if part == self._widest(node.pointer, lanes):
            return f"{self.cell(node.pointer, node.offset, lanes, node.aligned)} = {value}"
        return self._stored(node.pointer, node.offset, lanes, part, value)

    def prefetch_line(self, node: PrefetchLine) -> str:
        return f'asm volatile("prefetch.global.L1 [%0];" :: "l"({self.address(node.pointer, node.offset, 1, True)}))'

    def streamed(self, address: str, value: str) -> str:
        return f"__stcs({address}, {value})"


STATIC_BYTES = 49152
"""Arrays of more in one kernel are a compile error on every architecture."""
DYNAMIC_ALIGNMENT = 128


def dynamic_places(kernel: Kernel) -> dict[str, tuple[int, int]]:
    """(first byte, bytes) of each of the block's arrays in the launch's memory; none where they may be declared.

    Each array starts at a multiple of 16 bytes, the widest access, or of its own alignment.
    """
    own = [one for one in kernel.arrays if one.scope == LOCAL]
    sizes = {one.name: prod(one.shape) * one.lanes * STORAGE_BYTES[one.dtype] for one in own}
    if sum(sizes.values()) <= STATIC_BYTES:
        return {}
    places, at = {}, 0
    for one in own:
        step = max(16, one.alignment)
        size = -(-sizes[one.name] // step) * step
        places[one.name] = (at, size)
        at += size
    return places
