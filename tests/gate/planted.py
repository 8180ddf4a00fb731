"""Faults planted into kernels written by hand, and behind right programs: what no printer of ours writes, but one of
tomorrow, or a compiler, may.

Each comes with the same kernel without the fault, which the gate must pass.  Kernels written by hand are one work-item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import Launch, Source, emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.reads import given_tensors
from rollergen.program.rprogram import RProgram
from rollergen.targets import resolve
from tests import programs
from tests.lower.devices import DEVICES

T, ops = rg.tensor, rg.ops
C_TYPES = {"float16": "half", "bfloat16": "ushort", "float32": "float", "float64": "double", "int8": "char",
           "int32": "int", "int64": "long", "bool": "char"}  # fmt: skip


def built(expression: Any) -> RProgram:
    return construct(canonicalize(expression), resolve("cpu"), top_k=1)[0].program


@dataclass(frozen=True)
class Planted:
    """``part``: the class of faults; ``make(program)``: the sources without the fault and with it.

    ``followed``: where nothing but another candidate can show it, the right one is checked behind the mutant.
    """

    name: str
    part: str
    expression: Any
    make: Callable[[RProgram], tuple[Source, Source]]
    followed: bool = False

    @property
    def program(self) -> RProgram:
        return self.expression if isinstance(self.expression, RProgram) else built(self.expression)

    def sources(self) -> tuple[Source, Source]:
        return self.make(self.program)


def handmade(part: str, name: str, expression: Any, body: str, right: str, wrong: str) -> Planted:
    """A kernel over the inputs X, Y, Z, a temporary T and ``out``, in whose body FAULT stands for one of two pieces."""
    assert "FAULT" in body, name

    def make(program: RProgram) -> tuple[Source, Source]:
        given = dict(zip("XYZ", program.inputs, strict=False)) | dict(zip("T", program.temporaries, strict=False))
        given["out"] = program.outputs[0]
        kinds = {at: ("const " if at in "XYZ" else "") + C_TYPES[b.dtype] for at, b in given.items()}
        parameters = ", ".join(f"global {kind} *{at}" for at, kind in kinds.items())
        launch = Launch("made", 1, 1, tuple(buffer.name for buffer in given.values()))
        texts = (f"{HELPERS}\nkernel void made({parameters})\n{{\n{body.replace('FAULT', x)}\n}}\n" for x in (right, wrong))
        right_source, wrong_source = (Source(text, (launch,), "opencl") for text in texts)
        return right_source, wrong_source

    return Planted(name, part, expression, make)


def behind(part: str, name: str, expression: Any, statement: str, followed: bool = False) -> Planted:
    """A kernel that runs behind those of a right program: ``statement`` finds the buffers as X, Y, Z, T and ``out``, and
    their sizes in bytes as X_bytes, ..."""

    def make(program: RProgram) -> tuple[Source, Source]:
        right = emit(program, DEVICES.get(program.device) or resolve(program.device))
        given = dict(zip("XYZ", program.inputs, strict=False)) | dict(zip("T", program.temporaries, strict=False))
        given["out"] = program.outputs[0]
        parameters = ", ".join(f"global {C_TYPES[b.dtype]} *{at}" for at, b in given.items())
        sizes = " ".join(f"const long {at}_bytes = {b.elements}L * sizeof(*{at});" for at, b in given.items())
        text = f"{right.text}\nkernel void fault({parameters})\n{{\n{sizes}\n{statement}\n}}\n"
        launch = Launch("fault", 1, 1, tuple(buffer.name for buffer in given.values()))
        return right, replace(right, text=text, launches=(*right.launches, launch))

    return Planted(name, part, expression, make, followed)


HELPERS = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
ushort to_bf16(float x)
{
    uint bits = as_uint(x);
    return isnan(x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
float from_bf16(ushort x) { return as_float((uint)x << 16); }
float largest(float a, float b) { return isnan(a) || isnan(b) ? NAN : fmax(a, b); }
"""

def elementwise(part: str, name: str, expression: Any, statement: str, right: str, wrong: str) -> Planted:
    """``statement`` runs for every element i."""
    body = f"for (long i = 0; i < {prod(expression.shape)}; ++i) {{ {statement} }}"
    return handmade(part, name, expression, body, right, wrong)


