"""ONNX models whose extents with a name are dims: one model for all sizes in their ranges."""

from functools import cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, BundleError, ExpressionError, ShapeError
from rollergen.network.model import Model

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.network.test_onnx_models import FLOAT, model, weights  # noqa: E402

HIGH = 24
SIZES = (HIGH, 1, 2, 7, 8, 13, 16, 23, 7)
"""The ends, tile multiples, primes, and one that was called before."""


def perceptron():
    return model(
        [
            ("Gemm", "x w b", "h", {}), ("Relu", "h", "a", {}), ("Gemm", "a w2 b2", "z", {}),
            ("Softmax", "z", "y", {"axis": -1}),
        ],
        [("x", FLOAT, ["N", 20])], [("y", FLOAT, ["N", 12])],
        w=weights(20, 48), b=weights(48), w2=weights(48, 12), b2=weights(12),
    )  # fmt: skip


def images():
    """The batch comes back through Shape, Gather and Concat; a row of weights is expanded to it."""
    return model(
        [
            ("Conv", "x w b", "c", {"pads": [1, 1, 1, 1]}), ("Relu", "c", "r", {}),
            ("Shape", "r", "shape", {}), ("Gather", "shape zero", "batch", {"axis": 0}),
            ("Concat", "batch rest", "flat", {"axis": 0}), ("Reshape", "r flat", "f", {}),
            ("MatMul", "f w2", "m", {}), ("Concat", "batch five", "wide", {"axis": 0}),
            ("Expand", "row wide", "e", {}), ("Add", "m e", "y", {}),
        ],
        [("x", FLOAT, ["N", 3, 6, 6])], [("y", FLOAT, ["N", 5])],
        w=weights(6, 3, 3, 3), b=weights(6), w2=weights(6 * 36, 5), row=weights(1, 5), zero=np.array([0], np.int64),
        rest=np.array([-1], np.int64), five=np.array([5], np.int64),
    )  # fmt: skip


SHAPES = {perceptron: (20,), images: (3, 6, 6)}


def compiled(made, device="cpu", **dims):
    return rg.compile(made, None, device, dims=dims or {"N": (1, HIGH)}, profile=False)


@cache
def sized_perceptron():
    """(the model, the compiled one), shared by tests that only call it."""
    made = perceptron()
    return made, compiled(made)


def given(size, *shape):
    return np.random.default_rng(size).standard_normal((size, *shape)).astype(np.float32)


def close(sized, made, *arrays):
    names = [one.name for one in made.graph.input]
    (wanted,) = ReferenceEvaluator(made).run(None, dict(zip(names, arrays, strict=True)))
    found = sized(*arrays)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", SHAPES)
def test_every_size_of_the_range_is_right_with_one_build_of_each_kernel(make, counts):
    made = make()
    sized = compiled(made)
    for size in (HIGH, 1):  # sizes of which one axis is dropped have kernels of their own
        close(sized, made, given(size, *SHAPES[make]))
    built = counts["constructed"]
    for size in SIZES:
        close(sized, made, given(size, *SHAPES[make]))
    assert counts["constructed"] == built
    alone = len(sized.at(N=1).kernels)
    assert counts["compiled"] <= sum(len(one.programs) for one in sized.kernels) + alone
    assert all(sized.at(N=7).kernels[n].code is not None for n in range(len(sized.kernels)))


def test_weights_are_packed_once_for_all_sizes_of_a_program():
    made, sized = sized_perceptron()
    close(sized, made, given(7, 20))
    close(sized, made, given(23, 20))
    one, other = sized.at(N=7), sized.at(N=23)
    shared = one._execution._shared
    assert shared is other._execution._shared
    codes = {kernel.code for kernel in (*one.kernels, *other.kernels)}
    assert len(shared.packed) <= len(codes)
    assert other._execution._block is shared.block


def test_a_model_with_dims_tells_its_signature_its_times_and_its_steps():
    sized = compiled(images(), "v100")
    assert sized.signature == "net(x: float32[N, 3, 6, 6])"
    assert 0 < sized.predicted_time(N=1) <= sized.predicted_time(N=HIGH) == sized.at(N=HIGH).predicted_time
    text, facts = sized.explain(), sized.explain(as_dict=True)
    assert f"N from 1 to {HIGH}" in text
    assert f"predicted N = {HIGH}: " in text
    assert [one["state"].split(maxsplit=1)[1] for one in facts["steps"]] in ([x] * 2 for x in ("program for all sizes", "programs for all sizes"))  # fmt: skip


def test_a_machine_of_tiles_builds_each_size():
    sized = compiled(perceptron(), "ipu", N=(1, 4))
    reasons = {one["reason"] for one in sized.explain(as_dict=True)["steps"]}
    assert reasons == {"a machine of tiles has no maps"}
    assert sized.predicted_time(N=4) > 0


def test_each_size_is_a_model_that_can_be_checked():
    sized = compiled(images())
    assert all(not one.problem for one in sized.at(N=5).check(given(5, 3, 6, 6)))
    assert "x: float32[5, 3, 6, 6]" in sized.at(N=5).explain()


