"""Vectors divided by a number: by its reciprocal, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.emit.division import functions, reciprocal
from rollergen.hal.spec import Target
from tests.lower.harness import runtime
from tests.program.hand_devices import AVX512


def quotients(x, number, lanes=16):
    """``x / number`` by the function of vectors of so many lanes."""
    prefix, run = "__attribute__((always_inline)) static inline ", runtime()
    vector = f"typedef float float{lanes} __attribute__((ext_vector_type({lanes})));\n" if lanes > 16 else ""
    text = vector + "\n".join(functions(lanes, prefix).values())
    text += f"""
kernel __attribute__((min_vector_width(512))) __attribute__((reqd_work_group_size(1, 1, 1)))
void by(global const float *x, global float *y)
{{
    float{lanes} value;
    for (int lane = 0; lane < {lanes}; ++lane) value[lane] = x[get_group_id(0)*{lanes} + lane];
    value = divided_by{lanes}(value, {number!r}f, {reciprocal(number)!r}f);
    for (int lane = 0; lane < {lanes}; ++lane) y[get_group_id(0)*{lanes} + lane] = value[lane];
}}"""
    y = np.zeros_like(x)
    kernel = run.compile(text).kernel("by")
    run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
    run.launch(kernel, len(x) // lanes, 1)
    run.finish()
    return y


@pytest.mark.parametrize("number", [9.0, 3.0, 49.0, 0.1, -7.0, 1e-9, 12345.678])
def test_quotients_are_those_of_a_division(number):
    number = float(np.float32(number))
    rng = np.random.default_rng(0)
    whole = rng.integers(-1000, 1000, 4096).astype(np.float32) * np.float32(number)
    x = np.concatenate([rng.standard_normal(4096, dtype=np.float32), whole, np.float32([0.0, -0.0] * 32)])
    y, expected = quotients(x, number), x / np.float32(number)
    assert (y == expected).all() and (np.signbit(y) == np.signbit(expected)).all()


def test_infinities_and_nan_stay_what_they_are():
    x = np.float32([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 0.0, -0.0] * 8)
    assert np.array_equal(quotients(x, 9.0, 64), x / np.float32(9), equal_nan=True)


def test_numbers_that_would_under_or_overflow_are_divided_by():
    assert [reciprocal(number) for number in (0.0, 1e-30, 1e30, float("inf"), float("nan"))] == [None] * 5


def test_averages_of_a_cpu_multiply_by_the_reciprocal():
    x = rg.tensor("X", (1, 64, 35, 35))
    wide = Target("opencl", dialect=(("kernel_attribute", "__attribute__((min_vector_width(512)))"), ("masked_vectors", "512")))
    for device, found in ((replace(AVX512, targets=(wide,)), True), (AVX512, False)):
        (program, *_) = rg.construct(rg.ops.avg_pool2d(x, 3, 1, 1), device, 1)
        assert ("divided_by16" in emit(program, device).text) is found
