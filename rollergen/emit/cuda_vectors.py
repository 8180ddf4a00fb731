"""CUDA's vectors as values: plain structs, and the operators, selects and conversions that a kernel applies to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rollergen.emit.c_expressions import ATOM, BINARY, BITS, scalar_types
from rollergen.emit.c_family import CFamily
from rollergen.hal.dot_products import cuda_function
from rollergen.hal.dtypes import DOTS, DTYPES
from rollergen.lower.expressions import (
    STORAGE_BYTES,
    Call,
    Convert,
    Exchange,
    Expr,
    Inside,
    Name,
    Operation,
    Pick,
    Shuffle,
    register_dtype,
)
from rollergen.lower.ir import Function

UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
"""The language's words for integers of so many bits."""
SCALARS = scalar_types({8: "signed char", 16: "short", 32: "int", 64: "long long"}, UNSIGNED)
_BYTES = {scalar: STORAGE_BYTES[dtype] for dtype, scalar in SCALARS.items() if dtype in STORAGE_BYTES}
WIDEST_BYTES = 16
"""Of one access; wider vectors are several of them."""
_BIT_CASTS = {
    ("float", "int"): "__float_as_int", ("float", "unsigned int"): "__float_as_uint",
    ("int", "float"): "__int_as_float", ("unsigned int", "float"): "__uint_as_float",
    ("double", "long long"): "__double_as_longlong", ("long long", "double"): "__longlong_as_double",
}  # fmt: skip
_EXP2 = """#ifdef __CUDACC__
__device__ __forceinline__ float exp2_approx(const float x)
{
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}
#endif"""
_EXTREME = """__device__ __forceinline__ float {name}_nan(const float a, const float b)
{{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float value;
    asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
#else
    return a != a ? a : (a {order} b ? a : b);
#endif
}}"""
_PACK = """#ifdef __CUDACC__
__device__ __forceinline__ unsigned int pack_{dtype}(const float low, const float high)
{{
    unsigned int both;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.{ptx}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("{{ .reg .b16 l, h; cvt.rn.{ptx}.f32 h, %1; cvt.rn.{ptx}.f32 l, %2; mov.b32 %0, {{l, h}}; }}"
        : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}}
#endif
"""
"""Two numbers, rounded to nearest even, as the halves of a register (PTX ISA, "cvt": of two from sm_80 on)."""
_ANEW = """__device__ __forceinline__ int anew(int value)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(value));
#endif
    return value;
}
"""
"""The number itself, of which a compiler knows nothing: what follows from it is computed where it is used, again in
each iteration of a loop, and takes no registers meanwhile."""
FUNCTIONS = {
    "anew": _ANEW,
    "exp2_approx": _EXP2,
    "max_nan": _EXTREME.format(name="max", order=">"),
    "min_nan": _EXTREME.format(name="min", order="<"),
    **{f"pack_{name}": _PACK.format(dtype=name, ptx=DTYPES[name].ptx) for name in ("float16", "bfloat16")},
}
"""Functions that stand before the kernels that call them."""
_SINCE_800 = """#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ {head}
{{
    unsigned short bits[{lanes}];
{lines}
    return {result};
}}
#else
{other}
#endif"""
_BFLOAT16 = {
    "round_bfloat16": ("float", "__uint_as_float((unsigned int)bits[{i}] << 16)"),
    "bfloat16_bits": ("unsigned short", "bits[{i}]"),
}
"""What is had of the bits of a number that is rounded to bfloat16: one instruction from sm_80 on (PTX ISA, "cvt")."""
_ORDERS = ("lt", "le", "gt", "ge", "eq", "ne")
INLINE = "__device__ __forceinline__ "