def rows(
    part: str, name: str, expression: Any, before: str, each: str, after: str, right: str, wrong: str
) -> Planted:
    """For every row r: ``before``, ``each`` for every element k of it at `X[at]`, ``after``."""
    count, columns = given_tensors((expression,))[0].shape
    body = f"""    for (int r = 0; r < {count}; ++r) {{
        {before}
        for (int k = 0; k < {columns}; ++k) {{ const int at = r * {columns} + k; {each} }}
        {after}
    }}"""
    return handmade(part, name, expression, body, right, wrong)


def ties() -> Iterator[Planted]:
    """The last of equal values instead of the first."""
    for dtype in ("float32", "float64", "int8", "int32", "int64"):
        of = C_TYPES[dtype]
        for name, better, or_equal in (("argmax", ">", ">="), ("argmin", "<", "<=")):
            expression = getattr(ops, name)(T("X", (40, 70), dtype), 1)
            yield rows(
                "ties", f"{name}_takes_the_last_{dtype}", expression, f"{of} best = X[r * 70]; long which = 0;",
                f"if (X[at] FAULT best{' || (X[at] != X[at] && best == best)' if 'float' in dtype else ''}) "
                "{ best = X[at]; which = k; }", "out[r] = which;", better, or_equal,
            )  # fmt: skip


def chains() -> Iterator[Planted]:
    """One chain of additions where several would do: equal values leave its errors one sign."""
    loops = "for (int a = 0; a < 16; ++a) {{ float A = 0; for (int b = 0; b < 16; ++b) {{ float B = 0; "
    loops += "for (int c = 0; c < 16; ++c) {{ float C = 0; for (int d = 0; d < 16; ++d) FAULT += X[{at}]; "
    loops += "B += C; }} A += B; }} total += A; }}"
    n, place = 1 << 16, "(((a * 16 + b) * 16 + c) * 16 + d)"
    for name, maker, after in (("sum", ops.sum, "total"), ("mean", ops.mean, f"total / {n}")):
        body = f"float total = 0; {loops.format(at=place)} out[0] = {after};"
        yield handmade("chains", f"{name}_in_one_chain", maker(T("X", (n,)), 0), body, "C", "total")
    for axis, name, at in ((1, "rows", f"r * {n} + {place}"), (0, "columns", f"{place} * 2 + r")):
        body = f"for (int r = 0; r < 2; ++r) {{ float total = 0; {loops.format(at=at)} out[r] = total; }}"
        shape = (2, n) if axis == 1 else (n, 2)
        yield handmade("chains", f"sum_of_{name}_in_one_chain", ops.sum(T("X", shape), axis), body, "C", "total")


def roundings() -> Iterator[Planted]:
    """Halves, and what is rounded twice."""
    x = lambda dtype: T("X", (3000,), dtype)
    bf16 = "uint bits = as_uint(X[i]); out[i] = isnan(X[i]) ? 0x7fc0 : FAULT >> 16;"
    even = "(bits + 0x7fff + (bits >> 16 & 1))"
    for name, wrong in (("truncated", "bits"), ("half_up", "(bits + 0x8000)"), ("half_down", "(bits + 0x7fff)")):
        yield elementwise("rounding", f"bfloat16_{name}", ops.cast(x("float32"), "bfloat16"), bf16, even, wrong)
    for wrong in ("rtz", "rtp", "rtn"):
        store = "vstore_half_FAULT(X[i], i, out);"
        yield elementwise("rounding", f"float16_{wrong}", ops.cast(x("float32"), "float16"), store, "rte", wrong)
    double = "vstore_half_rte(FAULT, i, out);"
    yield elementwise("rounding", "float64_to_float16_twice", ops.cast(x("float64"), "float16"), double, "X[i]",
                      "(float)X[i]")  # fmt: skip
    for dtype in ("float32", "float64"):
        yield elementwise("rounding", f"round_half_away_{dtype}", ops.round(x(dtype)), "out[i] = FAULT(X[i]);", "rint",
                          "round")  # fmt: skip
        yield elementwise("rounding", f"cast_of_{dtype}_rounds", ops.cast(x(dtype), "int32"),
                          "out[i] = convert_int_FAULT(X[i]);", "rtz", "rte")  # fmt: skip
        yield elementwise("rounding", f"floor_truncates_{dtype}", ops.floor(x(dtype)), "out[i] = FAULT(X[i]);", "floor",
                          "trunc")  # fmt: skip
    product = ops.matmul(T("X", (30, 300), "bfloat16"), T("Y", (300, 40), "bfloat16"))
    body = """for (int i = 0; i < 30; ++i) for (int j = 0; j < 40; ++j) {
        float total = 0;
        for (int k = 0; k < 300; ++k) total += from_bf16(X[i * 300 + k]) * from_bf16(Y[k * 40 + j]);
        out[i * 40 + j] = FAULT;
    }"""
    yield handmade("rounding", "product_rounded_half_up", product, body, "to_bf16(total)",
                   "isnan(total) ? 0x7fc0 : (as_uint(total) + 0x8000) >> 16")  # fmt: skip


