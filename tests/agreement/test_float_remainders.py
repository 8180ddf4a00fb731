"""What divisions of floats leave: exactly C's fmod, and Python's %, of signs, infinities and NaN too."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import DtypeError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from tests.agreement.readers import device, interpreted, run_opencl

inf, nan = np.inf, np.nan
EDGES = [(a, b) for a in (inf, -inf, nan, 0.0, -0.0, 1.0, -1.0, 5.5, -5.5) for b in (inf, -inf, nan, 0.0, -0.0, 1.0, -2.5)]


def pairs(dtype):
    """Edges, ordinary numbers, and quotients far beyond what the dtype holds the digits of."""
    rng, held = np.random.default_rng(0), numpy_dtype(dtype)
    size = 10.0 ** rng.integers(-2, 4, 700)
    more = np.stack([rng.standard_normal(700) * size, rng.standard_normal(700)])
    with np.errstate(over="ignore"):
        a, b = np.concatenate([np.array(EDGES).T, more], axis=1).astype(held)
    return a, b


def same(a, b):
    return np.all((a == b) & ((a != 0) | (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b)))


@pytest.mark.every(7)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("rounding", ["trunc", "floor"])
def test_remainders_are_exact_on_all_devices(dtype, rounding):
    a, b = pairs(dtype)
    A, B = (rg.tensor(name, a.shape, dtype) for name in "AB")
    expression = rg.compute(a.shape, lambda i: rg.remainder(A[i], B[i], rounding))
    with np.errstate(all="ignore"):
        wide = np.float64 if dtype == "float64" else np.float32
        rest = np.fmod(a.astype(wide), b.astype(wide))
        if rounding == "floor":
            rest = np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b.astype(wide), rest)
        want = rest.astype(a.dtype).astype(float)
        assert same(expression.evaluate(a, b).astype(wide).astype(a.dtype).astype(float), want)
        for name in ("cpu", "v100", "mi50", "ipu"):
            program, arrays = construct(canonicalize(expression), device(name), top_k=1)[0].program, {"A": a, "B": b}
            result = interpreted(program, arrays, device(name), 200)[0]
            for got in (result.outputs, run_opencl(program, arrays, device(name))):
                assert same(got[program.outputs[0].name].astype(float), want)


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_of_computed_values_pass_the_gate(name):
    x, y = rg.tensor("x", (33, 40)), rg.tensor("y", (40,))
    kernel = rg.build(getattr(rg.ops, name)(rg.ops.exp(x), y), "cpu", cache=False, top_k=2)
    a, b = np.random.default_rng(0).uniform(0.5, 1.5, (33, 40)).astype("f4"), np.full(40, 2.0**20, "f4")
    np.testing.assert_allclose(kernel(a, b), np.exp(a), rtol=1e-6)


def test_the_text_for_cuda_compiles():
    nvrtc = pytest.importorskip("rollergen.hal.compilers.nvrtc")
    for dtype in ("float32", "float64", "float16"):
        expression = rg.ops.remainder(rg.tensor("x", (64, 96), dtype), rg.tensor("y", (96,), dtype))
        program = construct(canonicalize(expression), device("v100"), top_k=1)[0].program
        nvrtc.compile_cuda(emit(program, device("v100")).text, "sm_70")


def test_whole_quotients_of_floats_are_refused():
    with pytest.raises(DtypeError, match="trunc_divide of float32 values; expected integers"):
        x = rg.tensor("x", (3,))
        rg.compute((3,), lambda i: rg.divide(x[i], 2.0, "trunc"))
