"""Long sums are added up in blocks: however many terms there are, errors stay those of short chains."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.gate.differences import differences
from rollergen.gate.narrowing import program_accuracies
from rollergen.hal.load import load_device
from rollergen.program.assemble.levels import WAITING_OF_FEW_ROWS, WAITING_STREAMED
from rollergen.program.loops import LONGEST, added_terms, adds, chain_lengths
from rollergen.program.model.facts import facts_of
from rollergen.program.model.levels import block_slots
from rollergen.program.model.nest import nest_of
from tests.program.hand_devices import AVX512
from tests.programs import ALL, row_sum

ULP = float(np.finfo(np.float32).eps)
SHORT = 256
"""Terms of the longest chain on a CPU: of a product's passes of its output."""
LIBRARIES = {"vector times matrix": WAITING_OF_FEW_ROWS}
"""The same where libraries' own chains are longer."""


def x(*shape, dtype="float32"):
    return rg.tensor("x", shape, dtype)


def welford(values):
    """(count, mean, sum of squared distances) of a vector, the last as the result."""

    def joined(a, b):
        count = a[0] + b[0]
        apart = b[1] - a[1]
        share = b[0] / rg.maximum(count, 1)
        return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    k = rg.reduce_axis("k", values.shape[0])
    found = lambda: rg.reduce(joined, (0.0, 0.0, 0.0), (1.0, values[k], 0.0), axis=k)[2]
    return rg.compute((), found)


LONG = {
    "a sum of everything": lambda: rg.ops.sum(x(10**7)),
    "rows with a tail": lambda: rg.ops.sum(x(4, 100_003), 1),
    "columns": lambda: rg.ops.sum(x(100_000, 48), 0),
    "all but a middle axis": lambda: rg.ops.mean(x(3000, 8, 70), (0, 2)),
    "float16": lambda: rg.ops.sum(x(10**6, dtype="float16")),
    "float64": lambda: rg.ops.sum(x(10**6, dtype="float64")),
    "variance": lambda: rg.ops.var(x(10**6)),
    "tuples": lambda: welford(x(10**6)),
    "softmax of a long row": lambda: rg.ops.softmax(x(4, 100_000)),
    "softmax of columns": lambda: rg.ops.softmax(x(20_000, 64), 0),
    "logsumexp": lambda: rg.ops.logsumexp(x(8, 50_000), 1),
    "layer_norm": lambda: rg.ops.layer_norm(x(8, 50_000), 50_000),
    "matmul": lambda: rg.ops.matmul(x(48, 10**6), rg.tensor("y", (10**6, 48))),
    "matmul of float16": lambda: rg.ops.matmul(x(64, 5000, dtype="float16"), rg.tensor("y", (5000, 64), "float16")),
    "vector times matrix": lambda: rg.ops.matmul(x(1, 20_000), rg.tensor("y", (20_000, 512))),
    "matrix times vector": lambda: rg.ops.matmul(x(64, 20_000), rg.tensor("y", (20_000, 1))),
    "batches": lambda: rg.ops.batch_matmul(x(4, 32, 9000), rg.tensor("y", (4, 9000, 32))),
    "convolution": lambda: rg.ops.conv2d(x(1, 2048, 9, 9), rg.tensor("w", (32, 2048, 3, 3)), padding=1),
}


def chains(expr, device):
    return [length for stage in summed(expr, device) for length in chain_lengths(stage)]


def summed(expr, device):
    programs = [one.program for one in construct(canonicalize(expr), load_device(device), top_k=6)]
    stages = [stage for program in programs for stage in program.stages]
    found = [stage for stage in stages if any(map(adds, stage.op.reductions))]
    assert found
    return found


@pytest.mark.parametrize("case", LONG)
def test_no_chain_of_a_cpu_is_longer_than_those_of_libraries(case):
    assert max(chains(LONG[case](), "cpu")) <= LIBRARIES.get(case, SHORT)


@pytest.mark.parametrize("device", ["v100", "mi50"])
@pytest.mark.parametrize("case", ["a sum of everything", "columns", "matmul", "softmax of columns", "layer_norm"])
def test_no_chain_of_a_thread_is_longer_than_the_longest(case, device):
    assert max(chains(LONG[case](), device)) <= LONGEST


COLUMNS = {
    "one": lambda: rg.ops.sum(x(100_000, 48), 0),
    "between others": lambda: rg.ops.sum(x(5, 10_007, 33), 1),
    "of squares": lambda: rg.ops.sum(rg.ops.pow(x(5000, 100), 2), 0),
}


