"""Axes of more than 2**31 elements: comparisons, positions and masks of 64 bits, in the words of each language."""

import re

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.emit.cuda import Cuda
from rollergen.emit.opencl import OpenCL
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.lower.expressions import Inside, position
from rollergen.lower.ir import For
from rollergen.lower.nest import Lane
from rollergen.lower.vectors import passing
from tests.agreement.readers import device

BEYOND = 2**31 + 5
i = Index.axis("i")
EXPRESSIONS = {
    "concat": lambda a: rg.ops.concat([rg.tensor("s", (100,), "int8"), a], 0),
    "pad": lambda a: rg.ops.pad(a, (5, 9)),
    "reversed": lambda a: rg.compute((BEYOND,), lambda i: a[BEYOND - 1 - i]),
    "triangle": lambda a: rg.compute((4, BEYOND), lambda r, i: rg.select(i >= r, a[i], 0)),
    "a later part": lambda a: rg.compute((9,), lambda i: rg.select(i + (BEYOND - 9) < 2**31, a[i + (BEYOND - 9)], 1)),
}


@pytest.mark.parametrize("name", ["cpu", "v100", "mi50"])
@pytest.mark.parametrize("what", EXPRESSIONS)
def test_every_device_has_programs(what, name):
    expression = EXPRESSIONS[what](rg.tensor("a", (BEYOND,), "int8"))
    spec = device(name)
    text = emit(construct(canonicalize(expression), spec, top_k=1)[0].program, spec).text
    if name == "v100":
        without = text.replace("long long", "")
        assert not re.search(r"\blong\b|\d[uU]?L\b", without)  # 32 bits where a compiler follows Windows


def test_an_index_is_a_number_of_as_many_bits_as_it_needs():
    assert rg.compute((BEYOND,), lambda i: rg.cast(i, "int64")).producer.body.dtype == "int64"
    assert position(i * 2, {"i": (0, 2**30)}).dtype == "int64"
    assert position(i * 2, {"i": (0, 2**30 - 1)}).dtype == "int32"
    k = rg.reduce_axis("k", 4)
    assert (k < 2**40).value.a.dtype == "int64" and (k < 2**20).value.a.dtype == "int32"


@pytest.mark.parametrize(("language", "word"), [(OpenCL, "long"), (Cuda, "long long")])
def test_a_loop_counts_in_64_bits_where_its_variable_passes_32(language, word):
    printer = language()
    printer._ranges = {"k": (0, 2**31), "j": (0, 2**31 - 2)}
    assert printer.block((For("k", 0, 2**31 + 1, ()),), 0)[0] == f"for ({word} k = 0; k < 2147483649; ++k) {{"
    assert printer.block((For("j", 0, 2**31 - 1, ()),), 0)[0] == "for (int j = 0; j < 2147483647; ++j) {"


def test_limits_of_lanes_are_cut_off_where_no_lane_reaches():
    """16 lanes of 32 bits compare themselves with what is left of an axis: at most 16 of it."""
    lane, ranges = Lane("lane", 16), {"i": (0, 2**28), "lane": (0, 15)}
    line = i * 16 + Index.axis("lane")
    printer = OpenCL()
    printer._ranges = ranges
    text = printer.expression(passing(ranges, line, Inside(line, None, BEYOND), lane, 32))
    assert "(int16)((int)(" in text and " < 16 ? " in text.replace("(long)", "")
