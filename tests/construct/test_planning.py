"""What is computed where it is read, and which contractions share a stage, is what the model finds faster."""

from functools import cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.planning import planned
from rollergen.errors import ConstructionError, DtypeError
from rollergen.expr.stages import cut
from rollergen.hal.load import load_device

ops = rg.ops
M, N, K = 128, 768, 3072


def T(name, *shape, dtype="float32"):
    return rg.tensor(name, shape, dtype)


X, Y, IMAGE = T("x", M, K), T("y", M, 2 * K), T("image", 2, 32, 28, 28)


def linear(name, x=X, n=N):
    return ops.linear(x, T(name, n, x.shape[1]))


def product(name):
    return ops.matmul(X, T(name, K, N))


def convolution(name):
    return ops.conv2d(IMAGE, T(name, 64, 32, 3, 3), padding=1)


def larger(a, b):
    return rg.compute(a.shape, lambda *i: rg.select(a[i] > b[i], a[i], b[i]))


def row_sums(z):
    k = rg.reduce_axis("r", z.shape[-1])
    return rg.compute(z.shape[:-1], lambda *i: rg.sum(z[(*i, k)], axis=k))


TOGETHER = {
    "gate": (lambda a, b: ops.mul(ops.silu(a), b), linear, linear),
    "sum": (ops.add, linear, linear),
    "choice": (larger, linear, linear),
    "outputs": (lambda a, b: [ops.mul(a, b), ops.sub(a, b)], linear, linear),
    "three": (lambda a, b, c: ops.add(ops.mul(a, b), c), linear, linear, linear),
    "another k": (ops.add, linear, lambda name: linear(name, Y)),
    "products": (ops.add, product, product),
    "layouts": (ops.mul, product, linear),
    "convolutions": (lambda a, b: ops.mul(a, ops.sigmoid(b)), convolution, convolution),
    "reduction beside": (ops.add, linear, lambda name: row_sums(T(name, M, N, 64))),
}  # fmt: skip
CASES = [
    ("gate", "v100"), ("sum", "a100"), ("choice", "h200"), ("outputs", "v100"), ("three", "mi50"), ("another k", "v100"),
    ("products", "mi50"), ("layouts", "h200"), ("convolutions", "v100"), ("reduction beside", "a100"),
]  # fmt: skip


@cache
def target(name):
    return load_device(name)


def seconds(outputs, device):
    return construct(planned(outputs, target(device)), target(device), top_k=1)[0].seconds


@pytest.mark.every(11)
@pytest.mark.parametrize("name, device", CASES)
def test_contractions_of_one_expression_take_no_longer_than_each_alone(name, device):
    combine, *makes = TOGETHER[name]
    alone = [make(f"w{number}") for number, make in enumerate(makes)]
    stored = [T(f"c{number}", *one.shape) for number, one in enumerate(alone)]
    apart = sum(seconds(one, device) for one in (*alone, combine(*stored)))
    assert seconds(combine(*alone), device) <= apart


@pytest.mark.parametrize("products", [1, 2])
def test_products_run_on_the_matrix_units_of_tiles_whatever_is_added_to_them(products):
    """What remains to be added is a step of its own, as these units leave nothing but sums."""
    device, total = target("ipu"), T("c", 64, 256)
    for number in range(products):
        total = ops.add(ops.matmul(T(f"a{number}", 64, 1024), T(f"b{number}", 1024, 256)), total)
    (best,) = construct(planned(total, device), device, top_k=1)
    assert [variant.split(",")[0] for variant in best.variants] == ["amp_f32"] * products + ["vector"]


@pytest.mark.parametrize("rows, factors, stages", [(1, "x", 1), (M, "x", 1), (1, "xy", 1), (M, "xy", 2)])
def test_contractions_share_a_stage_where_they_share_a_factor_or_that_saves_a_launch(rows, factors, stages):
    x, *y = [T(name, rows, 1024) for name in factors]
    graph = planned(ops.add(linear("g", x, 1024), linear("u", *y or [x], 1024)), target("v100"))
    assert len(graph.tensor_ops) == stages
    assert ["a contraction alone has tiles of its own" in one for one in graph.cuts] == [True] * (stages - 1)


@pytest.mark.parametrize("device", ["cpu", "v100", "a100", "h200"])
def test_gated_products_take_no_longer_than_each_alone_and_read_their_common_factor_once(device):
    gate, up = linear("g"), linear("u")
    fused = planned(ops.mul(ops.silu(gate), up), target(device))
    assert [len(reduction.bodies) for op in fused.tensor_ops for reduction in op.reductions] == [2]
    stored = T("c", M, N)
    apart = seconds(up, device) + seconds(ops.mul(ops.silu(gate), stored), device)
    assert seconds(ops.mul(ops.silu(gate), up), device) < apart


def test_places_of_a_product_that_have_no_element_in_common_are_computed_side_by_side():
    gate, up = ops.chunk(linear("w", n=2 * N), 2, 1)
    graph = planned(ops.mul(ops.silu(gate), up), target("v100"))
    assert [op.components for op in graph.tensor_ops] == [2]


def test_a_product_whose_elements_are_read_at_several_places_each_is_stored():
    wide = linear("w", n=N + 1)
    graph = planned(rg.compute((M, N), lambda i, j: wide[i, j] * wide[i, j + 1]), target("v100"))
    assert [op.components for op in graph.tensor_ops] == [1, 0]


