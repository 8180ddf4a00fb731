"""Products with narrow weights whose activations may be quantised: all readers compute the formula that is stated."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.emit import emit
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Const, transform
from rollergen.gate.gate import Gate
from rollergen.gate.program_oracle import graph_oracle
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.program.interpreter import interpret
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl
from tests.agreement.test_dot_products import CPU
from tests.program.hand_devices import AVX512

QUANTIZED = rg.BuildOptions(quantize_activations=True)
RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}
KINDS = tuple(RANGES)


def weighted(kind, m, k, n, group, zero, transposed=True):
    """x @ w of weights that are scaled, and less a zero point of each group ("tensor"), in groups along k."""
    rows, shape = (n, k // group), (n, k)
    rows, shape = (rows, shape) if transposed else (rows[::-1], shape[::-1])
    q = rg.tensor("q", shape, kind, constant=True)
    s = rg.tensor("s", rows, constant=True)
    z = rg.tensor("z", rows, "int8" if kind.startswith("i") else "uint8", constant=True) if zero == "tensor" else zero
    w = rg.ops.dequantize(q, s, z, axis=1 if transposed else 0, block_size=group)
    x = rg.tensor("x", (m, k))
    return rg.ops.linear(x, w) if transposed else rg.ops.matmul(x, w)


def arrays_of(program, kind, seed=0):
    """Numbers, none of them packed, by the names of the program's inputs."""
    rng, (low, high), found = np.random.default_rng(seed), RANGES[kind], {}
    for buffer in program.inputs:
        shape = tuple(map(int, buffer.packs.split("[")[1].rstrip("]").split(","))) if buffer.packs else buffer.shape
        whole = buffer.name in ("q", "z")
        found[buffer.name] = (
            rng.integers(low, high, shape, endpoint=True) if whole else (rng.random(shape) * 2 - 1).astype("float32")
        )
    return found


def stored(arrays, kind):
    narrow = {"q": kind, "z": "int8" if kind.startswith("i") else "uint8"}
    of = lambda name, array: array.astype(narrow[name]) if name in narrow else array
    packed = lambda name: name == "q" and kind in ("int4", "uint4")
    return {
        name: rg.pack(array.astype(getattr(ml_dtypes, kind))) if packed(name) else of(name, array)
        for name, array in arrays.items()
    }


def weights_of(arrays, group, transposed, zero):
    """w as (n, k) in float64."""
    turned = lambda name: (arrays[name] if transposed else arrays[name].T).astype(float)
    over = lambda name: np.repeat(turned(name), group, axis=1)
    return (turned("q") - (over("z") if zero == "tensor" else zero)) * over("s")


def formula(x, w, size):
    """(the product with quantised activations, how far it may lie from the product as it is)."""
    groups = x.reshape(len(x), -1, size)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    steps = np.divide(groups, scale, out=np.zeros_like(groups), where=scale > 0)
    rounded = (np.clip(np.rint(steps), -127, 127).astype(float) * scale).reshape(x.shape)
    half = np.broadcast_to(scale / 2, groups.shape).reshape(x.shape)
    return rounded @ w.T, half @ np.abs(w).T


def group_of(rows, k, group):
    """Activations of one scale: fewer where rows share the weights."""
    return next(size for size in (64, 32, 16, 8)[rows > 1 :] if group % size == 0 and k % size == 0)


CASES = [
    ("uint4", 1, 128, 40, 32, 8, True), ("uint4", 3, 128, 50, 64, "tensor", True), ("int4", 8, 96, 33, 32, 0, True),
    ("int4", 5, 256, 17, 128, "tensor", False), ("uint4", 9, 64, 31, 16, 0, False), ("int8", 4, 64, 48, 32, 0, True),
    ("uint4", 1, 256, 24, 128, 8, True), ("int8", 2, 96, 35, 48, "tensor", False), ("uint8", 7, 128, 20, 64, 128, True), ("uint8", 1, 32, 16, 32, 0, False),
]  # fmt: skip


def checked(kind, m, k, n, group, zero, transposed, spec=CPU, seed=0):
    expression = weighted(kind, m, k, n, group, zero, transposed)
    graph = planned(expression, spec, QUANTIZED)
    assert graph.definition
    program = construct(graph, spec, QUANTIZED, top_k=1)[0].program
    arrays = arrays_of(program, kind, seed)
    w, given_ = weights_of(arrays, group, transposed, zero), stored(arrays, kind)
    want, bound = formula(arrays["x"], w, group_of(m, k, group))
    size = np.abs(arrays["x"]) @ np.abs(w).T + bound
    result, blocks = interpreted(program, given_, spec, most_blocks=200)
    for got in (result.outputs, run_opencl(program, given_, spec)):
        (out,) = got.values()
        assert np.all(np.abs(out - want) <= 1e-5 * size)
        assert np.all(np.abs(out - arrays["x"].astype(float) @ w.T) <= bound + 1e-5 * size)
    assert_traffic(program, result.traffic, spec, blocks)
    return program


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.every(2)
def test_all_readers_compute_the_product_of_rounded_activations(case):
    checked(*case)


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(KINDS), st.integers(1, 12), st.integers(1, 5), st.integers(16, 70),
    st.sampled_from((8, 16, 32, 64, 96)), st.sampled_from((0, "tensor")), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_they_do_so_for_sizes_of_any_kind(kind, m, groups, n, group, zero, transposed, seed):
    checked(kind, m, groups * group, n, group, zero, transposed, seed=seed)