def exponentials() -> Iterator[Planted]:
    """What overflows, or underflows everywhere, without the maximum subtracted."""
    first = "float top = -INFINITY; for (int k = 0; k < 70; ++k) top = largest(top, X[r * 70 + k]);"
    write = "for (int k = 0; k < 70; ++k) out[r * 70 + k] = {};"
    cases = {
        "softmax": (ops.softmax(T("X", (40, 70))), write.format("exp(X[r * 70 + k] - top) / total")),
        "log_softmax": (ops.log_softmax(T("X", (40, 70))), write.format("X[r * 70 + k] - top - log(total)")),
        "logsumexp": (ops.logsumexp(T("X", (40, 70)), 1), "out[r] = log(total) + top;"),
    }
    for name, (expression, after) in cases.items():
        held = "isinf(top) ? 0 : " if name == "logsumexp" else ""
        for how, wrong in (("not_subtracted", "0.0f"), ("taken_of_zero_too", "fmax(top, 0.0f)")):
            if name != "log_softmax" or how == "not_subtracted":
                yield rows("exp", f"{name}_maximum_{how}", expression, f"{first} top = {held}FAULT; float total = 0;",
                           "total += exp(X[at] - top);", after, "top", wrong)  # fmt: skip
    x = T("X", (3000,))
    yield elementwise("exp", "sigmoid_as_a_quotient", ops.sigmoid(x), "out[i] = FAULT;", "1 / (1 + exp(-X[i]))",
                      "exp(X[i]) / (1 + exp(X[i]))")  # fmt: skip
    yield elementwise("exp", "tanh_as_a_quotient", ops.tanh(x), "out[i] = FAULT;", "tanh(X[i])",
                      "(exp(2 * X[i]) - 1) / (exp(2 * X[i]) + 1)")  # fmt: skip
    yield elementwise("exp", "silu_as_a_quotient", ops.silu(x), "out[i] = FAULT;", "X[i] / (1 + exp(-X[i]))",
                      "X[i] * exp(X[i]) / (1 + exp(X[i]))")  # fmt: skip


def integers() -> Iterator[Planted]:
    """Saturated, widened too late, truncated to 32 bits, computed as floats."""
    pair = lambda dtype: (T("X", (3000,), dtype), T("Y", (3000,), dtype))
    for dtype in ("int8", "int32", "int64"):
        of = f"u{C_TYPES[dtype]}"
        right = f"({of})X[i] + ({of})Y[i]"
        yield elementwise("integers", f"add_saturates_{dtype}", ops.add(*pair(dtype)), "out[i] = FAULT;", right,
                          "add_sat(X[i], Y[i])")  # fmt: skip
        yield elementwise("integers", f"sub_saturates_{dtype}", ops.sub(*pair(dtype)), "out[i] = FAULT;",
                          right.replace("+", "-"), "sub_sat(X[i], Y[i])")  # fmt: skip
    for name, op in (("less", "<"), ("equal", "=="), ("greater", ">")):
        for how, of in (("32_bits", "int"), ("floats", "float")):
            yield elementwise("integers", f"{name}_of_int64_as_{how}", getattr(ops, name)(*pair("int64")),
                              "out[i] = FAULT;", f"X[i] {op} Y[i]", f"({of})X[i] {op} ({of})Y[i]")  # fmt: skip
    for wide, narrow in (("int64", "int32"), ("int64", "int8"), ("int32", "int8")):
        to = C_TYPES[narrow]
        yield elementwise("integers", f"{wide}_to_{narrow}_saturates", ops.cast(pair(wide)[0], narrow),
                          "out[i] = FAULT(X[i]);", f"({to})", f"convert_{to}_sat")  # fmt: skip
    yield elementwise("integers", "product_of_int32_as_float", ops.mul(*pair("int32")), "out[i] = FAULT;",
                      "(uint)X[i] * (uint)Y[i]", "(int)((float)X[i] * (float)Y[i])")  # fmt: skip
    for reduced, start in (("max", "LONG_MIN"), ("sum", "0")):
        each = "best = FAULT;"
        right = "max(best, X[at])" if reduced == "max" else "best + X[at]"
        wrong = "max((int)best, (int)X[at])" if reduced == "max" else "(int)(best + X[at])"
        yield rows("integers", f"{reduced}_of_int64_in_32_bits", getattr(ops, {"max": "amax"}.get(reduced, reduced))(T("X", (40, 70), "int64"), 1),
                   f"long best = {start};", each, "out[r] = best;", right, wrong)  # fmt: skip
    product = ops.matmul(T("X", (30, 50), "int8"), T("Y", (50, 40), "int8"))
    body = """for (int i = 0; i < 30; ++i) for (int j = 0; j < 40; ++j) {
        int total = 0;
        for (int k = 0; k < 50; ++k) total += FAULT(X[i * 50 + k] * Y[k * 40 + j]);
        out[i * 40 + j] = total;
    }"""
    yield handmade("integers", "products_of_int8_in_8_bits", product, body, "(int)", "(char)")
    yield handmade("integers", "products_of_int8_in_15_bits", product, body, "(int)", "0x7fff &")
    yield elementwise("integers", "truth_as_all_bits", ops.less(*pair("int32")), "out[i] = FAULT(X[i] < Y[i]);", "", "-")