class CudaVectors(CFamily):
    """What a kernel uses of these small functions stands before it, in `types`."""

    function_prefix = INLINE
    scalars: ClassVar[Mapping[str, str]] = SCALARS

    def vector_type(self, dtype: str, lanes: int) -> str:
        return self._vector(SCALARS[dtype], lanes)

    def memory_type(self, dtype: str, lanes: int, aligned: bool) -> str:
        return self._vector(SCALARS[dtype], lanes)

    def function(self, function: Function) -> str:
        text = super().function(function)
        name, _, lanes_text = function.name.partition("_f32x")
        if name not in _BFLOAT16:
            return text
        scalar, one = _BFLOAT16[name]
        lanes = int(lanes_text)
        of = lambda i: lane(lanes, i) if lanes > 1 else ""
        lines = [
            f'    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits[{i}]) : "f"(x{of(i)}));' for i in range(lanes)
        ]  # fmt: skip
        values = ", ".join(one.format(i=i) for i in range(lanes))
        result = values if lanes == 1 else f"make_{self._vector(scalar, lanes)}({values})"
        head = text.partition("\n")[0].removeprefix(INLINE)
        return _SINCE_800.format(head=head, lanes=lanes, lines="\n".join(lines), result=result, other=text)

    def _vector(self, scalar: str, lanes: int) -> str:
        """The vector's type, defined by us where CUDA has none."""
        name = scalar.replace("unsigned ", "u").removeprefix("signed ").replace(" ", "") + str(lanes)
        if lanes > 4 and name not in self.types:
            align = min(WIDEST_BYTES, lanes * _BYTES[scalar])
            given = ", ".join(f"const {scalar} s{i}" for i in range(lanes))
            made = ", ".join(f"s{i}" for i in range(lanes))
            held = f"struct __align__({align}) {name} {{ {scalar} s[{lanes}]; }};"
            if lanes * _BYTES[scalar] == WIDEST_BYTES:  # moved as words, not element by element
                held = f"union __align__({align}) {name} {{ {scalar} s[{lanes}]; uint4 words; }};"
            self.types[name] = (
                f"{held}\n"
                f"{INLINE}{name} make_{name}({given}) {{ return {{{{{made}}}}}; }}"
            )
        return name

    def _helper(self, result: str, name: str, parameters: str, body: str, key: str = "") -> str:
        """A small function before the kernels, once."""
        self.types.setdefault(key or name, f"{INLINE}{result} {name}({parameters}) {{ return {body}; }}")
        return name

    def _lanewise(self, scalar: str, lanes: int, one: str) -> str:
        """A vector whose lane i is `one`, where {0}, {1}, ... stand for ``a``, ``b``, ... lane i."""
        parts = [one.format(*(f"{v}{lane(lanes, i)}" for v in "abc")) for i in range(lanes)]
        return f"make_{self._vector(scalar, lanes)}({', '.join(parts)})"

    def _register(self, dtype: str) -> str:
        return SCALARS[register_dtype(dtype)]

    def spread(self, text: str, dtype: str, lanes: int) -> str:
        scalar = self._register(dtype)
        kind = self._vector(scalar, lanes)
        body = f"make_{kind}({', '.join(['a']*lanes)})"
        return f"{self._helper(kind, f'spread_{kind}', f'const {scalar} a', body)}({text})"

    def built(self, texts: list[str], dtype: str) -> str:
        return f"make_{self._vector(self._register(dtype), len(texts))}({', '.join(texts)})"

    def picked(self, node: Pick) -> str:
        operand, lanes = node.operand, node.operand.lanes
        if isinstance(node.which, int):
            vector = operand.name if type(operand) is Name else self.within(operand, ATOM)
            return vector + lane(lanes, node.which)
        first = lanes // 2 if node.which == "hi" else 0
        return self._gathered((node.operand,), tuple(range(first, first + lanes // 2)), f"{node.which}_lanes")

    def shuffled(self, node: Shuffle) -> str:
        digits = "_".join(map(str, node.order))
        return self._gathered((node.first, node.second), node.order, f"shuffle_{digits}")

    def exchanged(self, node: Exchange) -> str:
        how = {"from": "__shfl_sync"}.get(node.how, f"__shfl_{node.how}_sync")
        present = f"0x{(1 << node.present) - 1:08x}"
        return f"{how}({present}, {self.expression(node.operand)}, {self.index(node.by)})"

    def _gathered(self, operands: tuple[Expr, ...], order: tuple[int, ...], name: str) -> str:
        """Lanes of the operands, one after the other, in a new order."""
        scalar, lanes = self._register(operands[0].dtype), operands[0].lanes
        given, kind = self._vector(scalar, lanes), self._vector(scalar, len(order))
        parameters = ", ".join(f"const {given} {letter}" for letter, _ in zip("ab", operands, strict=False))
        picks = ", ".join("ab"[which // lanes] + lane(lanes, which % lanes) for which in order)
        self._helper(kind, name, parameters, f"make_{kind}({picks})", f"{name}_{given}")
        return f"{name}({', '.join(self.expression(o) for o in operands)})"

    def converted(self, node: Convert) -> str:
        operand = node.operand
        source, target = self._register(operand.dtype), self._register(node.dtype)
        one = f"({target}){{0}}"
        if node.bits and source != target:
            one = f"{_BIT_CASTS[source, target]}({{0}})" if (source, target) in _BIT_CASTS else one
        if node.lanes == 1:
            text = self.expression(operand) if one.endswith("({0})") else self.within(operand, 0)
            return one.format(text)
        kind, what = self._vector(target, node.lanes), "as" if node.bits else "convert"
        parameter = f"const {self._vector(source, node.lanes)} a"
        body = self._lanewise(target, node.lanes, one)
        name = self._helper(kind, f"{what}_{kind}", parameter, body, f"{what}_{kind}({source})")
        return f"{name}({self.expression(operand)})"

    def operation(self, node: Operation) -> tuple[str, int]:
        lanes = node.lanes
        if node.op in DOTS.values():
            return self._dot_product(node), ATOM
        if lanes == 1 and node.op == "and" and all(map(_is_plain_test, node.operands)):
            # No jumps between the tests of an address.
            return " & ".join([self.within(operand, BITS) for operand in node.operands]), BITS
        if lanes == 1 or (node.op == "select" and node.operands[0].lanes == 1):
            return super().operation(node)
        target, source = self._register(node.dtype), self._register(node.operands[0].dtype)
        kind, given = self._vector(target, lanes), self._vector(source, lanes)
        if node.op == "select":
            body = self._lanewise(target, lanes, "{0} ? {1} : {2}")
            parameters = f"const {given} a, const {kind} b, const {kind} c"
            name = self._helper(kind, "select", parameters, body, f"select_{given}_{kind}")
            return f"{name}({', '.join(self.expression(o) for o in node.operands)})", ATOM
        if len(node.operands) == 1:
            symbol, parameters, one = ("-" if node.op == "neg" else "~"), f"const {given} a", ""
            one = f"{symbol}{{0}}"
        else:
            symbol = BINARY[node.op][0][:1] if node.op in ("and", "or") else BINARY[node.op][0]
            other = self._vector(self._register(node.operands[1].dtype), lanes)
            parameters, one = f"const {given} a, const {other} b", f"{{0}} {symbol} {{1}}"
            one = f"-({one})" if node.dtype.startswith("mask") and node.op in _ORDERS else one
        body = self._lanewise(target, lanes, one)
        self._helper(kind, f"operator{symbol}", parameters, body, f"{node.op}_{len(node.operands)}_{given}")
        return super().operation(node)

    def _dot_product(self, node: Operation) -> str:
        """Of words, a scalar each: threads have no lanes."""
        name, self.types[name] = cuda_function(node.op, self.function_prefix)
        a, b, *total = (self.expression(one) for one in node.operands)
        return f"{name}({total[0] if total else 0}, {a}, {b})"

    def call(self, node: Call) -> str:
        if node.name in FUNCTIONS:
            self.types.setdefault(f"prelude {node.name}", FUNCTIONS[node.name])
        if node.lanes > 1 and not node.name.endswith(f"x{node.lanes}"):
            scalar = self._register(node.dtype)
            kind = self._vector(scalar, node.lanes)
            parameters = ", ".join(f"const {kind} {letter}" for letter, _ in zip("abc", node.operands, strict=False))
            arguments = ", ".join(f"{{{i}}}" for i in range(len(node.operands)))
            body = self._lanewise(scalar, node.lanes, f"{node.name}({arguments})")
            self._helper(kind, node.name, parameters, body, f"{node.name}_{kind}")
        return super().call(node)


def _is_plain_test(node: Expr) -> bool:
    """Whether the expression only compares positions: it costs little and has no effect."""
    if isinstance(node, Operation):
        return node.op == "and" and all(_is_plain_test(operand) for operand in node.operands)
    return isinstance(node, Inside)


def lane(lanes: int, which: int) -> str:
    """Member of a vector: CUDA's own have four at most."""
    return f".{'xyzw'[which]}" if lanes <= 4 else f".s[{which}]"
