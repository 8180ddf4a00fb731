"""Arguments that nobody means: each is named, none raises what Python would."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, ExpressionError, RollergenError
from rollergen.hal.errors import BuildError, RuntimeUnavailableError, SpecError

X = rg.tensor("X", (4,))


@pytest.mark.parametrize("name", ["out", "stream", "rounds"])
def test_names_of_a_call_s_own_arguments_are_refused(name):
    with pytest.raises(ExpressionError, match=f"name is '{name}'"):
        rg.tensor(name, (4,))


@pytest.mark.parametrize(
    "fn",
    [
        None, 3, int, max, lambda: 1.0, lambda i, j: X[i], lambda *, i: X[i], lambda i: None, lambda i: "a",
        lambda i: (X[i], X[i]), lambda i: np.zeros(3), print,
    ],
)  # fmt: skip
def test_odd_callables_of_compute_are_refused_by_name(fn):
    with pytest.raises(RollergenError):
        rg.compute((4,), fn)


@pytest.mark.parametrize("scalar", [10**400, -(10**400), 1 << 20000, 1j, np.complex64(1), np.longdouble(1)], ids=type)
def test_scalars_that_no_double_holds_are_refused(scalar):
    with pytest.raises(RollergenError):
        rg.compute((4,), lambda i: X[i] + scalar)


def test_integers_beyond_their_dtype_are_refused():
    x = rg.tensor("N", (4,), "int32")
    with pytest.raises(RollergenError, match="does not fit int32"):
        rg.compute((4,), lambda i: x[i] + 2**70)


@pytest.mark.parametrize("inputs", [5, X, "X", np.zeros(3), [X, 5]])
def test_inputs_that_are_no_list_of_tensors_are_refused(inputs):
    with pytest.raises(RollergenError, match="inputs"):
        rg.build(rg.compute((4,), lambda i: X[i] + 1.0), "v100", inputs=inputs, profile=False)


@pytest.mark.parametrize(
    "options",
    [
        {"max_units": True}, {"max_units": 0}, {"epsilon": float("inf")}, {"epsilon": float("nan")}, {"epsilon": -1},
        {"alignment": None}, {"time_budget_s": 0}, {"time_budget_s": 10**400},
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        rg.BuildOptions(**options)


@pytest.mark.parametrize("error", [SpecError, BuildError, RuntimeUnavailableError])
def test_errors_of_the_hardware_layer_are_rollergen_s(error):
    assert issubclass(error, RollergenError)


def test_expressions_nested_too_deeply_are_refused():
    def chain(i):
        value = X[i]
        for _ in range(2000):
            value = value + 1.0
        return value

    with pytest.raises(ExpressionError, match="nested too deeply"):
        rg.compute((4,), chain)
    tensor = X
    for _ in range(2000):
        tensor = rg.ops.add(tensor, X)
    with pytest.raises(ExpressionError, match="nested too deeply"):
        rg.build(tensor, "v100", profile=False)
