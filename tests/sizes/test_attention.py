"""Attention over sequences of any length: one kernel, in which rows, keys, or both are open."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import cuts
from rollergen.gate.memory import HOST
from rollergen.program.interpreter import interpret
from rollergen.runtime.executor import executor_for
from rollergen.sizes.facts import facts_of_map, map_of_facts
from rollergen.sizes.regime import Expression, Reference, open_plans, priced, prices_of, regime_map
from rollergen.targets import resolve
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

HIGH = 70
S = rg.dim("S", 1, HIGH)
SIZES = (2, 3, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, HIGH - 1, HIGH)
T = rg.tensor
attention = rg.ops.scaled_dot_product_attention


def turned(name, dtype):
    """Heads out of rows, as they lie behind a projection."""
    return rg.ops.transpose(rg.ops.reshape(T(name, (1, S, 64), dtype), (1, S, 2, 32)), 1, 2)


def of_rows(dtype, **options):
    return rg.ops.reshape(rg.ops.transpose(attention(*(turned(n, dtype) for n in "qkv"), **options), 1, 2), (1, S, 64))


def of_heads(dtype, shared=1, **options):
    heads = 2, 2 // shared, 2 // shared
    return attention(*(T(n, (2, h, S, 32), dtype) for n, h in zip("qkv", heads, strict=True)), **options)


MAKERS = {
    "rows": of_rows,
    "causal rows": lambda dtype: of_rows(dtype, is_causal=True),
    "heads": of_heads,
    "causal heads that share keys": lambda dtype: of_heads(dtype, 2, is_causal=True, enable_gqa=True),
    "keys": lambda dtype: attention(T("q", (1, 2, 5, 32), dtype), *(T(n, (1, 2, S, 32), dtype) for n in "kv")),
    "images": lambda dtype: attention(*(T(n, (S, 2, 21, 32), dtype) for n in "qkv")),
    "rows of queries": lambda dtype: attention(
        T("q", (1, 2, S, 32), dtype), *(T(n, (1, 2, 21, 32), dtype) for n in "kv")
    ),
}  # fmt: skip


def opened(case, device, at, dtype):
    """(expression, plan) of the best program constructed at one size."""
    outputs = MAKERS[case](dtype)
    expression = Expression(outputs, None, outputs.dims)
    buffers = Reference(expression, device).open_at({"S": at})
    chain, _ = cuts(outputs.at({"S": at}), device, BuildOptions(), None)
    _, found = open_plans(chain, buffers, at, HIGH, device, BuildOptions())
    assert found, f"no program of {case} at {at} is open"
    return expression, found[0]


def arrays_of(program, seed):
    draw = np.random.default_rng(seed)
    return {b.name: draw.standard_normal(b.shape).astype(b.dtype) for b in program.inputs}


def near(found, expression, size, arrays, dtype):
    wanted = np.asarray(expression.at({"S": size})[0].evaluate(*(arrays[n] for n in "qkv")), np.float32)
    apart = {"float32": 1e-5, "float16": 2.0**-10}[dtype] * np.abs(arrays["v"]).max()
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=0, atol=apart)


@pytest.mark.parametrize("device, dtype", [("cpu", "float32"), ("a100", "float16"), ("h200", "float16")])
@pytest.mark.parametrize("case", MAKERS)
@pytest.mark.every(7)
def test_a_plan_computes_attention_at_every_size(case, device, dtype):
    target = resolve(device)
    expression, plan = opened(case, target, 33, dtype)
    for size in (2, 3, 16, 47, HIGH):
        program = plan.at(size, target, expression.graph({"S": size}, target))
        arrays = arrays_of(program, size)
        (found,) = interpret(program, arrays, target).outputs.values()
        near(found, expression, size, arrays, dtype)


@pytest.mark.parametrize("at", [5, 64])
@pytest.mark.parametrize("case", MAKERS)
@pytest.mark.every(7)
def test_one_kernel_computes_attention_at_every_size(case, at):
    """What lies beyond the last row and key is another array's: results and their neighbours are looked at."""
    device = resolve("cpu")
    expression, plan = opened(case, device, at, "float32")
    source = plan.source(2, device)
    compiled = executor_for(device).prepare(source)
    for size in SIZES:
        program, own = plan.launched(source, size, device, expression.graph({"S": size}, device))
        arrays = arrays_of(program, size)
        outputs = {b.name: np.full(b.shape, np.nan, b.dtype) for b in program.outputs}
        session = compiled.launching(own.launches).session()
        session.set({**arrays, **outputs, **{b.name: HOST.empty(b) for b in program.temporaries}})
        session.once()
        session.run()
        near(*outputs.values(), expression, size, arrays, "float32")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("case", MAKERS)
@pytest.mark.every(11)
def test_one_text_of_matrix_instructions_computes_attention_at_every_size(case, device):
    target = resolve(device)
    expression, plan = opened(case, target, 48, "float16")
    source = plan.source(2, target)
    for size in (3, 33, HIGH):
        program, own = plan.launched(source, size, target, expression.graph({"S": size}, target))
        arrays = arrays_of(program, size)
        (found,) = executed(program, own, arrays, size % 2).values()
        near(found, expression, size, arrays, "float16")


def test_prices_are_those_of_the_program_of_each_size():
    target = resolve("h200")
    _, plan = opened("heads", target, 33, "float16")
    (found,) = prices_of([plan], SIZES, target)
    np.testing.assert_allclose(found, [priced([plan.unchecked(n, target)], target)[0] for n in SIZES], rtol=1e-12)


def test_a_map_of_attention_is_told_and_read_again():
    outputs, target = of_heads("float16"), resolve("h200")
    regime = regime_map(Expression(outputs, None, outputs.dims), target, BuildOptions())
    again = map_of_facts(facts_of_map(regime, regime.plans))
    assert again.plans == regime.plans
    assert again.intervals() == regime.intervals()
