"""What AMD's back end makes of our candidates, without a GPU:
``python benches/bench_gfx906.py [--device NAME] [--suite NAME ...] [--every N] [--top-k K] [--again]``.

For every operator each candidate for the MI50 is compiled for gfx906 by clang: whether it compiles, which spill
registers (first choices apart), vector registers over the model's figure, local memory as predicted, and whether fewer
wavefronts are resident than the model takes for granted.  Nothing is run, and nothing timed.  Rows are kept as they
come, in results/gfx906_<cpu>_<day>.json; a candidate whose text this compiler has compiled before, for any such file,
is not compiled again (`--again` does).  Exits with 1 where a first choice spills, or more than one candidate in twenty
does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import begun, ever_kept, keep, result_path
from rollergen.bench.suites import Entry, suite
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.emit import emit
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.amd_clang import INSTALL, compile_opencl, is_installed, version
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

NAME = "gfx906"
CANDIDATES = 10
MOST_SPILLING = 0.05
Row = dict[str, Any]


def row(entry: Entry, on: Device, top_k: int, known: dict[str, Row]) -> Row:
    """One operator; ``known``: candidates compiled before, by the digest of their text."""
    choice.cache_clear()
    ranked = construct(canonicalize(entry.make()), on, top_k=top_k)
    candidates = [candidate(one.program, on, known) for one in ranked]
    return {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "device": on.name, "candidates": candidates}


def candidate(program: RProgram, on: Device, known: dict[str, Row] | None = None) -> Row:
    """A program's kernels as compiled, each beside what the model says."""
    source = emit(program, on, "opencl")
    digest = hashlib.sha256(source.text.encode()).hexdigest()[:16]
    predicted = predict(program, on).stages
    expected = [
        {
            "threads": launch.threads, "predicted_registers": float(stage.registers),
            "predicted_lds_bytes": int(stage.shared_bytes), "predicted_occupancy": float(stage.occupancy),
        }
        for launch, stage in zip(source.launches, predicted, strict=True)
    ]  # fmt: skip
    before = (known or {}).get(digest)
    if before and "kernels" in before:
        facts = [{name: one[name] for name in one if name not in expected[0]} for one in before["kernels"]]
    else:
        try:
            compiled = compile_opencl(source.text, on.targets[0].arch)
        except RollergenError as error:
            return {"digest": digest, "error": str(error)[:500]}
        facts = [asdict(compiled.kernel(launch.entry)) for launch in source.launches]
    return {"digest": digest, "kernels": [{**a, **b} for a, b in zip(facts, expected, strict=True)]}


def spills(one: Row) -> bool:
    return any(kernel["vgpr_spills"] or kernel["sgpr_spills"] for kernel in one.get("kernels", ()))


def summary(rows: list[Row]) -> Row:
    """Shares over all candidates."""
    candidates = [(r["id"], rank, one) for r in rows for rank, one in enumerate(r["candidates"])]
    kernels = [kernel for _, _, one in candidates for kernel in one.get("kernels", ())]
    spilling = [f"{name} #{rank}" for name, rank, one in candidates if spills(one)]
    excess = sorted(kernel["vgprs"] / max(1.0, kernel["predicted_registers"]) for kernel in kernels)
    return {
        "operators": len(rows),
        "candidates": len(candidates),
        "refused": [f"{name} #{rank}: {one['error']}" for name, rank, one in candidates if "error" in one],
        "spilling": spilling,
        "spilling_share": round(len(spilling) / max(1, len(candidates)), 4),
        "spilling_first_choices": [name for name in spilling if name.endswith(" #0")],
        "private_memory_without_spills": sum(
            not spills(one) and any(kernel["private_bytes"] for kernel in one.get("kernels", ()))
            for _, _, one in candidates
        ),
        "registers_over_model_median": round(excess[len(excess) // 2], 3) if excess else None,
        "registers_over_model_most": round(excess[-1], 3) if excess else None,
        "local_memory_not_as_predicted": sum(k["lds_bytes"] != k["predicted_lds_bytes"] for k in kernels),
    }


def compiled_before(compiler: str) -> dict[str, Row]:
    """Candidates of all files that this compiler made, by the digest of their text."""
    files = (one for one in ever_kept(NAME) if one.get("compiler") == compiler)
    return {one["digest"]: one for file in files for row in file["rows"] for one in row["candidates"]}


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="mi50")
    words.add_argument("--suite", nargs="+", default=["roller"])
    words.add_argument("--only", nargs="+", help="identifiers of operators")
    words.add_argument("--every", type=int, default=1, help="only every Nth operator")
    words.add_argument("--top-k", type=int, default=CANDIDATES)
    words.add_argument("--again", action="store_true", help="compile what was compiled before too")
    given = words.parse_args()
    if not is_installed():
        raise SystemExit(INSTALL)
    on, before = load_device(given.device), begun(result_path(NAME)).get("rows", [])
    rows: dict[Any, Row] = {(r["suite"], r["id"], r["device"]): r for r in before}
    known = {} if given.again else compiled_before(version())
    entries = [e for name in given.suite for e in suite(name).entries if not given.only or e.id in given.only]
    for entry in entries[:: given.every]:
        rows[entry.suite, entry.id, on.name] = row(entry, on, given.top_k, known)
        found = summary(list(rows.values()))
        keep(NAME, {"compiler": version(), "summary": found, "rows": list(rows.values())})
        print(entry.id, found["spilling_share"], found["spilling_first_choices"], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    bad = found["spilling_first_choices"] or found["refused"] or found["spilling_share"] > MOST_SPILLING
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
