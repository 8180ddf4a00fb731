"""2,000 seeded mutations of the built-in specs: ``python benches/bench_mutations.py [--count N] [--seed S] [--again]``.

Each is refused with a JSON path, or accepted, and then every one of ten operators is constructed with finite positive
predictions (or, where the mutated device has no room for the data, refused with the shortfall).  Anything else is
listed in full.  Rows are kept as they come, in results/mutations_<cpu>_<day>.json; what is there is not done again, but
for what was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import keep, result_path
from rollergen.expr.canonical import canonicalize
from rollergen.representative import representative
from tests.hal.mutations import mutations, outcome

NAME = "mutations"
LEFT_OUT = ("matmul", "matmul beyond caches", "conv2d, float16")
"""The same stages as others."""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=2000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--again", action="store_true")
    given = words.parse_args()
    graphs = {name: canonicalize(expr) for name, expr in representative().items() if name not in LEFT_OUT}
    path = result_path(NAME)
    kept = json.loads(path.read_text()) if path.exists() and not given.again else {"done": 0, "states": {}, "wrong": []}
    states = Counter(kept["states"])
    again, wrong = {one["number"] for one in kept["wrong"]}, []
    states["wrong"] -= len(again)
    for one in mutations(given.count, given.seed):
        if one[0] < kept["done"] and one[0] not in again:
            continue
        found = outcome(*one, graphs)
        states[found.state] += 1
        if found.state == "wrong":
            wrong.append(asdict(found))
            print(f"{found.number} {found.device} {found.change}\n  {found.text}", flush=True)
        if one[0] >= kept["done"] and (one[0] % 25 == 24 or one[0] + 1 == given.count):
            content = {"seed": given.seed, "operators": list(graphs), "done": one[0] + 1, "states": dict(+states)}
            keep(NAME, {**content, "wrong": wrong})
    print(dict(states))


if __name__ == "__main__":
    main()
