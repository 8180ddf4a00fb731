"""Products with narrow weights on the GPU, beside torch's product in float16: ``python benches/gpu/narrow.py``.

``y = x @ (q * s).T``: x of M rows in float16, q of int8 or int4, s a scale in float16 for each 128 neighbours of a row
of q.  The model's first three programs of each size are compiled (in several processes at once), each whole result is
held to torch's product in float64 of the weights in float16, and all are timed in turns with torch's own product of
those weights (`timer.py`).  Rows are kept in results/gpu_narrow_<spec>.json.  Exits with 1 where a program is wrong or
fails, with 3 where time ran out: call it again.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.gpu import candidates, machine
from benches.gpu.check import wrong_elements
from benches.gpu.machine import Machine
from benches.gpu.peers import fix_precision
from benches.gpu.rows import Row, Rows
from benches.gpu.timer import STATES, Timer
from rollergen.gate.narrowing import program_accuracies
from rollergen.hal.probes.host_facts import cores
from rollergen.measure.outcome import Outcome

NAME, SUITE = "narrow", "narrow"
COUNT = 3
GROUP = 128
BUDGET_S = 75.0
PROCESSES = 8
"""At most: each has a context of the GPU while it compiles."""


@dataclass(frozen=True)
class Case:
    """``m`` rows of ``k`` activations times ``n`` rows of weights of dtype ``weights``."""

    weights: str
    m: int
    k: int
    n: int

    @property
    def id(self) -> str:
        return f"{self.weights} {self.m}x{self.k}x{self.n}"

    def make(self) -> rg.Tensor:
        x = rg.tensor("x", (self.m, self.k), "float16")
        q = rg.tensor("q", (self.n, self.k), self.weights, constant=True)
        s = rg.tensor("s", (self.n, self.k // GROUP), "float16", constant=True)
        w = rg.compute((self.n, self.k), lambda j, i: rg.cast(q[j, i], "float16") * s[j, i // GROUP], name="w")
        i = rg.reduce_axis("i", self.k)
        return rg.compute((self.m, self.n), lambda r, j: rg.sum(x[r, i] * w[j, i], axis=i), name="y")


SIZES = ((4096, 4096), (4096, 11008))
CASES = tuple(Case(w, m, k, n) for k, n in SIZES for w in ("int8", "int4") for m in (1, 8, 16, 128))


def small(case: Case) -> Case:
    """With several tiles, of which the last are not whole."""
    return replace(case, m=min(case.m, 24), k=256, n=case.n // 32 + 8)


def drafted(case: Case, on: Machine, count: int) -> tuple[Outcome, ...]:
    """The first ``count`` programs; compiled, so that this process's parent finds machine code in CuPy's cache."""
    found = candidates.drafted(case, on, count)[2]
    for one in found:
        if not (one.problems or on.dry):
            on.runtime.compile(one.source.text)
    return found


def all_drafted(cases: list[Case], on: Machine) -> dict[Case, tuple[Outcome, ...] | Exception]:
    """The programs of each case, or why there are none."""
    processes = min(PROCESSES, len(cases), cores())
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:  # a context of the GPU cannot be forked
        apart = Machine(on.device, on.dry)  # whose runtime is made there
        ends = {case: pool.submit(drafted, case, apart, COUNT) for case in cases}
    return {case: end.exception() or end.result() for case, end in ends.items()}


def operands(case: Case, where: str) -> tuple[Any, Any, Any, Any]:
    """Activations, weights as they are stored, scales; and the weights in float16."""
    import torch

    source = torch.Generator(device=where).manual_seed(1)
    drawn = partial(torch.rand, generator=source, device=where)
    x = (drawn((case.m, case.k)) * 2 - 1).half()
    s = ((drawn((case.n, case.k // GROUP)) + 0.5) / 64).half()
    if case.weights == "int8":
        q = stored = torch.randint(-128, 128, (case.n, case.k), generator=source, device=where, dtype=torch.int8)
    else:  # the lower four bits of a byte are the first of two neighbours, in two's complement
        stored = torch.randint(0, 256, (case.n, case.k // 2), generator=source, device=where, dtype=torch.uint8)
        bits = torch.stack((stored & 15, stored >> 4), dim=-1).reshape(case.n, case.k)
        q = (bits ^ 8).to(torch.int8) - 8
    return x, stored, s, q.half() * s.repeat_interleave(GROUP, dim=1)


def row(case: Case, found: tuple[Outcome, ...] | Exception, on: Machine, timer: Timer) -> Row:
    import torch

    if isinstance(found, Exception):
        raise found
    started = time.perf_counter()
    with on.only_for_a_while():
        x, stored, s, w = operands(case, on.where)
        want = x.double() @ w.double().t()
        arrays = on.arrays((x, stored, s))
        programs = [candidates.facts(one, on) for one in found]
        calls: dict[str, Any] = {}
        for one, said in zip(found, programs, strict=True):
            if one.problems:
                continue
            try:
                kernel = rg.Kernel(on.device, found, one)
                got = on.tensor(kernel(*arrays))
            except Exception as error:  # of this program's compiler or launch: the others stand
                said["problems"] = (f"{type(error).__name__}: {error}"[:500],)
                continue
            said["wrong"] = wrong_elements(got, want, program_accuracies(kernel.program)["y"], "float16")
            said["apart"] = float((got.double() - want).abs().max() / want.abs().max())
            (into,) = on.arrays([torch.empty_like(got)])
            calls[str(one.rank)] = partial(kernel, *arrays, out=into)
        if not calls:
            raise RuntimeError("; ".join(str(said["problems"]) for said in programs))
        product = torch.empty_like(want, dtype=torch.float16)
        calls["torch"] = partial(torch.mm, x, w.t(), out=product)
        times = {state: timer.alternate(calls, 0.0, state) for state in STATES}
    for said in programs:
        said |= {state: took.median_us for state, each in times.items() if (took := each.get(str(said["rank"])))}
    beside = {state: took.median_us for state, each in times.items() if (took := each["torch"])}
    bad = sum(bool(said.get("wrong") or said["problems"]) for said in programs)
    state = f"wrong: {bad} of {len(programs)} programs" if bad else "timed"
    return {"state": state, "torch": beside, "programs": programs, "seconds": round(time.perf_counter() - started, 2)}


def lines(rows: list[Row]) -> list[str]:
    """Of each row microseconds: what is predicted of the first choice, and in both states of the cache what it takes,
    what the fastest takes, and torch."""
    said = [f"{'us':20}{'predicted':>10}" + "".join(f"{state:>8}{'best':>8}{'torch':>8}" for state in STATES)]
    for one in rows:
        if not (programs := one.get("programs")):
            continue
        text = f"{one['id']:20}{programs[0]['predicted_us']:10.1f}"
        for state in STATES:
            ours = [program[state] for program in programs if state in program]
            figures = (programs[0].get(state), min(ours, default=None), one["torch"].get(state))
            text += "".join(f"{'-':>8}" if us is None else f"{us:8.1f}" for us in figures)
        said.append(text)
    return said


def summary(rows: list[Row]) -> Row:
    """``ratio``: torch's time over the fastest program's, geometric mean, in each state of the cache."""
    timed = [one for one in rows if one["state"] == "timed"]
    ratio = {
        state: candidates.mean(
            [one["torch"][state] / min(program[state] for program in one["programs"] if state in program)
             for one in timed if state in one["torch"] and any(state in program for program in one["programs"])]
        )
        for state in STATES
    }  # fmt: skip
    return {"products": len(rows), "timed": len(timed), "ratio": ratio}


def main(words: list[str] | None = None) -> int:
    parser = machine.parser(__doc__)
    parser.set_defaults(budget_s=BUDGET_S)
    given = machine.parsed(parser, words)
    budget, on = machine.budget(given), machine.machine(given)
    wanted = map(small, CASES) if given.dry_run else CASES
    cases = {(SUITE, one.id): one for one in wanted if not given.only or one.id in given.only}
    facts = {**on.facts(), "precision": fix_precision(), "rollergen": rg.__version__}
    rows = Rows(machine.path(given.results, NAME, on.device), facts, summary)
    found = all_drafted(list(cases.values()), on)
    timer = Timer(on.runtime)
    code = rows.fill(
        cases, lambda key: row(cases[key], found[cases[key]], on, timer), budget, again=given.again, retry=given.retry,
        alive=on.alive,
    )  # fmt: skip
    print("\n".join(lines(rows.all())))
    bad = [one for one in rows.all() if one["state"] != "timed"]
    for one in bad:
        print(f"{one['id']}: {one['state']}", *(program["problems"] for program in one.get("programs", ())))
    return code or int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
