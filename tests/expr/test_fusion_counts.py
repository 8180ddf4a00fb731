"""What is fused, counted: stages (kernels), and bytes between memory and a block (interpreter, real addresses).

Rows of 256 and 64 float32 fill whole transactions of every device, and each block of a row stage has its
rows to itself: what is read once is counted once.
"""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.one_stage import RowLimits
from rollergen.program.interpreter import interpret
from tests.agreement.readers import device, small_integers

T, ops = rg.tensor, rg.ops
ROWS, ROW = 48, 256
SIZE = ROWS * ROW * 4  # bytes of one tensor of rows
LINE = 64  # bytes that a CPU reads at least


def stages(outputs):
    return len(canonicalize(outputs).tensor_ops)


def moved(outputs, device_name):
    """Bytes by tensor and role, of all stages of the model's first choice."""
    spec = device(device_name)
    (ranked,) = construct(canonicalize(outputs), spec, top_k=1)
    result = interpret(ranked.program, small_integers(ranked.program), spec)
    found: dict = {}
    for one in result.traffic:
        found[one.tensor, one.role] = found.get((one.tensor, one.role), 0) + one.bytes
    return found


def rows(name="x"):
    return T(name, (ROWS, ROW))


def along(name):
    return T(name, (ROW,))


ROW_STAGES = {
    "softmax": lambda: ops.softmax(rows(), name="y"),
    "log_softmax": lambda: ops.log_softmax(rows(), name="y"),
    "layer_norm": lambda: ops.layer_norm(rows(), ROW, name="y"),
    "rms_norm": lambda: ops.rms_norm(rows(), ROW, name="y"),
    "softmax of scaled rows": lambda: ops.softmax(ops.mul(rows(), 0.125), name="y"),
    "gelu of layer_norm": lambda: ops.gelu(ops.layer_norm(rows(), ROW), name="y"),
}


@pytest.mark.parametrize("name", ROW_STAGES)
@pytest.mark.parametrize("device_name", ["cpu", "v100"])
def test_a_row_is_read_once_and_written_once(name, device_name):
    expression = ROW_STAGES[name]()
    assert stages(expression) == 1
    assert moved(expression, device_name) == {("x", "load"): SIZE, ("y", "store"): SIZE}


@pytest.mark.parametrize("name", ["var", "std", "logsumexp"])
def test_several_reductions_of_a_row_read_it_once(name):
    expression = getattr(ops, name)(rows(), 1, name="y")
    assert stages(expression) == 1
    first = 0 if name == "logsumexp" else ROWS * LINE  # variances are of distances from a row's first element
    assert moved(expression, "cpu")["x", "load"] == SIZE + first


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "var", "logsumexp"])
def test_rows_too_long_for_a_block_are_cut_and_the_cut_says_so(name):
    x = T("x", (4, RowLimits().adjacent + 1))
    expression = ops.layer_norm(x, x.shape[1]) if name == "layer_norm" else getattr(ops, name)(x, 1)
    graph = canonicalize(expression)
    assert len(graph.tensor_ops) > 1
    assert f"rows of {RowLimits().adjacent + 1} elements exceed the limit" in graph.cuts[0]


def test_convolution_bias_residual_and_relu_are_one_stage():
    image, weight, bias = T("x", (1, 16, 14, 16)), T("w", (32, 16, 3, 3)), T("b", (32,))
    residual = T("r", (1, 32, 14, 16))
    y = ops.relu(ops.add(ops.conv2d(image, weight, bias, padding=1), residual), name="y")
    assert stages(y) == 1
    found = moved(y, "v100")
    assert found["y", "store"] == found["r", "load"] == 32 * 14 * 16 * 4  # once each: no other pass over the output
    assert {tensor for tensor, _ in found} == {"x", "w", "b", "r", "y"}  # no temporary


def test_a_chain_of_elementwise_operators_moves_its_ends_only():
    x, y = rows(), rows("y")
    z = ops.tanh(ops.add(ops.mul(ops.sigmoid(x), y), 1.0), name="z")
    assert stages(z) == 1
    assert moved(z, "cpu") == {("x", "load"): SIZE, ("y", "load"): SIZE, ("z", "store"): SIZE}


def test_a_diamond_over_a_map_reads_its_input_once():
    power = ops.exp(rows())
    joined = ops.add(ops.mul(power, 2.0), ops.relu(power), name="y")
    assert stages(joined) == 1
    assert moved(joined, "cpu") == {("x", "load"): SIZE, ("y", "store"): SIZE}


