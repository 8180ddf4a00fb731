"""Processes that build on one store, for tests and benches: ``python -m tests.store.builders SEED COUNT``."""

from __future__ import annotations

import random
import sys

import rollergen as rg


def expression(number: int, name: str = "x"):
    """One of twelve small expressions of a tensor `name`."""
    extent = 60 + 7 * (number % 4)
    if number % 3 == 0:
        return rg.ops.relu(rg.tensor(name, (extent,)))
    if number % 3 == 1:
        return rg.ops.softmax(rg.tensor(name, (5, extent)))
    return rg.ops.matmul(rg.tensor(name, (9, extent)), rg.tensor("weights", (extent, 17)))


def build(number: int, name: str = "x", cache: bool = True):
    return rg.build(expression(number, name), "v100", profile=False, top_k=3, cache=cache)


def main(seed: int, count: int) -> None:
    """Builds expressions in random order, under changing tensor names, and says so line by line."""
    random.seed(seed)
    for _ in range(count):
        number = random.randrange(12)
        build(number, f"x{random.randrange(3)}")
        print(number, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