def test_words_are_multiplied_and_activations_are_bytes():
    program = checked(*CASES[0])
    assert "dot_product16(" in emit(program, CPU, "opencl").text
    assert any(buffer.dtype == "int8" for buffer in program.temporaries)
    assert [stage.once for stage in program.stages].count(True) == 2  # words of weights, scales


@pytest.mark.parametrize(
    ("expression", "spec", "options"),
    [
        (weighted("uint4", 2, 64, 32, 32, 8), CPU, rg.BuildOptions()),
        (weighted("uint4", 2, 64, 32, 32, 8), AVX512, QUANTIZED),
        (weighted("uint4", 2, 64, 32, 32, 8), device("v100"), QUANTIZED),
        (weighted("uint4", 2, 60, 32, 20, 8), CPU, QUANTIZED),
        (rg.ops.matmul(rg.tensor("a", (4, 64)), rg.tensor("b", (64, 32), constant=True)), CPU, QUANTIZED),
    ],
    ids=["not allowed", "no dot products", "threads", "groups of no whole words", "weights in float32"],
)
def test_where_it_is_not_allowed_or_impossible_nothing_changes(expression, spec, options):
    assert planned(expression, spec, options) == planned(expression, spec)


def test_what_is_computed_of_the_product_stays_in_its_stage():
    x, q = rg.tensor("x", (3, 64)), rg.tensor("q", (20, 64), "int8", constant=True)
    s, bias = rg.tensor("s", (20,), constant=True), rg.tensor("bias", (20,))
    expression = rg.ops.relu(rg.ops.linear(x, rg.ops.dequantize(q, s, axis=0), bias))
    graph = planned(expression, CPU, QUANTIZED)
    program = construct(graph, CPU, QUANTIZED, top_k=1)[0].program
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.standard_normal((3, 64)).astype("float32"), "q": rng.integers(-128, 128, (20, 64)).astype("int8"),
        "s": rng.random(20, "float32"), "bias": rng.random(20, "float32") * 99,
    }  # fmt: skip
    want, _ = formula(arrays["x"], arrays["q"] * arrays["s"][:, None].astype(float), 32)
    (got,) = run_opencl(program, arrays, CPU).values()
    assert np.allclose(got, np.maximum(want + arrays["bias"], 0), rtol=1e-5, atol=1e-3)


def test_groups_of_zeros_are_zeros_and_what_is_not_finite_makes_its_row_nan():
    expression = weighted("uint4", 4, 64, 32, 32, 8)
    program = construct(planned(expression, CPU, QUANTIZED), CPU, QUANTIZED, top_k=1)[0].program
    arrays = arrays_of(program, "uint4")
    arrays["x"][0, :32], arrays["x"][1], arrays["x"][2, 40], arrays["x"][3, 5] = 0, 0, np.inf, np.nan
    with np.errstate(all="ignore"):
        given_ = stored(arrays, "uint4")
        for got in (interpret(program, given_, CPU).outputs, run_opencl(program, given_, CPU)):
            (out,) = got.values()
            assert np.isfinite(out[0]).all() and (out[1] == 0).all() and np.isnan(out[2:]).all()


def _with_largest(op: TensorOp, number: float) -> TensorOp:
    change = lambda value: Const(number, "float32") if value == Const(127.0, "float32") else None
    return replace(op, result=transform(op.result, change))


def test_the_gate_holds_programs_to_the_rounding_itself():
    expression = weighted("uint4", 4, 256, 64, 32, 8)
    graph = planned(expression, CPU, QUANTIZED)
    program = construct(graph, CPU, QUANTIZED, top_k=1)[0].program
    number = next(n for n, one in enumerate(program.stages) if one.op.output.name.endswith("activation_scales"))
    stages = list(program.stages)
    stages[number] = replace(stages[number], op=_with_largest(stages[number].op, 120.0))  # coarser steps
    runtime = OpenCLRuntime()
    for tried, right in ((program, True), (replace(program, stages=tuple(stages)), False)):

        def run(arrays, tried=tried):
            source = emit(tried, CPU, "opencl")
            module = runtime.compile(source.text)
            buffers = {name: runtime.wrap(array) for name, array in arrays.items()}
            for launch in source.launches:
                kernel = module.kernel(launch.entry)
                runtime.set_arguments(kernel, [buffers[name] for name in launch.arguments])
                runtime.launch(kernel, launch.blocks, launch.threads)
            runtime.finish()

        verdict = Gate(program, graph_oracle(graph, (expression,))).check(tried, run)
        assert verdict.passed == right, verdict.problems


def test_a_kernel_says_that_its_activations_are_quantised():
    kernel = rg.build(weighted("uint4", 4, 64, 32, 32, 8), CPU, profile=False, cache=False, options=QUANTIZED)
    assert "activations of out are quantised to int8 in groups of 32" in kernel.explain()
