"""Hopper's ladder in prediction: ``python benches/bench_ladder.py [--keep]``.

bf16 8192^3 on an h200, step by step, beside what an H100 was published to do (pranjalssh/fast.cu, kernels 3 to 11), and
what the same programs took on an H200 (`benches/gpu/products.py`).
Steps have the tiles and warpgroups of these, and a buffer more, as products of two iterations run here. A step's gain
should be within 50 % of the published one. Two things have no counterpart. From cuda::barrier to mbarriers (658 to 777
TFLOP/s): programs have one arrival a warp at all steps. Hilbert's order, which came with stores by the copy engine
(799 to 808): blocks run in groups of rows. Then the ablation: first choices without one of the ways of writing them.
``--keep``: benches/results/ladder.json.  Exits with 1 where a gain or the rate of the whole is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.aims import Aim, verdict
from benches.results import RESULTS, keep_at
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.tile.rules import CodeShapes
from tests.matrices import matmul, planned

SIDE, H200 = 8192, load_device("h200")
LEAST, WITHIN = 700.0, 0.5
WIDE: dict[str, Any] = {"fm": 1, "fn": 32, "gm": 2, "depth": 4, "boxes": True, "producer": True}
CLUSTERS: dict[str, Any] = {**WIDE, "persistent": True, "group_rows": 16, "cluster": 2}
STEPS: tuple[tuple[str, float, float, dict[str, Any]], ...] = (
    ("boxes, one warpgroup, 128 x 128", 0, 488, {"fm": 2, "fn": 16, "gm": 1, "depth": 3, "boxes": True}),
    ("a producer, two warpgroups, 128 x 256", 488, 635, WIDE),
    ("a persistent grid, in groups of 16 rows", 635, 658, {**WIDE, "persistent": True, "group_rows": 16}),
    ("clusters of two", 777, 799, CLUSTERS),
    ("stores by the copy engine", 799, 808, {**CLUSTERS, "box_stores": True}),
)
"""(step, TFLOP/s published before it and with it, fields of its plan)."""
SWITCHES = ("box_copies", "producers", "persistent_grids", "clusters", "box_stores")


def rate(program: RProgram) -> float:
    """TFLOP/s."""
    return 2 * SIDE**3 / float(predict(program, H200).seconds) / 1e12


def measured() -> dict[str, float]:
    """TFLOP/s of each step on an H200."""
    kept = json.loads((RESULTS / "gpu_products_h200.json").read_text(encoding="utf-8"))
    rows = [row for row in kept["rows"] if row["id"].startswith("ladder")]
    return {one["name"]: 2 * SIDE**3 / one["warm"] / 1e6 for row in rows for one in row["programs"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    aims, steps, reached, ran = [], [], 0.0, measured()
    for name, before, published, fields in STEPS:
        expression = matmul(SIDE, SIDE, SIDE, "bfloat16", transpose_b=True)
        found = rate(planned(expression, H200, MatrixPlan("wgmma_bf16", gn=1, steps=4, **fields)))
        steps.append(
            {"step": name, "predicted": round(found, 1), "published": published, "measured": round(ran[name], 1)}
        )
        print(f"{name}: {found:.0f} TFLOP/s; published {published:g}, measured on an H200 {ran[name]:.0f}")
        if before:
            gain, wanted = found / reached - 1, published / before - 1
            met = abs(gain / wanted - 1) <= WITHIN
            aims.append(Aim(f"gain of {name}", f"{gain:+.1%}", f"{wanted:+.1%} within {WITHIN:.0%}", met))
        reached = found
    ablation = {left_out or "nothing": round(rate(_first(left_out)), 1) for left_out in ("", *SWITCHES)}
    whole = ablation["nothing"]
    what = "first choice for bf16 8192^3 on an h200"
    aims.append(Aim(what, f"{whole:.0f} TFLOP/s", f"at least {LEAST:g}", whole >= LEAST))
    for left_out, found in ablation.items():
        print(f"without {left_out}: {found:.0f} TFLOP/s")
    for one in aims:
        print(f"{one.what}: {one.figure}; {one.aim}{'' if one.met else ' MISSED'}")
    if options.keep:
        content = {"headlines": [one.headline() for one in aims], "steps": steps, "without": ablation}
        keep_at(RESULTS / "ladder.json", content)
    return verdict(aims)


def _first(left_out: str) -> RProgram:
    """The first choice where one of the switches is off."""
    shapes = CodeShapes(**({left_out: False} if left_out else {}))
    graph = canonicalize(matmul(SIDE, SIDE, SIDE, "bfloat16", transpose_b=True))
    return construct(graph, H200, BuildOptions(shapes=shapes), 1)[0].program


if __name__ == "__main__":
    raise SystemExit(main())