def test_of_the_gates_of_a_cell_the_input_s_are_one_stage_with_what_follows():
    x, h, state = (T(name, 16, 512) for name in ("x", "h", "state"))
    gates = ops.add(linear("w", x, 4 * 512), linear("v", h, 4 * 512))
    i, f, g, o = ops.chunk(gates, 4, 1)
    state = ops.add(ops.mul(ops.sigmoid(f), state), ops.mul(ops.sigmoid(i), ops.tanh(g)))
    graph = planned(ops.mul(ops.sigmoid(o), ops.tanh(state)), target("v100"))
    assert [op.components for op in graph.tensor_ops] == [1, 4]


@pytest.mark.parametrize("operand, rows, stages", [(ops.gelu, M, 2), (ops.relu, M, 2), (ops.relu, 1, 1)])
def test_an_operand_is_stored_first_where_computing_it_at_each_use_takes_longer(operand, rows, stages):
    x, w = T("x", rows, 1024, dtype="float16"), T("w", 1024, 1024, dtype="float16")
    graph = planned(ops.linear(operand(x), w), target("v100"))
    assert len(graph.tensor_ops) == stages
    assert ["reads its elements several times each" in one for one in graph.cuts] == [True] * (stages - 1)


def test_an_operand_that_is_only_elsewhere_in_memory_is_not_stored():
    x = T("x", 64, 3, 1024)
    graph = planned(ops.matmul(ops.reshape(x, (192, 1024)), T("w", 1024, 512)), target("v100"))
    assert len(graph.tensor_ops) == 1


def test_of_a_picture_that_grows_both_ways_longer_rows_are_stored_first():
    grown = ops.interpolate(T("x", 1, 64, 56, 56), scale_factor=2, mode="bilinear")
    graph = planned(grown, target("cpu"))
    assert [one.elements for one in graph.temporaries] == [64 * 56 * 112]
    assert "several of its elements are read for each of the result's" in graph.cuts[0]


def test_a_picture_that_takes_less_than_a_launch_grows_in_one_stage():
    grown = ops.interpolate(T("x", 1, 2, 8, 8), scale_factor=2, mode="bilinear")
    assert len(planned(grown, target("v100")).tensor_ops) == 1


def test_what_finds_no_room_when_stored_stays_inlined():
    device = target("ipu")
    x = T("x", 1, 60_000_000, dtype="int8")
    graph = planned(ops.matmul(ops.relu(x), T("w", 60_000_000, 2, dtype="int8")), device)
    assert graph.temporaries == ()


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
def test_integers_become_bfloat16_only_where_there_is_float64(dtype):
    cast = rg.ops.cast(rg.tensor("x", (64,), dtype), "bfloat16")
    with pytest.raises(DtypeError, match="mali-g71 has no instruction; expected float32 \\(integers of 32 and 64 bits cast to it before bfloat16\\)"):
        rg.build(cast, "mali-g71", profile=False, cache=False)
    assert rg.build(rg.ops.cast(rg.tensor("x", (64,), "int16"), "bfloat16"), "mali-g71", profile=False, cache=False)


def narrow_weights(rows, k, n):
    """As int8, which cast the product reads; stored as float16 they take longer to write than the product takes."""
    return ops.linear(T("x", rows, k, dtype="float16"), ops.cast(T("w", n, k, dtype="int8"), "float16"))


def test_a_cut_whose_first_stage_takes_longer_than_another_cut_is_constructed_no_further():
    choice.cache_clear()
    graph = planned(narrow_weights(8, 1280, 1344), target("a100"))
    assert len(graph.tensor_ops) == 1
    assert choice.cache_info().misses == 2  # the product that casts, and the cast alone


def test_what_the_chosen_cut_was_compared_by_is_not_constructed_again():
    choice.cache_clear()
    rg.build(narrow_weights(8, 1280, 1408), "a100", profile=False, cache=False)
    assert choice.cache_info().misses == 2


def test_functions_that_several_stages_read_are_stored_where_that_takes_less():
    softmax = ops.softmax(T("x", 8, 300, 70), 1)
    graph = planned(softmax, target("cpu"))
    assert any("several stages read its functions" in one for one in graph.cuts)
    assert seconds(softmax, "cpu") < construct(cut(softmax), target("cpu"), top_k=1)[0].seconds
    for other in (ops.softmax(T("x", 300, 70)), ops.log_softmax(T("x", 300, 70), 0)):  # one stage; none of the same
        assert not any("functions" in one for one in planned(other, target("cpu")).cuts)
    given = np.random.default_rng(0).random((8, 300, 70), np.float32)
    kernel = rg.build(softmax, "cpu", cache=False, top_k=2)
    np.testing.assert_allclose(kernel(given), softmax.evaluate(given), rtol=1e-5)


def test_attention_that_no_tile_divides_is_told_what_admits_one():
    """The chain as a whole has no tiles to tell of; its parts have."""
    q, k, v = (T(name, 2, length, 33) for name, length in zip("qkv", (129, 65, 65), strict=True))
    attention = ops.scaled_dot_product_attention(q, k, v)
    with pytest.raises(ConstructionError, match=r"rejected: longer than the axes \d.*epsilon=0\.\d+ .* admits one"):
        rg.construct(attention, "h200", 1, options=rg.BuildOptions(padding=False))