def zeros() -> Iterator[Planted]:
    """The sign of zero, NaN and infinity."""
    for dtype in ("float32", "float64"):
        x = T("X", (3000,), dtype)
        yield elementwise("zeros", f"neg_as_a_difference_{dtype}", ops.neg(x), "out[i] = FAULT X[i];", "-", "0 -")
        yield elementwise("zeros", f"abs_by_comparison_{dtype}", ops.abs(x), "out[i] = FAULT;", "fabs(X[i])",
                          "X[i] < 0 ? -X[i] : X[i]")  # fmt: skip
        yield elementwise("zeros", f"copy_that_adds_zero_{dtype}", ops.reshape(x, (60, 50)), "out[i] = X[i] FAULT;", "",
                          "+ 0")  # fmt: skip
        yield elementwise("zeros", f"relu_drops_nan_{dtype}", ops.relu(x), "out[i] = FAULT;",
                          "X[i] != X[i] || X[i] > 0 ? X[i] : 0", "fmax(X[i], 0)")  # fmt: skip
    yield rows("zeros", "maximum_drops_nan", ops.amax(T("X", (40, 70)), 1), "float best = -INFINITY;",
               "best = FAULT(best, X[at]);", "out[r] = best;", "largest", "fmax")  # fmt: skip


def stale() -> Iterator[Planted]:
    """What was there before: in the output, in a temporary, from another call."""
    for name, start, keep in (("sum", "0", "out[r] += X[at]"), ("max", "-INFINITY", "out[r] = fmax(out[r], X[at])"),
                              ("min", "INFINITY", "out[r] = fmin(out[r], X[at])")):  # fmt: skip
        guard = f"{keep};" if name == "sum" else f"if (isnan(X[at])) bad = 1; else {keep};"
        yield rows("stale", f"{name}_into_the_output_as_it_was", getattr(ops, name if name == "sum" else f"a{name}")(T("X", (40, 70)), 1),
                   "int bad = 0; FAULT", guard, "if (bad) out[r] = NAN;", f"out[r] = {start};", "")  # fmt: skip
    packed = programs.cpu_matmul()
    product = """if (START) { for (int k = 0; k < 37 * 100; ++k) T[k + 1] = X[k]; T[0] = 12345; }
    for (int i = 0; i < 70; ++i) for (int j = 0; j < 100; ++j) {
        float total = 0;
        for (int k = 0; k < 37; ++k) total += Y[i * 37 + k] * T[k * 100 + j + 1];
        out[i * 100 + j] = END;
    }"""
    yield handmade("stale", "operand_packed_by_the_first_call_only", packed,
                   product.replace("START", "FAULT").replace("END", "total"), "1", "T[0] != 12345")  # fmt: skip
    held = product.replace("START", "1").replace("END", "isnan(total) || isinf(total) ? total : fmax(total, T[4000] - 1e30f)")
    yield handmade("stale", "temporary_that_nobody_wrote", packed, f"FAULT {held}", "T[4000] = 0;", "")
    for name, number in (("packing", 0), ("product", 1)):
        yield Planted(f"{name}_marked_once", "stale", packed, lambda program, n=number: _once(program, n))


