"""Products whose weights are narrow: expressions, and programs that convert them on the way to matrix instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import rollergen as rg
from rollergen.construct.copies import copy_stage
from rollergen.construct.variants import Variant, variants
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.spec import Device
from rollergen.program.assemble.matrix import MatrixPlan, axes_of, matrix_stage
from rollergen.program.check import check
from rollergen.program.matrix import matrix_operands
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True)
class Narrow:
    """``m x k`` activations times weights that lie ``(k, n)``, or ``(n, k)`` where ``turned``; ``group``: neighbours
    along k that share a scale (0: a column does; -1: there is none) and, of ``zero``, a zero point of that dtype."""

    m: int
    k: int
    n: int
    weights: str = "int8"
    group: int = -1
    zero: str = ""
    turned: bool = False
    dtype: str = "float16"
    constant: bool = True

    def expression(self):
        shape = (self.n, self.k) if self.turned else (self.k, self.n)
        a = rg.tensor("A", (self.m, self.k), self.dtype)
        w = rg.tensor("W", shape, self.weights, constant=self.constant)
        s, z = self._of_columns("S", self.dtype), self._of_columns("Z", self.zero)
        k = rg.reduce_axis("k", self.k)

        def weight(i, j):
            value = rg.cast(w[(j, i) if self.turned else (i, j)], self.dtype)
            value = value - rg.cast(z(i, j), self.dtype) if self.zero else value
            return value if self.group < 0 else value * s(i, j)

        b = rg.compute((self.k, self.n), weight, name="B")  # rounded to the dtype, as a tensor of it is
        return rg.compute((self.m, self.n), lambda i, j: rg.sum(a[i, k] * b[k, j], axis=k), name="C")

    def _of_columns(self, name, dtype):
        if not dtype or (name == "S" and self.group < 0):
            return None
        if self.group <= 0:
            one = rg.tensor(name, (self.n,), dtype, constant=self.constant)
            return lambda i, j: one[j]
        groups = self.k // self.group
        shape = (self.n, groups) if self.turned else (groups, self.n)
        one = rg.tensor(name, shape, dtype, constant=self.constant)
        return lambda i, j: one[(j, i // self.group) if self.turned else (i // self.group, j)]


def converting(case: Narrow, device: Device, weights_first: bool = False) -> tuple[Variant, str]:
    """The variant that converts the case's weights, and the instruction that multiplies them."""
    (op,) = canonicalize(case.expression()).tensor_ops
    for variant in variants(op, device):
        for one in device.instructions:
            operands = matrix_operands(variant.op, axes_of(variant.roles), one) if one.is_matrix else None
            if operands is None or not operands.conversions or not variant.by_matrices:
                continue
            if weights_first == (operands.conversions[0][0] in operands.a):
                return variant, one.name
    raise AssertionError(f"no variant converts {case}")


def program(
    case: Narrow, device: Device, *plan: int, weights_first: bool = False, chains: int = 1, gk: int = 1
) -> RProgram:
    """A program from a plan written out (`MatrixPlan`), behind the copies of its variant; ``weights_first``: they are
    the m x k factor, so that the plan's tiles and warps change places."""
    graph = canonicalize(case.expression())
    variant, instruction = converting(case, device, weights_first)
    if weights_first:
        (fm, fn, gm, gn), rest = plan[:4], plan[4:]
        plan = (fn, fm, gn, gm, *rest)
    stage = matrix_stage(variant.op, variant.roles, MatrixPlan(instruction, *plan, chains=chains, gk=gk), device)
    copies = tuple(copy_stage(copy, device) for copy in variant.copies)
    made = tuple(copy.output for copy in variant.copies)
    found = RProgram(device.name, graph.inputs, graph.outputs, (*copies, stage), made)
    check(found, device)
    return found


def drawn(made: RProgram, seed: int = 0) -> Mapping[str, np.ndarray]:
    """Inputs of which all products and sums are exact: integers of any value, floats that are small integers, scales that
    are powers of two."""
    random = np.random.default_rng(seed)

    def one(buffer):
        if numpy_dtype(buffer.dtype).kind in "iu":
            whole = np.iinfo(numpy_dtype(buffer.dtype))
            return random.integers(whole.min, whole.max, buffer.shape, buffer.dtype, endpoint=True)
        values = 2.0 ** random.integers(-2, 2, buffer.shape)
        values = random.integers(-3, 4, buffer.shape) if buffer.name != "S" else values
        return np.asarray(values).astype(numpy_dtype(buffer.dtype))

    return {buffer.name: one(buffer) for buffer in made.inputs}
