"""Plans: a program constructed at one size is a program at every other one, and one kernel serves all."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.gate.memory import HOST
from rollergen.program.interpreter import interpret
from rollergen.runtime.executor import executor_for
from rollergen.sizes.opening import plan_of
from rollergen.sizes.regime import Expression, Reference, open_plans, priced, prices_of
from rollergen.targets import resolve

HIGH = 150
S = rg.dim("S", 1, HIGH)
T = rg.tensor

MAKERS = {
    "matmul": lambda: rg.ops.matmul(T("x", (S, 33)), T("w", (33, 21))),
    "linear and relu": lambda: rg.ops.relu(rg.ops.linear(T("x", (S, 40)), T("w", (50, 40), constant=True), T("b", (50,)))),
    "conv": lambda: rg.ops.conv2d(T("x", (S, 3, 6, 7)), T("w", (5, 3, 3, 3)), padding=1),
    "sum of rows": lambda: rg.ops.sum(T("x", (S, 70)), axis=1),
    "row less its largest": lambda: (lambda x: x - rg.ops.max(x, 1, keepdim=True)[0])(T("x", (S, 37))),
    "elements": lambda: rg.ops.relu(T("x", (S, 11)) * 2 + T("y", (11,))),
}  # fmt: skip
ADVERSARIAL = (2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 97, 127, 128, 129, HIGH - 1, HIGH)


def plans(case, device, at, count=2):
    outputs = MAKERS[case]()
    buffers = Reference(Expression(outputs, None, outputs.dims), device).open_at({"S": at})
    found = open_plans(planned(outputs.at({"S": at}), device), buffers, at, HIGH, device, BuildOptions())[1]
    assert found, f"no program of {case} at {at} is open"
    return found[:count]


def whole_numbers(program, seed):
    draw = np.random.default_rng(seed)
    return {b.name: draw.integers(-3, 4, b.shape).astype(b.dtype) for b in program.inputs}


def assert_right(case, size, inputs, outputs):
    """By the definition, of whole numbers."""
    (found,) = outputs.values()
    np.testing.assert_array_equal(found, MAKERS[case]().at({"S": size}).evaluate(**inputs))


@pytest.mark.every(11)
@pytest.mark.parametrize("at", [5, 64])
@pytest.mark.parametrize("device", ["v100", "a100", "mi50", "cpu"])
@pytest.mark.parametrize("case", MAKERS)
def test_a_plan_computes_the_same_at_every_size(case, device, at):
    target = resolve(device)
    for plan in plans(case, target, at):
        for size in np.random.default_rng(at).integers(2, min(plan.most, 40), 2):
            program = plan.at(int(size), target)
            inputs = whole_numbers(program, int(size))
            assert_right(case, int(size), inputs, interpret(program, inputs, target).outputs)


@pytest.mark.parametrize("device", ["v100", "a100", "h200", "mi50", "cpu"])
@pytest.mark.parametrize("case", MAKERS)
@pytest.mark.every(3)
def test_prices_at_many_sizes_are_those_of_the_program_of_each(case, device):
    target, sizes = resolve(device), (1, 2, *ADVERSARIAL)
    some = [plan for at in (3, 16, 97) for plan in plans(case, target, at, 6)]
    found = prices_of(some, sizes, target)
    for column, size in enumerate(sizes):
        served = [n for n, plan in enumerate(some) if size <= plan.most]
        alone = [priced([some[n].unchecked(size, target)], target)[0] for n in served]
        np.testing.assert_allclose(found[served, column], alone, rtol=1e-12)
        assert np.isinf(np.delete(found[:, column], served)).all()


def test_convolutions_by_filtering_have_a_price_at_a_single_size(monkeypatch):
    """What their vectors cut is counted at numbers, one of each size."""
    target = resolve("cpu")
    conv = lambda: rg.ops.conv2d(T("x", (S, 8, 16, 16)), T("w", (16, 8, 3, 3), constant=True), padding=1)
    monkeypatch.setitem(MAKERS, "filtering", conv)
    (plan,) = plans("filtering", target, 3, 1)
    alone = priced([plan.unchecked(2, target)], target)
    np.testing.assert_allclose(prices_of([plan], (2,), target)[0], alone, rtol=1e-12)


@pytest.mark.every(7)
@pytest.mark.parametrize("at", [3, 16, 97])
@pytest.mark.parametrize("case", MAKERS)
def test_one_kernel_computes_the_same_at_every_size(case, at):
    """Adversarial sizes: tile multiples, one less, one more, primes, the ends."""
    device = resolve("cpu")
    executor = executor_for(device)
    for plan in plans(case, device, at, 1):
        source = plan.source(1, device)
        compiled = executor.prepare(source)
        for size in [size for size in ADVERSARIAL if size <= plan.most]:
            program, own = plan.launched(source, size, device)
            inputs = whole_numbers(program, size)
            outputs = {b.name: np.full(b.shape, -77, b.dtype) for b in program.outputs}
            session = compiled.launching(own.launches).session()
            session.set({**inputs, **outputs, **{b.name: HOST.empty(b) for b in program.temporaries}})
            session.once()
            session.run()
            assert_right(case, size, inputs, outputs)


def test_sums_of_parts_are_as_long_as_the_largest_size():
    """A reduction split over blocks keeps its parts in a temporary whose rows lie within."""
    device = resolve("v100")
    outputs = rg.ops.matmul(T("x", (S, 4096)), T("w", (4096, 64)))
    expression = Expression(outputs, None, outputs.dims)
    buffers = Reference(expression, device).open_at({"S": 4})
    found = construct(planned(outputs.at({"S": 4}), device), device, BuildOptions(), top_k=8)
    split = [one for one in (plan_of(each.program, buffers, 4, HIGH) for each in found) if one and one.inner]
    assert split, "no split program"
    plan = split[0]
    assert plan.at(3, device).temporaries == plan.at(7, device).temporaries
    inputs = whole_numbers(plan.at(3, device), 0)
    found = interpret(plan.at(3, device), inputs, device).outputs
    np.testing.assert_array_equal(*found.values(), inputs["x"] @ inputs["w"])


def test_what_has_sizes_in_its_offsets_is_no_plan():
    device = resolve("v100")
    outputs = rg.ops.softmax(T("x", (7, S)))
    buffers = Reference(Expression(outputs, None, outputs.dims), device).open_at({"S": 9})
    assert buffers == {"x": 7, "out": 7}
    graph = planned(outputs.at({"S": 9}), device)
    assert open_plans(graph, buffers, 9, HIGH, device, BuildOptions())[1] == []
