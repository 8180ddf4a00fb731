"""What a matrix instruction multiplies in one stage."""

from __future__ import annotations

from rollergen.errors import ProgramError
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Instruction
from rollergen.lower.context import Context
from rollergen.lower.matrix_ir import MatrixShape
from rollergen.program.matrix import Operands, first_fragment_loop, matrix_axes, matrix_operands
from rollergen.program.rprogram import GROUP


@dataclass(frozen=True)
class Matrices:
    """The instruction in one stage: the ``operands`` whose products the components are; ``depth`` of its tiles;
    positions of the loops over ``rows`` and ``columns`` of fragments (none where there is one), and of those ``inside``
    one."""

    instruction: Instruction
    shape: MatrixShape
    operands: Operands
    depth: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inside: tuple[int, ...]

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        return self.operands.products

    @property
    def loads(self) -> tuple[int, ...]:
        """The numbers of all loads that are staged."""
        columns = tuple(number for number, _ in self.operands.columns)
        return tuple(dict.fromkeys((*(number for pair in self.products for number in pair), *columns)))


def matrices_of(context: Context) -> Matrices:
    stage = context.nest.stage
    one = context.nest.device.instruction(stage.compute.instruction)
    operands = matrix_operands(stage.op, matrix_axes(stage), one)
    if operands is None:
        raise ProgramError(f"stage {stage.name}: {one.name} along {matrix_axes(stage)} has no factors to multiply")
    shape = MatrixShape(one.m, one.n, one.k, one.dtype, one.accumulator_dtype, one.layout)
    depth = first_fragment_loop(stage, context.nest.device)
    m, n, k = matrix_axes(stage)
    sizes = {m: one.m, n: one.n, k: one.k}
    over = lambda axis: tuple(
        p for p, x in enumerate(stage.loops) if p >= depth and x.axis == axis and x.stride >= sizes[axis]
    )
    inside = tuple(
        p for p, x in enumerate(stage.loops) if x.kind != GROUP and x.axis in sizes and x.stride < sizes[x.axis]
    )
    return Matrices(one, shape, operands, depth, over(m), over(n), inside)
