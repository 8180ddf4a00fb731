"""Kernels for all sizes: the map, the call, and what they say."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, BundleError, ExpressionError, ShapeError
from rollergen.hal.load import load_device
from rollergen.sizes import regime
from rollergen.sizes.cover import cover, of_orders
from rollergen.sizes.regime import Expression, Pool
from rollergen.sizes.samples import Between, sampled_sizes, samples, sizes_between
from rollergen.targets import resolve

T = rg.tensor


@pytest.fixture(scope="module")
def linear():
    S = rg.dim("S", 1, 9)
    y = rg.ops.relu(rg.ops.linear(T("x", (S, 20)), T("w", (18, 20), constant=True), T("b", (18,))))
    return rg.build(y, "cpu")


def arrays(size, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.integers(-3, 4, shape).astype("float32") for shape in ((size, 20), (18, 20), (18,))]


def test_results_are_exact_at_every_size(linear):
    for size in (*range(1, 10), 4, 9):
        x, w, b = arrays(size, size)
        wanted = np.maximum(x @ w.T + b, 0)
        np.testing.assert_array_equal(linear(x, w, b), wanted)
        np.testing.assert_array_equal(linear.interpret(x, w, b), wanted)
        np.testing.assert_array_equal(linear(b=b, w=w, x=x), wanted)
        out = np.empty((size, 18), np.float32)
        assert linear(x, w, b, out=out) is out
        np.testing.assert_array_equal(out, wanted)


def test_constants_that_change_are_packed_anew_at_every_size(linear):
    x, w, b = arrays(5)
    linear(x, w, b)
    w[...] = 1
    linear.repack()
    for size in (5, 6, 7):
        x = arrays(size)[0]
        np.testing.assert_array_equal(linear(x, w, b), np.maximum(x @ w.T + b, 0))


def test_the_kernel_of_a_size_tells_what_kernels_tell(linear):
    assert str(linear.at(S=7).signature).startswith("kernel(x: float32[7, 20]")
    assert linear.predicted_time(S=7) == linear.at(S=7).predicted_time > 0
    assert "extents as arguments" in linear.at(S=7).explain()
    assert "const int" in linear.at(S=7).source
    assert linear.at(S=7) is linear.at(S=7)


def test_the_map_is_drawn(linear):
    assert linear.signature == "kernel(x: float32[S, 20], w: float32[18, 20], b: float32[18]) -> out: float32[S, 18]"
    text, facts = linear.explain(), linear.explain(as_dict=True)
    assert "S from 1 to 9" in text
    assert len(facts["programs"]) == len(linear.programs) == len(linear.sources) <= 8
    ends = [(one["from"], one["to"]) for one in facts["map"]]
    assert ends == sorted(ends)
    assert facts["loss"]["max"] <= 1.1


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda k: k(*arrays(10)), ShapeError, "dimension 0 of x, which is 10: S is 10; expected an integer from 1 to 9"),
        (lambda k: k.at(S=0), ShapeError, "S is 0; expected an integer from 1 to 9"),
        (lambda k: k.at(T=1), ExpressionError, "T is none of the dims; expected S"),
        (lambda k: k.at(), ExpressionError, "S is missing"),
        (lambda k: k(arrays(5)[0][:, 1:], *arrays(5)[1:]), ShapeError, "expected"),
        (lambda k: k(w=arrays(5)[1], b=arrays(5)[2]), ArgumentError, "x is missing"),
        (lambda k: k.at(S=5).save("/nowhere"), BundleError, "the kernel of one size has extents as arguments"),
    ],
)  # fmt: skip
def test_errors_name_the_dim_its_value_and_its_bounds(linear, call, error, said):
    with pytest.raises(error, match=said):
        call(linear)


def test_sizes_that_are_refused_are_named():
    y = rg.ops.relu(T("x", (rg.dim("S", 1, 9), 20)))
    with pytest.raises(ArgumentError, match="expected integers from 1 to 9"):
        rg.build(y, "v100", sizes={"S": [10]})
    with pytest.raises(ArgumentError, match=r"sizes\['S'\] is 5; expected integers from 1 to 9, such as \[1, 9\]"):
        rg.build(y, "v100", sizes={"S": 5})
    with pytest.raises(ArgumentError, match="sizes names 'T'; expected S"):
        rg.build(y, "v100", sizes={"T": [1]})
    with pytest.raises(ArgumentError, match="no dims"):
        rg.build(rg.ops.relu(T("x", (3, 20))), "v100", sizes={"T": [1]})


def test_a_map_that_is_made_quickly_has_programs_of_few_sizes_for_all_of_them():
    y = rg.ops.relu(rg.ops.linear(T("x", (rg.dim("S", 1, 100), 64)), T("w", (48, 64))))
    device = resolve("v100")
    found = regime.regime_map(Expression(y, None, y.dims), device, BuildOptions(), quick=True)
    assert found.counts == (2, 4, 8, 16, 32, 64, 100)  # at 1 it is another expression
    assert {plan.count for plan in found.plans} <= set(found.counts)
    assert all(max(plan.most for plan in found.plans) >= size for size in (3, 77, 100))
    np.testing.assert_allclose(found.best, found.seconds.min(axis=0) / found.loss)


def test_programs_are_constructed_at_more_sizes_until_a_round_of_them_makes_none_faster():
    """The plans of elements take longer with each further vector, and all sizes are served by the first."""
    y = rg.ops.gelu(T("x", (rg.dim("S", 1, 2048), 64)))
    found = regime.choice_of(Expression(y, None, y.dims), load_device("cpu"), BuildOptions())  # not as completed here
    first = {one["S"] for one in sampled_sizes(y.dims)}
    assert len({*found.counts} - first) == regime._ROUND


@pytest.mark.every(7)
@pytest.mark.parametrize("device", ["v100", "a100", "h200", "mi50"])
def test_kernels_for_gpus_take_the_extent_as_an_argument(device):
    kernel = rg.build(rg.ops.relu(rg.ops.linear(T("x", (rg.dim("S", 2, 40), 64)), T("w", (32, 64)))), device)
    assert all("const int" in source for source in kernel.sources)
    few, many = kernel.at(S=3), kernel.at(S=40)
    assert few.predicted_time <= many.predicted_time
    assert all(launch.sizes == (3,) for launch in few.launches if launch.sizes)


def test_two_dims_that_are_outermost_together_have_one_map():
    B, S = rg.dim("B", 1, 4), rg.dim("S", 1, 6)
    kernel = rg.build(rg.ops.linear(T("x", (B, S, 16)), T("w", (8, 16))), "v100")
    assert len(kernel.programs) >= 1
    draw = np.random.default_rng(0)
    for shape in ((4, 6, 16), (2, 5, 16), (3, 1, 16), (1, 1, 16)):
        x, w = draw.integers(-3, 4, shape).astype("float32"), draw.integers(-3, 4, (8, 16)).astype("float32")
        np.testing.assert_array_equal(kernel.interpret(x, w), x @ w.T)


def test_parts_of_a_reduction_that_are_merged_with_images_are_no_plan():
    S = rg.dim("S", 2, 9)
    x, w = T("x", (S, 64, 7, 7)), T("w", (64, 64, 3, 3), constant=True)
    kernel = rg.build(rg.ops.conv2d(x, w, padding=1), "v100")
    assert kernel.programs
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-3, 4, shape).astype("float32") for shape in ((5, 64, 7, 7), (64, 64, 3, 3)))
    wanted = rg.ops.conv2d(T("x", a.shape), T("w", b.shape), padding=1).evaluate(a, b)
    np.testing.assert_array_equal(kernel.interpret(a, b), wanted)


@pytest.mark.parametrize(("row", "read"), [((9,), lambda x, i, j, n: x[i, j + n]), ((2, 8), lambda x, i, j, n: x[i, n, j])])
def test_rows_that_are_read_at_two_places_have_one_map(row, read):
    """The model prices all counts of rows at once, and asks what else of their tensor is read."""
    N = rg.dim("N", 1, 100)
    x = T("x", (N, *row))
    kernel = rg.build(rg.compute((N, 8), lambda i, j: read(x, i, j, 0) - read(x, i, j, 1)), "cpu", profile=False, cache=False)
    for size in (1, 7, 100):
        array = np.random.default_rng(size).random((size, *row), "float32")
        first, second = (array[:, :-1], array[:, 1:]) if len(row) == 1 else (array[:, 0], array[:, 1])
        np.testing.assert_array_equal(kernel(array), first - second)


def test_sizes_in_offsets_are_built_one_by_one():
    S = rg.dim("S", 2, 9)
    kernel = rg.build(rg.ops.transpose(T("x", (3, S)), 0, 1), "v100")
    assert kernel.programs == ()
    assert "built per size" in kernel.explain()
    for size in (2, 5):
        x = np.arange(3 * size, dtype=np.float32).reshape(3, size)
        np.testing.assert_array_equal(kernel.interpret(x), x.T)


@pytest.mark.parametrize("blocks", [(1,), (0, 2), (0,)])
def test_blocks_that_begin_where_the_size_says_are_read_there(blocks):
    """x[1, i, j] of x[3, S, 5] lies behind S * 5 elements: no number that a program for all sizes has."""
    S = rg.dim("S", 2, 12)
    x = T("x", (3, S, 5))
    made = rg.compute((S, 5), lambda i, j: sum(x[block, i, j] for block in blocks))
    kernel = rg.build(made, "cpu", profile=False, cache=False)
    assert bool(kernel.programs) == (blocks == (0,))
    for size in (2, 5, 12):
        array = np.random.default_rng(size).integers(-9, 9, (3, size, 5)).astype("float32")
        np.testing.assert_array_equal(kernel(array), array[list(blocks)].sum(axis=0))


def test_a_dim_that_no_input_tells_is_refused():
    S = rg.dim("S", 2, 9)
    with pytest.raises(ExpressionError, match="S is the extent of no input"):
        rg.build(rg.compute((S, 3), lambda i, j: i * 2 + j, name="C"), "v100")


def test_a_dim_that_is_the_extent_of_packed_elements_alone_is_refused_with_what_helps():
    S = rg.dim("S", 2, 9)
    packed = lambda *shape: rg.ops.cast(rg.tensor("w", shape, "int4", constant=True), "float32")
    with pytest.raises(ExpressionError, match="w holds two elements to a byte along its last axis: expected a number or twice"):
        rg.build(packed(3, S), "v100")
    with pytest.raises(ExpressionError, match=r"could not tell it$"):  # its last axis has nothing to do with that
        rg.build(rg.compute((S, 3), lambda i, j: packed(3, 4)[j, 0] + rg.cast(i, "float32"), name="C"), "v100")
    assert rg.build(packed(3, 2 * S), "v100").at(S=4).signature.inputs[0].packs == "int4[3, 8]"


def test_few_programs_cover_all_sizes():
    loss = np.array([[1.0, 1.0, 2.0, 3.0], [1.04, 1.01, 1.0, 2.0], [9.0, 9.0, 1.5, 1.0]])
    assert cover(loss, 8) == [1, 2]
    assert cover(loss, 1) == [1]
    assert cover(np.array([[np.inf, 1.0], [1.2, 1.3]]), 1) == [1]


def test_a_program_is_kept_for_the_many_sizes_that_a_sample_stands_for():
    loss = np.array([[1.0, 1.0, 1.0, 1.0, 1.25, 1.25], [1.2, 1.2, 1.2, 1.2, 1.0, 1.0]])
    assert cover(loss, 1) == [0]
    assert cover(loss, 1, np.array([1, 1, 1, 1, 100, 100])) == [1]


def test_a_program_is_kept_for_small_sizes_though_these_are_few():
    counts = [2, 3, 4, *range(8, 4096, 8)]
    small = np.array(counts) < 8
    loss = np.stack([np.where(small, 3.0, 1.0), np.where(small, 1.0, 1.5), np.where(small, 3.0, 1.0001)])
    assert cover(loss, 2, ~small * 1.0, of_orders(counts)) == [0, 1]


def test_sizes_that_are_served_badly_are_fewest():
    """Rather one size far off than two of three beyond what is called far, though that is less in the mean."""
    loss = np.array([[1.0, 1.0, 1.2], [1.08, 1.08, 1.0]])
    assert cover(loss, 1) == [0]


def test_a_map_is_of_all_sizes_not_of_those_at_which_programs_are_constructed(monkeypatch):
    """Of two plans alike at the sizes that were constructed, that which is better between them."""
    at = {1: [1.0, 1.1], 9: [1.1, 1.0], 5: [2.0, 1.0]}
    priced = lambda plans, counts, device: np.array([at[count] for count in counts]).reshape(-1, 2).T[: len(plans)]
    monkeypatch.setattr(regime, "prices_of", priced)
    monkeypatch.setattr(regime, "_stands", lambda plan, counts, device: True)
    S = rg.dim("S", 1, 9)
    y = rg.ops.relu(T("x", (S, 3)))
    for between, wanted in (((), "a"), ((5,), "b")):
        every = {count: Between({"S": count}, 1.0) for count in sorted((1, 9, *between))}
        pool = Pool(Expression(y, None, y.dims), resolve("v100"), BuildOptions(), every)
        pool.plans = ["a", "b"]
        pool.constructed = {count: ({"S": count}, 1.0) for count in (1, 9)}
        assert pool.choice().map(1).plans == (wanted,)


def test_programs_are_constructed_where_the_best_known_one_takes_longer_all_at_once(monkeypatch):
    S = rg.dim("S", 1, 9)
    y = rg.ops.relu(T("x", (S, 3)))
    every = {count: Between({"S": count}, 1.0) for count in range(1, 10)}
    pool = Pool(Expression(y, None, y.dims), resolve("v100"), BuildOptions(), every)
    pool.plans = ["a", "b"]
    seconds = np.array([[1, 1, 1, 3, 3, 3, 3, 3, 3.1], [2, 2, 2, 2, 2, 2, 2, 3.2, 3.3]])
    monkeypatch.setattr(regime, "prices_of", lambda plans, counts, device: seconds[: len(plans)])
    assert pool.steps() == [4, 8, 9]
    pool.construct({"S": 4})
    assert 4 not in pool.steps()


def test_programs_are_exchanged_for_what_is_better_together():
    """Greedily the row that is fair everywhere comes first, beside which neither of the others serves both ends."""
    loss = np.array([[1.2, 1.2, 1.2, 1.2], [1.0, 1.0, 3.0, 3.0], [3.0, 3.0, 1.0, 1.0]])
    assert cover(loss, 1) == [0] and sorted(cover(loss, 2)) == [1, 2]


def test_samples_have_the_ends_and_what_is_asked_for():
    assert samples(5, 5) == [5]
    assert {1, 2, 5, 128, 2048, 4095} <= {*samples(1, 4095)}
    dims = {"S": rg.dim("S", 1, 4096)}
    assert {"S": 77} in sampled_sizes(dims, {"S": [77]})


def test_plans_are_priced_evenly_over_all_sizes():
    one = sizes_between({"S": rg.dim("S", 3, 4096)})
    assert min(one) == 3 and max(one) == 4096 and max(np.diff([*one])) <= 5
    assert {each.weight for each in one.values()} == {1.0}
    two = sizes_between({"B": rg.dim("B", 1, 8), "S": rg.dim("S", 1, 512)})
    assert max(two) == 8 * 512 and all(each.sizes["B"] * each.sizes["S"] == count for count, each in two.items())
    assert list(two) == sorted(two) and len({each.sizes["S"] for each in two.values()}) > 100
    few = sizes_between({"B": rg.dim("B", 1, 4), "S": rg.dim("S", 1, 4)})
    assert few[4].weight == 3  # 1 x 4, 2 x 2, 4 x 1


def test_a_product_in_float16_of_unknown_rows_is_built_for_tensor_cores():
    rows = rg.dim("S", 1, 300)
    product = rg.ops.matmul(rg.tensor("A", (rows, 263), "float16"), rg.tensor("B", (263, 131), "float16"))
    kernel = rg.build(product, "v100")
    assert any("wmma.mma" in source and "load_around(" in source for source in kernel.sources)
