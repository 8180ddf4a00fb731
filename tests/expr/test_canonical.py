"""Stages and their canonical form compute what the expression says."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.implicit_gemm import implicit_gemm
from rollergen.expr.inner_sums import sums_inside
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.packing import Prepared
from rollergen.expr.stages import cut
from tests.expr.graphs import run

quick = settings(max_examples=40, deadline=None)


def small_integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


def by_image(op):
    return implicit_gemm(op, by_image=True)


def merged_inside(op):
    prepared = sums_inside(op)
    made = prepared and (by_image(prepared.op) or implicit_gemm(prepared.op))
    return made and replace(prepared, op=made)


def graph_of(graph, variant):
    """The graph with its tensor ops in a variant, those that have it, and what this copies beforehand."""
    ops, made = [], []
    for op in graph.tensor_ops:
        found = variant(op) or op
        copies = found.copies if isinstance(found, Prepared) else ()
        ops += [*copies, found.op if isinstance(found, Prepared) else found]
        made += [copy.output for copy in copies]
    return type(graph)(graph.inputs, graph.outputs, (*graph.temporaries, *made), tuple(ops))


def agree(expression, *arrays, **arguments):
    """The stages of `expression`, cut and canonical (with all stored that may be, too), and the variants of contractions
    give its definition's values."""
    expected = expression.evaluate(*arrays)
    cut_graph, graph = cut(expression, **arguments), canonicalize(expression, **arguments)
    others = [graph_of(graph, variant) for variant in (implicit_gemm, by_image, sums_inside, merged_inside)]
    most = canonicalize(expression, **arguments, seconds=lambda some, at_most: -len(some.tensor_ops), bare=True)
    for one in (cut_graph, graph, most, *others):
        (found,) = run(one, arrays).values()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    return graph


def axes(graph, position=0):
    return [(a.name, a.extent, a.role) for a in graph.tensor_ops[position].axes]


def first_largest(a, b):
    larger = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return rg.select(larger, a[0], b[0]), rg.select(larger, a[1], b[1])


def place_of_the_largest(x):
    k = rg.reduce_axis("k", 1)
    element = lambda i, j: rg.reduce(first_largest, (-math.inf, 2**31 - 1), (x[i, k, j], k), axis=k)[1]
    return rg.compute((x.shape[0], x.shape[2]), element)


x3 = rg.tensor("x", (4, 1, 6))
OVER_ONE = {
    "sum": lambda: rg.ops.sum(x3, 1),
    "sum of several axes": lambda: rg.ops.sum(rg.tensor("x", (1, 4, 1)), (0, 2)),
    "max": lambda: rg.ops.amax(x3, 1),
    "min": lambda: rg.ops.amin(x3, 1),
    "prod": lambda: rg.ops.prod(x3, 1),
    "argmax": lambda: rg.ops.argmax(x3, 1),
    "tuples": lambda: place_of_the_largest(x3),
    "mean": lambda: rg.ops.mean(x3, 1),
    "var": lambda: rg.ops.var(x3, 1, correction=0),
    "logsumexp": lambda: rg.ops.logsumexp(x3, 1),
    "softmax": lambda: rg.ops.softmax(x3, 1),
    "layer_norm": lambda: rg.ops.layer_norm(rg.tensor("x", (4, 6, 1)), 1),
    "max_pool2d": lambda: rg.ops.max_pool2d(rg.tensor("x", (1, 2, 5, 5)), 1, stride=2),
    "avg_pool2d": lambda: rg.ops.avg_pool2d(rg.tensor("x", (1, 2, 5, 5)), 1, stride=2),
    "matmul": lambda: rg.ops.matmul(rg.tensor("a", (4, 1)), rg.tensor("b", (1, 6))),
    "einsum": lambda: rg.einsum("bik,bkj->bij", rg.tensor("a", (2, 3, 1)), rg.tensor("b", (2, 1, 4))),
    "conv2d": lambda: rg.ops.conv2d(rg.tensor("x", (2, 1, 4, 4)), rg.tensor("w", (3, 1, 1, 1)), stride=3),
    "depthwise_conv2d": lambda: rg.ops.depthwise_conv2d(rg.tensor("x", (2, 3, 4, 4)), rg.tensor("w", (3, 1, 1, 1))),
}


@pytest.mark.parametrize("name", OVER_ONE)
def test_a_reduction_over_axes_of_extent_one_is_none(name):
    """NaN, infinities, either zero and the result's dtype are the definition's."""
    expression = OVER_ONE[name]()
    given_tensors = canonicalize(expression).inputs
    arrays = [np.resize([1.5, -0.0, np.nan, -np.inf, np.inf, 0.0, -2.0], one.shape) for one in given_tensors]
    with np.errstate(all="ignore"):
        graph = agree(expression, *arrays)
    assert all(not op.reductions for op in graph.tensor_ops)
    assert graph.outputs[0].dtype == expression.dtype


def test_what_is_reduced_over_longer_axes_too_has_those_only():
    x, w = rg.tensor("x", (2, 3, 4, 4)), rg.tensor("w", (5, 3, 1, 1))
    graph = agree(rg.ops.conv2d(x, w), small_integers(x.shape), small_integers(w.shape, 1))
    assert [(name, extent) for name, extent, role in axes(graph) if role == "reduce"] == [("c", 3)]


