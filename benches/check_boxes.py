"""Products of every step of Hopper's ladder on the CPU: ``python benches/check_boxes.py [--count N]``.

Random products (fp16, bf16, tf32 and int8; either factor turned; batches; shapes with remainders; tiles, buffers), as
many of each step: factors by cp.async, in boxes, with a producer, in a persistent grid, in clusters, and both, then
with results that leave in boxes, too. The emitted CUDA text runs on the stand-in of tests/cuda in each mode of
lateness, and has to give what the interpreter gives, which is held against the definition. Rows are kept as they come,
in results/check_boxes_<cpu>_<day>.json, and a run of the same code goes on from them. Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.aims import Aim, verdict
from benches.results import begun, keep, result_path
from rollergen.emit import emit
from rollergen.program.rprogram import RProgram
from tests.cuda.beside import H200, MODES, assert_agree, drawn
from tests.cuda.host import HostError
from tests.matrices import planned

NAME = "check_boxes"
STEPS: dict[str, dict[str, Any]] = {
    "cp.async": {"boxes": False, "producer": False},
    "boxes": {"producer": False},
    "producer": {"producer": True},
    "persistent": {"producer": True, "persistent": True},
    "clusters": {"producer": True, "cluster": 2},
    "persistent clusters": {"producer": True, "persistent": True, "cluster": 2},
    "stores in boxes": {"producer": True, "persistent": True, "cluster": 2, "box_stores": True},
}
"""Fields of `MatrixPlan`."""
_FIRST = 2000
"""Number of the first draw."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=204, help="products in all, as many of each step")
    wanted = parser.parse_args().count
    rows: list[dict[str, Any]] = begun(result_path(NAME)).get("rows", [])
    drawing = _programs(len(rows), rows[-1]["number"] + 1 if rows else _FIRST)
    aim = _aim(rows)
    while len(rows) < wanted:
        step, number, expression, made = next(drawing)
        state = "right"
        try:
            assert_agree(expression, made, emit(made, H200, "cuda"), MODES)
        except (AssertionError, HostError) as error:
            state = f"wrong: {str(error)[:200]}"
        dtype = made.inputs[0].dtype
        rows.append({"step": step, "number": number, "program": repr(made), "dtype": dtype, "state": state})
        print(len(rows), step, number, state, flush=True)
        aim = _aim(rows)
        keep(NAME, {"headlines": [aim.headline()], "modes": len(MODES), "rows": rows})
    return verdict([aim])


def _aim(rows: list[dict[str, Any]]) -> Aim:
    right = Counter(row["step"] for row in rows if row["state"] == "right")
    figure = f"{right.total()} of {len(rows)} right: " + ", ".join(f"{right[step]} {step}" for step in STEPS)
    what = "Random products of every step of the ladder on the stand-in"
    return Aim(what, figure, "all right", right.total() == len(rows))


def _programs(done: int, first: int) -> Iterator[tuple[str, int, object, RProgram]]:
    """(step, number of the draw, expression, program) without end, in turns, behind the ``done`` ones, from the
    ``first`` draw on; draws whose grids have not what a step is about are left out."""
    numbers = count(first)
    for step in islice(cycle(STEPS), done % len(STEPS), None):
        for number in numbers:
            expression, plan = drawn(number, (280, 260, 280), STEPS[step].get("box_stores", False))
            plan = replace(plan, **STEPS[step])
            made = planned(expression, replace(H200, units=2), plan)
            stage = made.stages[0]
            order, stored = stage.block_order, bool(stage.store.boxes) == plan.box_stores
            if stored and bool(order.cluster) == bool(plan.cluster) and bool(order.launched) == plan.persistent:
                yield step, number, expression, made
                break


if __name__ == "__main__":
    raise SystemExit(main())
