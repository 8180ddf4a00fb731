"""A few rows times a matrix: few of the matrix' rows at a time, whatever their number."""

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.roles import contraction_roles
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.space.contraction import serial_tiles
from rollergen.tile.rules import AlignmentRules
from tests.program.hand_devices import AVX512


def product(m, n, k):
    return canonicalize(rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n))))


def steps(graph):
    (op,) = graph.tensor_ops
    roles = next(contraction_roles(op))
    space = serial_tiles(op, roles, AVX512, AlignmentRules(), 4, 64, False, 0)
    return next(digit.choices for digit in space.digits if digit.name == "kc")


@pytest.mark.parametrize("rows", [1, 2, 14])
@pytest.mark.parametrize("k", [1024, 4096, 11008, 16384])
def test_eight_rows_are_read_at_once_as_far_as_sums_stay_exact_enough(rows, k):
    assert min(steps(product(rows, 512, k))) == 8


def test_two_rows_read_a_matrix_beyond_the_caches_as_it_lies():
    (best,) = construct(product(2, 4096, 4096), load_device("cpu"), BuildOptions(), top_k=1)
    (stage,) = best.program.stages
    assert next(loop for loop in stage.loops if loop.axis == "k").stride == 8 and not stage.copies


def test_the_matrix_of_a_long_vector_is_read_more_rows_at_a_time():
    """No more than 2048 partial sums are added up in the output."""
    assert min(steps(product(1, 512, 65536))) == 32


def test_products_of_matrices_add_up_fewer_partial_sums():
    assert min(steps(product(16, 512, 16384))) == 64
