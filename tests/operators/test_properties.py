"""Operators with random arguments: the programs of all devices compute the definition, here and interpreted.

Inputs are whole numbers for which every sum is exact, so nothing is tolerated.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import ShapeError
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import assert_values, device, interpreted, run_opencl, small_integers

T, ops = rg.tensor, rg.ops
some = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
small, few = st.integers(1, 9), st.integers(1, 4)
pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


def agree(expression: Any, device_name: str) -> None:
    spec = device(device_name)
    for ranked in construct(canonicalize(expression), spec, top_k=2):
        arrays = small_integers(ranked.program)
        result, _ = interpreted(ranked.program, arrays, spec, most_blocks=40)
        assert_values(expression, ranked.program, result.outputs, arrays, result.written)
        assert_values(expression, ranked.program, run_opencl(ranked.program, arrays, spec), arrays)


def accepted(make: Any) -> Any:
    """An expression; draws that the operator refuses are no examples."""
    try:
        return make()
    except ShapeError:
        assume(False)


@st.composite
def convolutions(draw: Any) -> Any:
    groups, channels, filters, batch = draw(st.integers(1, 3)), draw(few), draw(few), draw(st.integers(1, 2))
    size, kernel = (draw(st.integers(1, 12)), draw(st.integers(1, 12))), draw(pair)
    settings_ = {"stride": draw(pair), "dilation": draw(pair), "groups": groups}
    x = T("x", (batch, channels * groups, *size))
    padding = draw(st.one_of(st.integers(0, 3), st.sampled_from(["same", "valid"])))
    if draw(st.booleans()):
        w = T("w", (filters * groups, channels, *kernel))
        y = accepted(lambda: ops.conv2d(x, w, padding=padding, **settings_))
    else:
        w = T("w", (channels * groups, filters, *kernel))
        pads = padding if isinstance(padding, int) else 0
        y = accepted(lambda: ops.conv_transpose2d(x, w, padding=pads, **settings_))
    return ops.relu(ops.bias_add(y, T("b", (filters * groups,)))) if draw(st.booleans()) else y


@st.composite
def poolings(draw: Any) -> Any:
    x = T("x", (draw(few), draw(few), draw(st.integers(2, 15)), draw(st.integers(2, 15))))
    window = {"kernel_size": draw(pair), "stride": draw(pair), "padding": draw(st.integers(0, 1))}
    ceil = draw(st.booleans())
    if draw(st.booleans()):
        return accepted(lambda: ops.max_pool2d(x, **window, ceil_mode=ceil))
    return accepted(lambda: ops.avg_pool2d(x, **window, ceil_mode=ceil, divisor_override=2))


@st.composite
def reductions(draw: Any) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 23), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    name = draw(st.sampled_from(["sum", "amax", "amin", "argmax", "argmin"]))
    dtype = draw(st.sampled_from(["float32", "int32", "int8", "float64"]))
    return getattr(ops, name)(T("x", shape, dtype), axes, draw(st.booleans()))


@st.composite
def views(draw: Any) -> Any:
    shape = tuple(draw(st.lists(st.integers(2, 9), min_size=2, max_size=3)))
    x: Any = T("x", shape)
    for step in draw(st.lists(st.sampled_from(["transpose", "slice", "pad", "reshape", "concat", "map"]), max_size=3)):
        if step == "transpose":
            x = ops.permute(x, draw(st.permutations(range(x.ndim))))
        elif step == "slice":
            x = ops.getitem(x, (..., slice(draw(st.integers(0, 1)), None, draw(st.sampled_from([1, 2, -1])))))
        elif step == "pad":
            mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
            x = accepted(lambda x=x, mode=mode: ops.pad(x, (1, 2) * x.ndim, mode))
        elif step == "reshape":
            x = ops.reshape(x, (x.shape[-1], -1))
        elif step == "concat":
            x = ops.concat([x, ops.neg(x)], draw(st.integers(0, x.ndim - 1)))
        else:
            x = ops.maximum(ops.mul(x, 2.0), 0.5)
    return ops.sum(x, -1) if draw(st.booleans()) else ops.add(x, 1.0)


@some
@given(convolutions(), st.sampled_from(["cpu", "v100", "mi50", "ipu"]))
def test_convolutions(expression, device_name):
    agree(expression, device_name)


@some
@given(poolings(), st.sampled_from(["cpu", "v100", "mi50", "ipu"]))
def test_poolings(expression, device_name):
    agree(expression, device_name)


@some
@given(reductions(), st.sampled_from(["cpu", "v100", "mi50", "ipu"]))
def test_reductions(expression, device_name):
    agree(expression, device_name)


@some
@given(views(), st.sampled_from(["cpu", "v100", "mi50", "ipu"]))
def test_views(expression, device_name):
    agree(expression, device_name)


@some
@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from(["cpu", "v100", "mi50", "ipu"]))
def test_a_truth_value_of_every_shape_chooses(rows, columns, device_name):
    keep, x = T("keep", (rows, columns), "bool"), T("x", (columns,))
    agree(ops.where(keep, x, ops.mul(x, 2.0)), device_name)
