"""Plans (rTiles of every layer and the decisions beside them) spelled out as stages."""

from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.reduction import reduction_stage, row_stage

__all__ = ["contraction_stage", "elementwise_stage", "reduction_stage", "row_stage"]