@pytest.mark.parametrize("extents", [(1,), (1, 1), (3,), (2, 2)])
def test_a_sum_of_negative_zeros_is_zero_however_many_there_are(extents):
    x = rg.tensor("x", (2, *extents))
    total = rg.ops.div(rg.tensor("one", (2,)), rg.ops.sum(x, tuple(range(1, x.ndim))))
    zeros, ones = np.full(x.shape, -0.0, np.float32), np.ones(2, np.float32)
    with np.errstate(divide="ignore"):
        assert (total.evaluate(ones, zeros) == np.inf).all()
        agree(total, ones, zeros)
    assert (rg.build(total, "v100", profile=False, cache=False).interpret(ones, zeros) == np.inf).all()


pads = st.one_of(st.sampled_from(["same", "valid"]), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@quick
@given(
    n=st.integers(1, 3), groups=st.integers(1, 3), per=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)), dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=pads,
)  # fmt: skip
def test_convolutions_of_any_geometry_equal_their_definition(n, groups, per, size, kernel, stride, dilation, padding):
    x = rg.tensor("x", (n, groups * per[0], *size))
    w = rg.tensor("w", (groups * per[1], per[0], *kernel))
    y = rg.ops.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    agree(y, small_integers(x.shape), small_integers(w.shape, 1))


@st.composite
def chains(draw):
    """(expression, inputs): a random chain of views, elementwise steps, reductions and contractions."""
    count = iter(range(100))
    shapes = []

    def given_tensor(shape):
        shapes.append(shape)
        return rg.tensor(f"T{next(count)}", shape)

    t = given_tensor(tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(1, 5))):
        t = STEPS[draw(st.sampled_from(sorted(STEPS)))](draw, t, given_tensor)
    return t, shapes


def _pad(draw, t, _):
    d, before, after = draw(st.integers(0, t.ndim - 1)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    shape = (*t.shape[:d], t.shape[d] + before + after, *t.shape[d + 1 :])
    fill = draw(st.sampled_from([0.0, 1.0]))

    def element(*i):
        inside = (i[d] >= before) & (i[d] < before + t.shape[d])
        return rg.select(inside, t[(*i[:d], i[d] - before, *i[d + 1 :])], fill)

    return rg.compute(shape, element)


def _flatten(draw, t, _):
    total = int(np.prod(t.shape))
    inner = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))

    def element(i, j):
        rest, at = i * inner + j, []
        for extent in reversed(t.shape):
            at.append(rest % extent)
            rest = rest // extent
        return t[tuple(reversed(at))]

    return rg.compute((total // inner, inner), element)


def _upsample(draw, t, _):
    d, by = draw(st.integers(0, t.ndim - 1)), draw(st.integers(2, 3))
    shape = (*t.shape[:d], t.shape[d] * by, *t.shape[d + 1 :])
    return rg.compute(shape, lambda *i: t[(*i[:d], i[d] // by, *i[d + 1 :])])


def _contract(draw, t, given_tensor):
    letters = "abcdef"[: t.ndim]
    k = draw(st.sampled_from(letters))
    other = given_tensor((t.shape[letters.index(k)], draw(st.integers(1, 4))))
    return rg.einsum(f"{letters},{k}z->{letters.replace(k, '')}z", t, other)


def _softmax(draw, t, _):
    return rg.ops.softmax(t, axis=draw(st.integers(0, t.ndim - 1)))


def _reduce(draw, t, _):
    chosen = sorted(draw(st.sets(st.integers(0, t.ndim - 1), min_size=1)))
    operation = draw(st.sampled_from([rg.ops.sum, rg.ops.amax, rg.ops.mean]))
    return operation(t, axis=tuple(chosen), keepdims=len(chosen) == t.ndim or draw(st.booleans()))


STEPS = {
    "transpose": lambda draw, t, _: rg.ops.permute(t, draw(st.permutations(range(t.ndim)))),
    "relu": lambda draw, t, _: rg.ops.relu(t),
    "add": lambda draw, t, given_tensor: rg.ops.add(t, given_tensor(t.shape[draw(st.integers(0, t.ndim - 1)) :])),
    "with itself": lambda draw, t, _: rg.ops.mul(t, rg.ops.relu(t)),
    "pad": _pad,
    "flatten": _flatten,
    "upsample": _upsample,
    "contract": _contract,
    "reduce": _reduce,
    "softmax": _softmax,
}


@settings(max_examples=200, deadline=None)
@given(chains(), st.sampled_from([3, 65536]))
def test_random_chains_of_operators_equal_their_definition(chain, limit):
    expression, shapes = chain
    agree(expression, *(small_integers(s, n) for n, s in enumerate(shapes)), rows=RowLimits(limit))


@pytest.mark.parametrize("how", [{"padding": 1}, {"stride": 2}, {"padding": 2, "dilation": 2}, {"groups": 2}])
@pytest.mark.parametrize("channels, in_lines", [(32, True), (48, True), (24, False), (16, False)])
def test_many_channels_are_summed_line_by_line(channels, in_lines, how):
    """All taps of the 16 of float64 that a line of 128 bytes has, before the next line."""
    groups = how.get("groups", 1)
    image, weights = (2, channels * groups, 5, 6), (4 * groups, channels, 3, 3)
    tensors = rg.tensor("x", image, "float64"), rg.tensor("w", weights, "float64")
    graph = agree(rg.ops.conv2d(*tensors, **how), small_integers(image), small_integers(weights, 1))
    made = sums_inside(graph.tensor_ops[0]).op
    (indices,) = [load.indices for load in made.body_loads() if load.buffer.name == "w_turned"]
    reduced = {axis.name for axis in made.of_role("reduce")}
    summed = [str(index) for index in indices if index.axes() <= reduced]
    assert summed == (["c", "ky", "kx", "c_1"] if in_lines else ["ky", "kx", "c"])
