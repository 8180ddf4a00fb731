"""Products by wgmma, with every way of filling buffers and storing results, timed: ``python benches/gpu/products.py``.

What persistent grids, clusters, the copy engine and its stores bring, and what blocks take beside their steps: sums of
64 to 8192 terms by blocks of 128 x 256 and 64 x 128 outputs, and the ladder of `bench_ladder.py`.  All programs of a
product are compiled at once, each is held to torch's result of the same dtype, and all are timed in turns with torch's
call (`timer.py`).  Programs and inputs are fixed, so that nothing but the model's predictions depends on its constants.
Rows are kept in results/gpu_products_<spec>.json.  Exits with 1 where a program is wrong, with 3 where time ran out:
call it again.
"""

from __future__ import annotations

import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.bench_ladder import STEPS
from benches.gpu import candidates, machine
from benches.gpu.machine import Machine
from benches.gpu.peers import fix_precision
from benches.gpu.rows import Row, Rows
from benches.gpu.timer import Timer
from rollergen.hal.probes.host_facts import cores
from rollergen.measure.outcome import Outcome
from rollergen.measure.profiler import written
from rollergen.program.assemble.matrix import MatrixPlan
from tests.matrices import matmul, planned

NAME, SUITE = "products", "products"
DTYPE = "bfloat16"
BUDGET_S = 75.0
MOST_ERROR = 1e-2
"""Largest difference to torch's result over its largest element: of roundings to bfloat16, one is 2^-8."""

WIDE = {"fm": 1, "fn": 32, "gm": 2, "depth": 4, "group_rows": 16}
SMALL = {"fm": 1, "fn": 16, "gm": 1, "depth": 4}
WAYS: dict[str, dict[str, Any]] = {
    "copies by threads": {},
    "boxes": {"boxes": True},
    "producer": {"boxes": True, "producer": True},
    "persistent": {"boxes": True, "producer": True, "persistent": True},
    "clusters": {"boxes": True, "producer": True, "cluster": 2},
    "persistent, clusters": {"boxes": True, "producer": True, "persistent": True, "cluster": 2},
}
STORES = {"": {}, "boxes stored": {"box_stores": True}}


@dataclass(frozen=True)
class Case:
    """A product of (m, k) and (n, k), and the plans that compute it, by name."""

    name: str
    m: int
    k: int
    n: int
    plans: dict[str, dict[str, Any]]

    @property
    def id(self) -> str:
        return f"{self.name} {self.m}x{self.k}x{self.n}"

    def programs(self, on: Machine) -> list[Outcome]:
        expression = matmul(self.m, self.k, self.n, DTYPE, transpose_b=True)
        made = [
            planned(expression, on.device, MatrixPlan("wgmma_bf16", gn=1, steps=4, **plan))
            for plan in self.plans.values()
        ]
        return list(written(made, on.device)[0])


def _ways(tile: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Plans of one tile, by name.  Results leave in boxes only where factors come in boxes."""
    return {
        ", ".join(filter(None, (way, store))): {**tile, **WAYS[way], **STORES[store]}
        for way in WAYS for store in STORES
        if not (way == "copies by threads" and store)
    }  # fmt: skip


def cases(dry: bool) -> dict[tuple[str, str], Case]:
    m, n, side = (128, 128, 128) if dry else (4096, 8192, 8192)
    found = [Case("128 x 256", m, k, n, _ways(WIDE)) for k in ((64, 128) if dry else (64, 128, 256, 512, 1024, 8192))]
    found += [Case("64 x 128", m, k, n, _ways(SMALL)) for k in ((64,) if dry else (64, 256, 1024))]
    if not dry:
        found.append(Case("ladder", side, side, side, {name: fields for name, _, _, fields in STEPS}))
    return {(SUITE, one.id): one for one in found}


def compile_all(found: list[Case], on: Machine) -> None:
    """In as many threads as there are cores: NVRTC lets go of Python's lock."""
    texts = {one.source.text for case in found for one in case.programs(on) if not one.problems}
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(on.runtime.compile, texts))


def row(case: Case, on: Machine, timer: Timer) -> Row:
    started = time.perf_counter()
    found = case.programs(on)
    with on.only_for_a_while():
        first = rg.Kernel(on.device, found, found[0])
        a, b = on.inputs(first)
        library = partial(_product, a, b)
        want, arrays = library(), on.arrays((a, b))
        programs: list[Row] = []
        calls: dict[str, Any] = {}
        for name, one in zip(case.plans, found, strict=True):
            programs.append({"name": name, **candidates.facts(one, on)})
            if one.problems:
                continue
            kernel = rg.Kernel(on.device, found, one)
            got = on.tensor(kernel(*arrays))
            programs[-1]["error"] = float((got.double() - want.double()).abs().max() / want.double().abs().max())
            (into,) = on.arrays([on.empty(kernel)])
            calls[name] = partial(kernel, *arrays, out=into)
        times = timer.alternate({**calls, "torch": library}, 0.0, "warm")
    for one in programs:
        if took := times.get(one["name"]):
            one["warm"] = took.median_us
    took = times["torch"]
    wrong = [one["name"] for one in programs if not one.get("error", math.inf) <= MOST_ERROR and not one["problems"]]
    return {
        "dtype": DTYPE, "state": f"wrong: {', '.join(wrong)}" if wrong else "timed",
        "torch": took and took.median_us, "programs": programs,
        "seconds": round(time.perf_counter() - started, 2),
    }  # fmt: skip


def _product(a: Any, b: Any) -> Any:
    return a @ b.t()


def summary(rows: list[Row]) -> Row:
    """``off``: the root mean square of ln(predicted / measured)."""
    timed = [one for row in rows for one in row.get("programs", ()) if "warm" in one]
    off = [math.log(one["predicted_us"] / one["warm"]) for one in timed]
    return {
        "products": len(rows), "programs": len(timed),
        "wrong": sum(row["state"].startswith("wrong") for row in rows),
        "off": round(math.sqrt(sum(one * one for one in off) / len(off)), 4) if off else None,
    }  # fmt: skip


def shown(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        lines.append(f"{one['id']}: {one['state']}; torch {one.get('torch')} us")
        for program in one.get("programs", ()):
            predicted, warm = program["predicted_us"], program.get("warm", math.nan)
            lines.append(f"    {program['name']:<36}{predicted:>10.1f}{warm:>10.1f}")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    parser = machine.parser(__doc__)
    parser.set_defaults(budget_s=BUDGET_S)
    given = machine.parsed(parser, words)
    on = machine.machine(given)
    found = {key: one for key, one in cases(given.dry_run).items() if not given.only or one.id in given.only}
    if not given.dry_run:
        compile_all(list(found.values()), on)
    facts = {**on.facts(), "precision": fix_precision(), "rollergen": rg.__version__}
    rows = Rows(machine.path(given.results, NAME, on.device), facts, summary)
    timer = Timer(on.runtime)
    code = rows.fill(
        found, lambda key: row(found[key], on, timer), machine.budget(given), again=given.again, retry=given.retry,
        alive=on.alive,
    )  # fmt: skip
    print(shown(rows.all()))
    return code or int(any(one["state"] != "timed" for one in rows.all()))


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