def test_a_diamond_over_a_product_computes_it_once():
    a, b = T("a", (48, 32)), T("b", (32, 64))
    product = ops.matmul(a, b)
    gated = ops.mul(ops.sigmoid(product), product, name="y")
    graph = canonicalize(gated)
    assert len(graph.tensor_ops) == 1 and len(graph.tensor_ops[0].reductions) == 1
    assert moved(gated, "cpu")["y", "store"] == 48 * 64 * 4


def test_a_diamond_over_a_row_computes_its_sum_once():
    x = rows()
    total = ops.sum(x, 1, keepdims=True)
    joined = ops.add(ops.div(x, total), ops.sub(x, total), name="y")
    (op,) = canonicalize(joined).tensor_ops
    assert len(op.reductions) == 1
    assert moved(joined, "cpu") == {("x", "load"): SIZE, ("y", "store"): SIZE}


def test_views_cost_no_stage_of_their_own():
    x = T("x", (4, 8, ROW))
    heads = ops.permute(ops.reshape(x, (4, 8, 4, 64)), (0, 2, 1, 3))
    y = ops.relu(ops.getitem(heads, np.s_[:, 1:3]), name="y")
    assert stages(y) == 1
    half = 4 * 2 * 8 * 64 * 4
    assert moved(y, "cpu") == {("x", "load"): half, ("y", "store"): half}  # of 4 heads, 2 are read


def test_padding_is_read_by_the_pool_not_stored():
    pooled = ops.max_pool2d(ops.pad(T("x", (1, 4, 15, 16)), (0, 0, 1, 0), value=-9), 2, name="y")
    assert stages(pooled) == 1
    assert {tensor for tensor, _ in moved(pooled, "cpu")} == {"x", "y"}


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: ops.conv2d(ops.concat([x, y], 1), T("w", (8, 8, 3, 3)), padding=1),
        lambda x, y: ops.conv2d(ops.pad(x, (1, 1, 1, 1), "reflect"), T("w", (8, 4, 3, 3))),
        lambda x, y: ops.max_pool2d(ops.pad(x, (1,) * 8, "replicate"), 3, 1),
    ],
)
def test_a_choice_that_a_reduction_reads_repeatedly_is_stored_first(make):
    graph = canonicalize(make(T("x", (1, 4, 14, 16)), T("y", (1, 4, 14, 16))))
    choice, reader = graph.tensor_ops
    assert not choice.reductions and reader.reductions
    assert "it chooses between elements that a reduction reads several times each" in graph.cuts[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: ops.softmax(ops.concat([x, y], 1)),  # a kept row
        lambda x, y: ops.sum(ops.concat([x, y], 1), 1),  # each element once
        lambda x, y: ops.matmul(ops.leaky_relu(x), T("w", (ROW, 8))),  # no choice of element
    ],
)
def test_other_choices_cost_no_stage(make):
    assert stages(make(rows(), rows("y"))) == 1


def test_attention_is_cut_between_scores_weights_and_values():
    q, k, v = (T(name, (2, 32, 64)) for name in "qkv")
    graph = canonicalize(ops.attention(q, k, v, is_causal=True, name="y"))
    assert [len(d.reductions) for d in graph.tensor_ops] == [1, 2, 1]
    assert len(graph.cuts) == 2


def test_several_outputs_share_what_they_have_in_common():
    a, b = T("a", (48, 32)), T("b", (32, 64))
    product = ops.matmul(a, b, name="c")
    outputs = [ops.relu(product, name="r"), ops.sum(product, 1, name="s"), product]
    graph = canonicalize(outputs)
    assert [d.output.name for d in graph.tensor_ops].count("c") == 1 and len(graph.tensor_ops) == 3
    assert graph.temporaries == ()  # the product is itself an output
    kernel = rg.build(outputs, "cpu", profile=False, top_k=1)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((48, 32), (32, 64)))
    found = kernel(x, y)
    for got, wanted in zip(found, (np.maximum(x @ y, 0), (x @ y).sum(1), x @ y), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_outputs_with_nothing_in_common_are_stages_of_one_kernel_object():
    kernel = rg.build([ops.relu(rows(), name="r"), ops.sum(rows("z"), 0, name="s")], "cpu", profile=False, top_k=1)
    assert len(kernel.launches) == 2
    x = np.ones((ROWS, ROW), np.float32)
    r, s = kernel(x, -x)
    assert r.shape == (ROWS, ROW) and (s == -ROWS).all()