@pytest.mark.parametrize("device, longest", [("cpu", 16), ("v100", 64)])
@pytest.mark.parametrize("case", COLUMNS)
def test_columns_are_added_up_in_blocks_as_short_as_rows_are(case, device, longest):
    """Only where operands are used again are a contraction's longer chains worth it; blocks' sums may wait in the
    output, for so many passes."""
    for stage in summed(COLUMNS[case](), device):
        lengths, waiting = chain_lengths(stage), stage.accumulator.carry
        assert max(lengths[:-1] if waiting else lengths) <= longest
        assert not waiting or lengths[-1] <= WAITING_STREAMED


@pytest.mark.parametrize("expr", [rg.ops.sum(x(10**6, dtype="int32")), rg.ops.max(x(10**6))])
def test_what_rounds_nothing_is_not_added_up_in_blocks(expr):
    programs = [one.program for one in construct(canonicalize(expr), load_device("cpu"), top_k=4)]
    assert not any(stage.accumulator.flush for program in programs for stage in program.stages)


EQUAL = {
    "mean": (lambda: rg.ops.mean(x(10**6)), 4),
    "columns": (lambda: rg.ops.sum(x(1000, 100), 0), 4),
    "matmul": (lambda: rg.ops.matmul(x(8, 200_000), rg.tensor("y", (200_000, 32))), 40),
}
"""(expression, units in the last place): of reductions as pairwise sums have, of products as blocks of 128 have."""


@pytest.mark.parametrize("case", EQUAL)
def test_equal_terms_come_out_as_in_pairwise_sums(case):
    """Their roundings all fall on one side: in chains of n / 128 these came to 500 units and more."""
    make, units = EQUAL[case]
    kernel = rg.build(make(), "cpu", profile=False, cache=False)
    arrays = [np.full(b.shape, 0.1, np.float32) for b in kernel.signature.inputs]
    want = kernel_op(case, arrays)
    assert np.max(np.abs(np.asarray(kernel(*arrays), np.float64) / want - 1)) < units * ULP


@pytest.mark.parametrize("dtype, bound", [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("shape, axis", [((300, 256), 1), ((256, 300), 0)], ids=["rows", "columns"])
@pytest.mark.every(7)
def test_a_variance_does_not_suffer_from_its_mean(shape, axis, dtype, bound):
    """Around 10^4 the mean's own rounding, squared, was up to 7e-6 of the variance in float32, and 5e-2 around 10^6."""
    kernel = rg.build(rg.ops.var(x(*shape, dtype=dtype), axis), "cpu", profile=False, cache=False)
    noise = np.random.default_rng(5).standard_normal(shape)
    for middle in (1e4, 1e6):
        values = (middle + noise).astype(dtype)
        want = np.var(values.astype(np.longdouble), axis, ddof=1)
        assert np.max(np.abs(kernel(values) / want - 1)) < bound
    assert not np.any(kernel(np.full(shape, 0.1, dtype)))


def kernel_op(case, arrays):
    wide = [array.astype(np.float64) for array in arrays]
    return {"mean": lambda a: np.mean(a), "columns": lambda a: np.sum(a, 0), "matmul": np.matmul}[case](*wide)


@pytest.mark.parametrize("shape", [(100_003,), (3, 5000)])
def test_interpreter_and_kernel_add_in_the_same_order(shape):
    """Every bit of a sum tells the order of its additions."""
    kernel = rg.build(rg.ops.sum(x(*shape), -1), "cpu", profile=False, cache=False)
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    assert any(stage.accumulator.flush for stage in kernel.program.stages)
    np.testing.assert_array_equal(kernel.interpret(values), kernel(values))


def test_the_gate_refuses_one_chain_where_the_program_has_blocks():
    program = construct(canonicalize(rg.ops.sum(x(10**6))), load_device("cpu"), top_k=1)[0].program
    variance = program_accuracies(program)[program.outputs[0].name].variance
    values = np.full(10**6, 0.1, np.float32)
    want = np.atleast_1d(np.sum(values, dtype=np.float64))
    chain = np.add.accumulate(values.reshape(-1, 64), axis=0)[-1].sum(keepdims=True)
    assert differences(chain, want, variance, "float32", exact=False).all()
    assert not differences(np.atleast_1d(values.sum()), want, variance, "float32", exact=False).any()


def test_a_program_with_one_long_chain_is_allowed_no_more_than_the_longest():
    stage = row_sum(3, 32 * 10**6).stages[0]
    assert chain_lengths(stage) == (10**6,)
    assert added_terms(stage) < LONGEST + 32


def test_the_model_counts_an_addition_for_each_chain_of_a_block():
    stage = ALL["cpu_row_sum_in_blocks"].stages[0]
    innermost, outer = 24, 2  # 1510 columns: 48 steps of 2 x 16, 2 of them a block, 12 such blocks another
    slots = block_slots(nest_of(stage, facts_of(stage.op), AVX512))
    assert slots == (innermost - 1) * 2 + (outer - 1)  # two chains; the first of all costs nothing