def test_constants_that_follow_from_sizes_are_those_of_the_size():
    """Positions: Shape, Range and Gather of a table are known, and others at each size."""
    made = model(
        [
            ("Shape", "x", "shape", {}), ("Gather", "shape one", "s", {"axis": 0}),
            ("Range", "zero s step", "places", {}), ("Gather", "table places", "rows", {"axis": 0}),
            ("Add", "x rows", "h", {}), ("MatMul", "h w", "y", {}),
        ],
        [("x", FLOAT, [1, "S", 16])], [("y", FLOAT, [1, "S", 8])],
        table=weights(12, 16), w=weights(16, 8), one=np.array(1, np.int64), zero=np.array(0, np.int64),
        step=np.array(1, np.int64),
    )  # fmt: skip
    sized = compiled(made, S=(1, 12))
    for size in (12, 1, 5, 8, 11, 5):
        close(sized, made, given(size, 16)[None])


def test_two_extents_are_two_dims_and_a_number_fixes_one():
    made = model(
        [("MatMul", "x w", "h", {}), ("Relu", "h", "a", {}), ("Mul", "a mask", "y", {})],
        [("x", FLOAT, ["N", "S", 16]), ("mask", FLOAT, ["S", 8])], [("y", FLOAT, ["N", "S", 8])], w=weights(16, 8),
    )  # fmt: skip
    sized = compiled(made, N=(1, 3), S=rg.dim("length", 2, 9))
    assert sized.signature == "net(x: float32[N, length, 16], mask: float32[length, 8])"
    for n, s in ((3, 9), (1, 2), (2, 7), (3, 5)):
        close(sized, made, given(n * s, 16).reshape(n, s, 16), given(s, 8))
    fixed = compiled(made, N=(1, 3), S=4)
    close(fixed, made, given(8, 16).reshape(2, 4, 16), given(4, 8))
    assert isinstance(compiled(made, N=2, S=4), Model)
    with pytest.raises(ShapeError, match=r"mask has shape \(3, 8\); expected \(4, 8\), as N = 2 by dimension 0 of x"):
        fixed(given(8, 16).reshape(2, 4, 16), given(3, 8))


def test_what_a_library_runs_is_run_by_it_at_every_size():
    made = model(
        [("MatMul", "x w", "h", {}), ("Det", "h", "d", {}), ("Relu", "d", "y", {})],
        [("x", FLOAT, ["N", 3, 4])], [("y", FLOAT, ["N"])], w=weights(4, 3),
    )  # fmt: skip
    sized = compiled(made)
    states = {one["operators"]: one["state"] for one in sized.explain(as_dict=True)["steps"]}
    assert states["Det"] == "host"
    for size in (HIGH, 3, 1):
        close(sized, made, given(size, 3, 4))


def test_a_size_at_which_the_graph_has_other_nodes_has_a_model_of_its_own():
    """A recurrence is written out, step by step."""
    made = model(
        [("RNN", "x w r", "y", {"hidden_size": 4})], [("x", FLOAT, ["S", 2, 3])], [("y", FLOAT, ["S", 1, 2, 4])],
        w=weights(1, 4, 3), r=weights(1, 4, 4),
    )  # fmt: skip
    sized = compiled(made, S=(1, 3))
    for size in (3, 2, 1):
        close(sized, made, given(size, 2, 3))
    assert sized.explain(as_dict=True)["sizes with a model of their own"] == [{"S": 2}, {"S": 1}]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda m: m(given(HIGH + 1, 20)), ShapeError, f"dimension 0 of x, which is 25: N is 25; expected an integer from 1 to {HIGH}"),
        (lambda m: m(given(5, 21)), ShapeError, r"x has shape \(5, 21\); expected \(5, 20\), as N = 5 by dimension 0 of x"),
        (lambda m: m(given(5, 20)[0]), ShapeError, "expected"),
        (lambda m: m(np.float32(1)), ShapeError, "whose dimension 0 tells N"),
        (lambda m: m.at(N=0), ShapeError, f"N is 0; expected an integer from 1 to {HIGH}"),
        (lambda m: m.at(M=1), ExpressionError, "M is none of the dims; expected N"),
        (lambda m: m(), ArgumentError, "expected one for each of x"),
        (lambda m: m.save("/nowhere"), BundleError, "cannot be saved: its kernels have extents as arguments"),
    ],
)  # fmt: skip
def test_a_call_with_other_sizes_is_told_the_dim_its_value_and_its_range(call, error, said):
    with pytest.raises(error, match=said):
        call(sized_perceptron()[1])


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"M": (1, 4)}, "dims names 'M', which is no extent of an input of net; expected N"),
        ({}, r"dimension 0 of input x of net is N, which has no upper bound; expected a range such as dims=\{'N': \(1, 64\)\}"),
        ({"N": (4, 2)}, "low is 4 and high is 2"),
        ({"N": (0, 2)}, "low is 0; expected an integer from 1"),
        ({"N": "all"}, r"dims\['N'\] is 'all'; expected \(low, high\), rg.dim\(...\) or a number"),
        ([1], "dims is "),
    ],
)  # fmt: skip
def test_ranges_that_are_none_are_refused(dims, said):
    with pytest.raises(ArgumentError, match=said):
        rg.compile(perceptron(), None, "v100", dims=dims)


def test_dims_beside_example_inputs_or_without_a_model_of_onnx_are_refused():
    with pytest.raises(ArgumentError, match="example_inputs beside dims"):
        rg.compile(perceptron(), (given(3, 20),), "v100", dims={"N": (1, 4)})
    with pytest.raises(ArgumentError, match="dims beside 'net'"):
        rg.compile("net", None, "v100", dims={"N": (1, 4)})
