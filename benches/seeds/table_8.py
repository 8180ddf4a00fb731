"""Pruner's Table 8: linear layers of BERT on an A100, beside the paper's figures."""

from __future__ import annotations

from functools import partial

import rollergen as rg
from benches.seeds import predicted
from benches.seeds.finding import Finding

TABLE_8 = {
    "1": (768, 2304, 13.17, 11.63),
    "2": (768, 768, 10.96, 9.53),
    "3": (768, 3072, 14.01, 12.84),
    "4": (3072, 768, 18.96, 23.46),
}
"""K, N, microseconds of the vendor's library and of Pruner; M is 128, float16, A100."""


def linear(k: int, n: int) -> rg.Tensor:
    return rg.ops.matmul(rg.tensor("A", (128, k), "float16"), rg.tensor("B", (k, n), "float16"), name="C")


def found() -> Finding:
    layers = [(id, partial(linear, k, n)) for id, (k, n, _, _) in TABLE_8.items()]
    said = predicted.operators("a100", layers)
    rows = tuple(
        {**row, "library us (paper)": TABLE_8[row["operator"]][2], "Pruner us (paper)": TABLE_8[row["operator"]][3]}
        for row in said.rows
    )
    ours = ", ".join(f"{row['predicted us']:.1f}" for row in rows) + " us predicted"
    return Finding(said.state, ours, rows, said.why)
