"""`evaluate` against NumPy written independently: loops, einsum, matmul."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr import reference
from rollergen.expr.reference import evaluate_at

quick = settings(max_examples=40, deadline=None)
rng = np.random.default_rng(7)


def given_arrays(**shapes):
    """Tensors and small-integer arrays (exact in every dtype) of these names and shapes."""
    tensors = [rg.tensor(name, shape) for name, shape in shapes.items()]
    return tensors, [rng.integers(-4, 5, shape).astype(float) for shape in shapes.values()]


@st.composite
def subscripts(draw):
    operands = draw(st.lists(st.text("abcd", min_size=1, max_size=3), min_size=1, max_size=3))
    letters = sorted(set("".join(operands)))
    output = draw(st.permutations(draw(st.lists(st.sampled_from(letters), unique=True))))
    return operands, "".join(output)


@quick
@given(subscripts(), st.booleans())
def test_einsum_equals_numpys(parts, explicit):
    operands, output = parts
    sizes = dict(zip("abcd", (2, 3, 4, 5), strict=True))
    tensors, arrays = given_arrays(**{f"T{n}": tuple(sizes[c] for c in o) for n, o in enumerate(operands)})
    text = ",".join(operands) + ("->" + output if explicit else "")
    np.testing.assert_array_equal(rg.einsum(text, *tensors).evaluate(*arrays), np.einsum(text, *arrays))


ELLIPSES = {
    "...ij,...jk->...ik": [(2, 3, 4, 5), (5, 6)],
    "...ij,...jk": [(2, 1, 4, 5), (3, 5, 6)],
    "i...,i...->...i": [(3, 2, 4), (3, 4)],
    "a...a->a...": [(3, 4, 3)],
    "...,...->...": [(3,), (2, 3)],
    "i...->...": [(4,)],
}


@pytest.mark.parametrize("text", ELLIPSES)
def test_an_ellipsis_broadcasts_as_numpys(text):
    tensors, arrays = given_arrays(**{f"T{n}": shape for n, shape in enumerate(ELLIPSES[text])})
    np.testing.assert_array_equal(rg.einsum(text, *tensors).evaluate(*arrays), np.einsum(text, *arrays))


def convolution(x, w, stride, before, out, dilation, groups):
    """The definition of a convolution as a loop over outputs and taps."""
    n, _, h, width = x.shape
    f, channels, kh, kw = w.shape
    y = np.zeros((n, f, *out))
    for b, o, oy, ox in np.ndindex(y.shape):
        for c, ky, kx in np.ndindex(channels, kh, kw):
            iy, ix = oy * stride[0] + ky * dilation[0] - before[0], ox * stride[1] + kx * dilation[1] - before[1]
            if 0 <= iy < h and 0 <= ix < width:
                y[b, o, oy, ox] += x[b, o // (f // groups) * channels + c, iy, ix] * w[o, c, ky, kx]
    return y


@pytest.mark.parametrize(
    ("arguments", "before", "out"),
    [
        ({}, (0, 0), (5, 6)),
        ({"padding": (1, 0), "stride": (2, 3)}, (1, 0), (4, 2)),
        ({"padding": "same", "stride": 2}, (1, 0), (4, 4)),  # 7 rows: 2 zeros, one before; 8 columns: 1 zero, after
        ({"padding": 2, "dilation": (2, 1), "groups": 2}, (2, 2), (7, 10)),
        ({"padding": "valid", "groups": 4}, (0, 0), (5, 6)),
    ],
)
def test_convolution_equals_a_loop_over_its_taps(arguments, before, out):
    groups = arguments.get("groups", 1)
    pair = lambda v: (v, v) if isinstance(v, int) else v
    (x, w), (a, b) = given_arrays(x=(2, 4, 7, 8), w=(4, 4 // groups, 3, 3))
    y = rg.ops.conv2d(x, w, **arguments)
    stride, dilation = (pair(arguments.get(key, 1)) for key in ("stride", "dilation"))
    np.testing.assert_array_equal(y.evaluate(a, b), convolution(a, b, stride, before, out, dilation, groups))


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul_with_transposes_equals_numpys(transposed):
    (a, b), (x, y) = given_arrays(A=(5, 3), B=(3, 4))
    ta, tb = transposed
    swapped = [rg.tensor(t.name, t.shape[::-1]) if f else t for t, f in zip((a, b), transposed, strict=True)]
    c = rg.ops.matmul(*swapped, transpose_a=ta, transpose_b=tb)
    np.testing.assert_array_equal(c.evaluate(x.T if ta else x, y.T if tb else y), x @ y)
    batched = [rg.tensor(t.name, (2, 6, *t.shape)) for t in swapped]
    xs, ys = (rng.integers(-4, 5, t.shape).astype(float) for t in batched)
    expected = (np.swapaxes(xs, -1, -2) if ta else xs) @ (np.swapaxes(ys, -1, -2) if tb else ys)
    product = rg.ops.batch_matmul(*batched, transpose_a=ta, transpose_b=tb)
    np.testing.assert_array_equal(product.evaluate(xs, ys), expected)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_maxima_and_means_equal_numpys(axis, keepdims):
    (x,), (a,) = given_arrays(x=(3, 4, 5))
    for operator, expected in ((rg.ops.sum, np.sum), (rg.ops.amax, np.max), (rg.ops.mean, np.mean)):
        found = operator(x, axis=axis, keepdims=keepdims).evaluate(a)
        np.testing.assert_allclose(found, expected(a, axis=axis, keepdims=keepdims), rtol=1e-15)


def test_a_sum_over_an_axis_that_does_not_occur_repeats_its_value():
    (x,), (a,) = given_arrays(x=(3,))
    k, n = rg.reduce_axis("k", 4), rg.reduce_axis("n", 3)
    np.testing.assert_array_equal(rg.compute((3,), lambda i: rg.sum(x[i], axis=k)).evaluate(a), 4 * a)
    np.testing.assert_array_equal(rg.compute((), lambda: rg.sum(x[n], axis=(k, n))).evaluate(a), 4 * a.sum())


def test_elementwise_operators_equal_numpys():
    (x, b), (a, c) = given_arrays(x=(3, 4, 5), b=(4, 1))
    np.testing.assert_array_equal(rg.ops.add(x, b).evaluate(a, c), a + c)
    np.testing.assert_array_equal(rg.ops.mul(b, x).evaluate(c, a), a * c)
    np.testing.assert_array_equal(rg.ops.relu(x).evaluate(a), np.maximum(a, 0))
    np.testing.assert_array_equal(rg.ops.exp(x).evaluate(a), np.exp(a))
    np.testing.assert_array_equal(rg.ops.permute(x, (2, 0, 1)).evaluate(a), a.transpose(2, 0, 1))
    np.testing.assert_array_equal(rg.ops.permute(x, (-1, 0, 1)).evaluate(a), a.transpose(2, 0, 1))
    bias = rg.tensor("v", (5,))
    np.testing.assert_array_equal(rg.ops.bias_add(x, bias, axis=-1).evaluate(a, a[0, 0]), a + a[0, 0])
    np.testing.assert_array_equal(
        rg.ops.bias_add(x, rg.tensor("v", (4,))).evaluate(a, c[:, 0]), a + c[:, 0][None, :, None]
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_equals_its_formula_and_survives_large_values(axis):
    (x,), (a,) = given_arrays(x=(3, 4, 5))
    a = a * 300
    powers = np.exp(a - a.max(axis=axis, keepdims=True))
    np.testing.assert_allclose(
        rg.ops.softmax(x, axis=axis).evaluate(a), powers / powers.sum(axis=axis, keepdims=True), rtol=1e-14
    )


SCALAR = {
    "exp": (lambda v: rg.exp(v), math.exp), "log": (lambda v: rg.log(v), math.log),
    "sqrt": (lambda v: rg.sqrt(v), math.sqrt), "rsqrt": (lambda v: rg.rsqrt(v), lambda v: 1 / math.sqrt(v)),
    "tanh": (lambda v: rg.tanh(v), math.tanh), "erf": (lambda v: rg.erf(v), math.erf),
    "abs": (lambda v: rg.abs(v - 2), lambda v: abs(v - 2)),
    "minimum": (lambda v: rg.minimum(v, 1), lambda v: min(v, 1)),
    "pow": (lambda v: rg.pow(v, 1.5), lambda v: v**1.5), "square": (lambda v: v**2, lambda v: v * v),
    "division": (lambda v: 1 / v, lambda v: 1 / v), "negation": (lambda v: -v, lambda v: -v),
    "truncation": (lambda v: rg.cast(rg.cast(-v, "int32"), "float32"), lambda v: -math.floor(v)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALAR)
def test_scalar_functions_equal_pythons(name):
    ours, pythons = SCALAR[name]
    x, values = rg.tensor("x", (4,)), [0.25, 1.0, 1.75, 3.5]
    found = rg.compute((4,), lambda i: ours(x[i])).evaluate(values)
    np.testing.assert_allclose(found, [pythons(v) for v in values], rtol=1e-15)


def test_integers_are_computed_in_int64_and_wrap_where_cast():
    x = rg.tensor("x", (2,), "int8")
    assert rg.ops.sum(x).evaluate(np.array([127, 127], np.int8)) == 254
    wrapped = rg.compute((2,), lambda i: rg.cast(rg.cast(x[i], "int32") + 1, "int8"))
    assert wrapped.evaluate([127, 1]).tolist() == [-128, 2]


def test_bfloat16_arrays_are_accepted():
    x = rg.tensor("x", (2,), "bfloat16")
    assert rg.ops.sum(x).evaluate(np.array([1, 2], ml_dtypes.bfloat16)) == 3


def test_welford_in_one_tuple_reduction_gives_mean_and_variance():
    (x,), (a,) = given_arrays(x=(3, 37))
    k = rg.reduce_axis("k", 37)

    def joined(p, q):
        (n, mean, m2), (o, other, s2) = p, q
        total, delta = n + o, other - mean
        safe = rg.maximum(total, 1.0)
        return total, mean + delta * o / safe, m2 + s2 + delta * delta * n * o / safe

    parts = lambda i: rg.reduce(joined, (0.0, 0.0, 0.0), (rg.cast(1.0, "float32"), x[i, k], rg.cast(0.0, "float32")), k)
    np.testing.assert_allclose(rg.compute((3,), lambda i: parts(i)[1]).evaluate(a), a.mean(axis=1))
    np.testing.assert_allclose(rg.compute((3,), lambda i: parts(i)[2] / 37).evaluate(a), a.var(axis=1))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([5, 64, 1000]))
def test_sampled_points_in_any_chunks_equal_the_whole(seed, chunk):
    tensors, arrays = given_arrays(x=(2, 4, 7, 8), w=(6, 2, 3, 3), b=(6,))
    y = rg.ops.relu(rg.ops.bias_add(rg.ops.conv2d(tensors[0], tensors[1], padding=1, groups=2), tensors[2]))
    for one, given_ in ((y, arrays), (rg.ops.softmax(rg.ops.sum(tensors[0], axis=1)), arrays[:1])):
        whole = one.evaluate(*given_)
        draw = np.random.default_rng(seed)
        scattered = tuple(draw.integers(0, extent, 9) for extent in one.shape)
        block = np.ix_(*(np.sort(draw.choice(extent, min(extent, 2), False)) for extent in one.shape))
        before = reference.CHUNK_ELEMENTS
        reference.CHUNK_ELEMENTS = chunk
        try:
            for points in (scattered, block):
                np.testing.assert_allclose(evaluate_at(one, given_, points), whole[points], rtol=1e-13)
        finally:
            reference.CHUNK_ELEMENTS = before


def test_a_block_of_a_full_size_matmul_costs_what_the_block_costs():
    a, b = rng.integers(-3, 4, (1024, 1024)).astype(float), rng.integers(-3, 4, (1024, 1024)).astype(float)
    product = rg.ops.matmul(rg.tensor("A", a.shape), rg.tensor("B", b.shape))
    rows, columns = np.r_[0:8, 1016:1024], np.r_[0:16, 1008:1024]
    found = evaluate_at(product, {"A": a, "B": b}, np.ix_(rows, columns))
    np.testing.assert_array_equal(found, a[rows] @ b[:, columns])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_wrap_around_as_numpys_do(dtype):
    given = rg.tensor("x", (64,), dtype)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 64, dtype, endpoint=True)
    x[0] = np.iinfo(dtype).min
    ops = rg.ops
    for made, want in {
        ops.mul(given, given): x * x, ops.neg(given): -x, ops.abs(given): np.abs(x), ops.sub(ops.add(given, 100), -3): x + 100 + 3,
        ops.sum(given, acc=dtype, dtype=dtype): np.add.reduce(x, dtype=dtype),
        ops.prod(given, acc=dtype, dtype=dtype): np.multiply.reduce(x, dtype=dtype),
        ops.maximum(ops.mul(given, 2), given): np.maximum(x * np.array(2, dtype), x),
    }.items():  # fmt: skip
        np.testing.assert_array_equal(made.evaluate(x), want)