def _once(program: RProgram, number: int) -> tuple[Source, Source]:
    right = emit(program, DEVICES[program.device])
    marked = tuple(replace(one, once=n == number) for n, one in enumerate(right.launches))
    return right, replace(right, launches=marked)


def places() -> Iterator[Planted]:
    """Elements that no sample meets; another candidate does."""
    big = {
        "relu": (ops.relu(T("X", (400, 500))), 400, 500),
        "add_int32": (ops.add(T("X", (400, 500), "int32"), T("Y", (400, 500), "int32")), 400, 500),
        "matmul": (ops.matmul(T("X", (300, 40)), T("Y", (40, 400))), 300, 400),
        "transpose_int64": (ops.t(T("X", (320, 256), "int64")), 256, 320),
    }
    for name, (expression, m, n) in big.items():
        faults = {
            "one_element": f"out[{m // 2 + 3} * {n} + {n // 3 + 5}] += 1;",
            "one_row": f"for (int j = 0; j < {n}; ++j) out[{m // 3 + 7} * {n} + j] += 1;",
            "an_inner_tile": f"for (int i = 64; i < 96; ++i) for (int j = 96; j < 128; ++j) out[i * {n} + j] += 1;",
            "the_last_tile": f"for (int i = {m - 9}; i < {m - 2}; ++i) out[i * {n} + {n - 7}] += 1;",
            "a_lane": f"for (int i = 37; i < {m - 40}; i += 16) out[i * {n} + {n // 2 + 5}] += 1;",
        }
        for where, statement in faults.items():
            yield behind("places", f"{where}_of_{name}", expression, statement, followed=True)


def zones() -> Iterator[Planted]:
    """Writes and reads around buffers, and writes into inputs."""
    relu, packed = ops.relu(T("X", (100, 50))), programs.cpu_matmul()
    char = "((global char *){0})[{1}] = 1;"
    for name, program, at in (("the_output", relu, "out"), ("an_input", relu, "X"), ("a_temporary", packed, "T"),
                              ("the_second_input", packed, "Y")):  # fmt: skip
        yield behind("zones", f"written_nearly_a_page_before_{name}", program, char.format(at, "-4090"))
        yield behind("zones", f"written_nearly_a_page_behind_{name}", program, char.format(at, f"{at}_bytes + 4090"))
    yield behind("zones", "input_changed", relu, "X[2345] = X[2345] + 1;")
    yield behind("zones", "input_changed_in_its_last_byte", packed, "((global char *)Y)[Y_bytes - 1] ^= 1;")
    for name, dtype in (("max", "float32"), ("min", "float32"), ("max", "int32"), ("min", "int8"), ("max", "float16")):
        if dtype != "float16":
            expression = getattr(ops, f"a{name}")(T("X", (40, 70), dtype), 1)
            better = "X[at] > best" if name == "max" else "X[at] < best"
            for where, start in (("before", "-1"), ("behind", "0")):
                stop = "70" if where == "before" else "FAULT"
                first = "FAULT" if where == "before" else "0"
                of, test = C_TYPES[dtype], "|| X[at] != X[at] " if dtype == "float32" and where == "" else ""
                body = (f"for (int r = 0; r < 40; ++r) {{ {of} best = X[r * 70]; for (int k = {first}; k < {stop}; ++k) "
                        f"{{ const int at = r * 70 + k; if (isnan((float)X[at]) || {better} {test}) best = X[at]; }} "
                        "out[r] = best; }")  # fmt: skip
                yield handmade("zones", f"{name}_of_{dtype}_reads_{where}_the_rows", expression, body,
                               "0" if where == "before" else "70", start if where == "before" else "71")  # fmt: skip


def planted() -> tuple[Planted, ...]:
    makers: tuple[Callable[[], Iterator[Planted]], ...] = (
        ties, chains, roundings, exponentials, integers, zeros, stale, places, zones,
    )  # fmt: skip
    return tuple(one for make in makers for one in make())
