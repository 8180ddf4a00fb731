"""Powers of two where instructions take fractions and scale: as near as without them, by the same text elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.lower import maths
from tests.agreement.chains import program
from tests.lower.devices import AVX512
from tests.program import hand_devices

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
GUARD = "#if defined(__AVX512F__) && defined(__AVX512DQ__)"
UNIT = 2.0**-24
KERNEL = """
kernel __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1)))
void powers(global const float *x, global float *y)
{
    const int at = get_group_id(0)*16;
    vstore16(FUNCTION(vload16(0, x + at)), 0, y + at);
}
"""
SOFTMAX = canonicalize(rg.ops.softmax(rg.tensor("x", (64, 256)), axis=-1))
POWERS = "exp2_below_f32x16", "exp_below_f32x16"
"""Of attention and of softmax."""


def text_of(name):
    if name.startswith("exp2"):
        q, k, v = (rg.tensor(name, (1, 2, 64, 32)) for name in "qkv")
        spec = replace(hand_devices.AVX512, targets=AVX512.targets)
        made = program(rg.ops.scaled_dot_product_attention(q, k, v), spec, (2, 32, 8, 8))
    else:
        made, spec = construct(SOFTMAX, AVX512, top_k=1)[0].program, AVX512
    text = emit(made, spec).text
    return text[: text.index("/* ")] + KERNEL.replace("FUNCTION", name)


def powers(text, x):
    runtime = OpenCLRuntime()
    kernel, y = runtime.compile(text).kernel("powers"), np.empty_like(x)
    runtime.set_arguments(kernel, [runtime.wrap(x), runtime.wrap(y)])
    runtime.launch(kernel, x.size // 16, 1)
    runtime.finish()
    return y


def off(y, x, name):
    """The largest error in units of 2^-24, less what rounding x log2(e) may cost."""
    wide = x.astype(np.longdouble)
    exact = np.exp2(wide) if name.startswith("exp2") else np.exp(wide)
    rounding = 0 if name.startswith("exp2") else np.abs(wide) * maths.LOG2E
    return float((np.abs(y - exact) / exact / UNIT - rounding).max())


def sample(name):
    """Of all numbers from the least whose power is normal up to 0 those of some last bits, and more near 0."""
    least = 126.0 if name.startswith("exp2") else 87.0
    bits = np.arange(0, np.float32(least).view(np.int32), 1021, dtype=np.int32)
    near = np.arange(2**18, dtype=np.float32) / 2**18
    every = -np.concatenate([bits.view(np.float32), near])
    return every[: len(every) // 16 * 16]


@pytest.mark.parametrize("way", ["at once", "otherwise"])
@pytest.mark.parametrize("name", POWERS)
def test_powers_by_fractions_err_as_little_as_others(name, way):
    text = text_of(name)
    assert text.count(GUARD) == 2
    if way == "otherwise":
        text = text.replace(GUARD, "#if 0")
    x = sample(name)
    assert off(powers(text, x), x, name) < (2.82 if name.startswith("exp2") else 1.8)


@pytest.mark.parametrize("way", ["at once", "otherwise"])
@pytest.mark.parametrize("name", POWERS)
def test_powers_of_infinities_and_of_what_is_no_number(name, way):
    text = text_of(name) if way == "at once" else text_of(name).replace(GUARD, "#if 0")
    least = np.finfo(np.float32).min
    x = np.array([0.0, -0.0, -np.inf, np.nan, least, -1e4, -200.0, -1.0, *[0.0] * 8], np.float32)
    exact = np.exp2(x) if name.startswith("exp2") else np.exp(x)
    np.testing.assert_allclose(powers(text, x), exact, rtol=2**-22, atol=0)


def test_other_processors_have_the_text_without():
    spec = load_device("cpu")
    assert "lanes16" not in emit(construct(SOFTMAX, spec, top_k=1)[0].program, spec, "opencl").text
