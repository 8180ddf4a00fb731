"""Axes of a computed tensor have distinct names, whatever the parameters of its function are called."""

import numpy as np

import rollergen as rg


def test_a_starred_parameter_does_not_repeat_the_name_of_another():
    A = rg.tensor("A", (3, 3))
    B = rg.compute((3, 3), lambda i0, *i: A[i0, i[0]])
    values = np.arange(9.0).reshape(3, 3)
    assert np.array_equal(B.evaluate(values), values)
