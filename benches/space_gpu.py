"""The published GPU space: CLBlast's GEMM, C = A B + C with M = N = K = 4096, A, B and C stored along m, n and m.

Columns as their authors describe them: a block of MWG x NWG with steps of KWG, MDIMC x NDIMC threads that
own wm x wn *adjacent* outputs each, vectors of VWM and VWN, operands staged (SA, SB) or read through the L1; a
staging thread moves MWG/MDIMA (NWG/NDIMB) adjacent floats of consecutive rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rollergen.expr.stages import Graph
from rollergen.program.rprogram import RProgram
from rollergen.store.kernel_tuner import gemm_graph, gemm_program

SIZE = 4096
MEASURED = ("time_ms", "rel_iqr")


@lru_cache(maxsize=1)
def graph() -> Graph:
    return gemm_graph(SIZE, SIZE, SIZE)


def gpu_program(row: Mapping[str, str]) -> RProgram:
    """The rProgram of one row."""
    return gemm_program({name: int(value) for name, value in row.items() if name not in MEASURED}, graph())
