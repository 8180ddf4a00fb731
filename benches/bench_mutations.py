"""2,000 seeded mutations of the built-in specs: ``python benches/bench_mutations.py [--count N] [--jobs J] [--again]``.

Each is refused with a JSON path, or accepted, and then every one of ten operators is constructed with finite positive
predictions (or, where the mutated device has no room for the data, refused with the shortfall).  Anything else is
listed in full.  Rows are kept as they come, in results/mutations_<cpu>_<day>.json; what is there is not done again
by the same code, but for what was wrong.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rollergen as rg
from benches.results import begun, keep, result_path
from rollergen.explain.representative import representative
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from tests.hal.mutations import Mutation, Outcome, mutations, outcome

NAME = "mutations"
CHUNK = 25
MOST_BYTES = 4 << 30
"""Of a process: a spec that asks for more is as wrong as one that ends in a traceback."""
WHOLE = ("sum of rows", "softmax", "functions", "transpose")
"""Of `rollergen.explain.representative`, as they are: large enough for a mutated memory to lack the room."""


def operators() -> dict[str, Tensor]:
    """The contractions are small: how many tiles there are to choose from is what constructing them costs."""
    matrix = rg.tensor
    product = lambda m, n, k, of: rg.ops.matmul(matrix("A", (m, k), of), matrix("B", (k, n), of), name="C")
    left, right = rg.tensor("A", (32, 64), "int8"), rg.tensor("B", (64, 32), "int8")
    image, window, each = rg.tensor("X", (1, 8, 9, 9)), rg.tensor("W", (8, 8, 3, 3)), rg.tensor("W", (8, 1, 3, 3))
    return {
        "matmul with tails": product(17, 33, 50, "float32"),
        "matmul, bfloat16": product(32, 32, 64, "bfloat16"),
        "matmul, float64": product(24, 24, 40, "float64"),
        "matmul, int8": rg.ops.quantized_matmul(left, right, a_scale=0.1, b_scale=0.1, name="C"),
        "conv2d": rg.ops.conv2d(image, window, padding=1, name="Y"),
        "depthwise conv2d": rg.ops.depthwise_conv2d(image, each, name="Y"),
        **{name: expr for name, expr in representative().items() if name in WHOLE},
    }


@lru_cache(maxsize=1)
def graphs() -> dict[str, Graph]:
    return {name: canonicalize(expr) for name, expr in operators().items()}


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def outcomes(some: list[Mutation]) -> list[Outcome]:
    return [outcome(*one, graphs()) for one in some]


def chunks(every: list[Mutation]) -> Iterator[list[Mutation]]:
    return (every[at : at + CHUNK] for at in range(0, len(every), CHUNK))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=2000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--jobs", type=int, default=1, help="Processes.")
    words.add_argument("--again", action="store_true")
    given = words.parse_args()
    kept = begun(result_path(NAME))
    if given.again or kept.get("seed") != given.seed:
        kept = {"done": 0, "states": {}, "wrong": []}
    states, done = Counter(kept["states"]), kept["done"]
    wrong = {one["number"]: one for one in kept["wrong"]}
    todo = [one for one in mutations(given.count, given.seed) if one[0] >= done or one[0] in wrong]
    with ProcessPoolExecutor(given.jobs, initializer=limit_memory) as pool:
        for found in pool.map(outcomes, chunks(todo)):
            for one in found:
                states[one.state] += 1
                if wrong.pop(one.number, None):
                    states["wrong"] -= 1
                if one.state == "wrong":
                    wrong[one.number] = asdict(one)
                    print(f"{one.number} {one.device} {one.change}\n  {one.text}", flush=True)
            done = max(done, found[-1].number + 1)
            content = {"seed": given.seed, "operators": list(operators()), "done": done, "states": dict(+states)}
            keep(NAME, {**content, "wrong": list(wrong.values())})
    print(dict(+states))


if __name__ == "__main__":
    main()
