"""Integer expressions: C's truncating division gives what floor division means, without overflow."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.emit.index_code import index_code, is_wide
from rollergen.expr.index import Index

RANGES = {"i": (0, 9), "j": (-20, 15), "k": (3, 3)}


def as_c(text, values):
    """What C computes, with every int in 32 bits (OverflowError beyond) and ``long`` in 64."""

    def of(node):
        match node:
            case ast.Expression():
                return of(node.body)
            case ast.Constant():
                return node.value, False
            case ast.Name():
                wide = node.id.startswith("long_")
                return values[node.id.removeprefix("long_")], wide
            case ast.UnaryOp():
                value, wide = of(node.operand)
                return -value, wide
            case ast.Call():
                return of(node.args[0])[0], True
            case ast.BinOp():
                (a, left), (b, right) = of(node.left), of(node.right)
                wide = left or right
                match node.op:
                    case ast.Add():
                        value = a + b
                    case ast.Sub():
                        value = a - b
                    case ast.Mult():
                        value = a * b
                    case ast.Div():
                        value = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                    case ast.Mod():
                        value = abs(a) % abs(b) * (1 if a >= 0 else -1)
                if not -(2 ** (63 if wide else 31)) <= value < 2 ** (63 if wide else 31):
                    raise OverflowError(text)
                return value, wide
        raise TypeError(ast.dump(node))

    python = text.replace("(long)(", "cast(").replace("(long)", "long_").replace("L", "")
    return of(ast.parse(python, mode="eval"))[0]


@st.composite
def indices(draw, depth=2):
    total = Index.of(draw(st.integers(-60, 60)))
    for name in draw(st.lists(st.sampled_from(sorted(RANGES)), max_size=3)):
        total = total + Index.axis(name) * draw(st.integers(-70, 70))
    if depth and draw(st.booleans()):
        inner, divisor = draw(indices(depth=depth - 1)), draw(st.integers(2, 12))
        part = inner // divisor if draw(st.booleans()) else inner % divisor
        total = total + part * draw(st.integers(-5, 5))
    return total


@settings(max_examples=300, deadline=None)
@given(index=indices(), i=st.integers(0, 9), j=st.integers(-20, 15), simplified=st.booleans())
def test_c_text_has_the_value_of_the_index(index, i, j, simplified):
    values = {"i": i, "j": j, "k": 3}
    written = index.simplify(RANGES) if simplified else index
    assert as_c(index_code(written, RANGES), values) == index.evaluate(values)


@settings(max_examples=200, deadline=None)
@given(factor=st.integers(1, 2**40), divisor=st.integers(2, 2**20), i=st.integers(0, 9))
def test_offsets_beyond_two_gigabytes_are_computed_in_64_bits(factor, divisor, i):
    for index in (Index.axis("i") * factor - 5, (Index.axis("i") * factor + 7) // divisor):
        assert as_c(index_code(index, RANGES), {"i": i}) == index.evaluate({"i": i})


def test_plain_offsets_stay_plain():
    i, j = Index.axis("i"), Index.axis("j")
    ranges = {"i": (0, 9), "j": (0, 31)}
    assert index_code(i * 1024 + j, ranges) == "i*1024 + j"
    assert index_code(Index.of(37) - i * 4, ranges) == "37 - i*4"
    assert index_code((i * 32 + j) // 32, ranges) == "j/32 + i"
    assert index_code(((i * 32 + j) // 32).simplify(ranges), ranges) == "i"
    assert index_code((j - 1) // 3, ranges) == "(j + 2)/3 - 1"
    assert not is_wide(i * 2**27, ranges) and is_wide(i * 2**28, ranges)
    assert index_code(i * 2**28, ranges) == "(long)i*268435456"
