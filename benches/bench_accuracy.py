"""Errors of sums beside NumPy's and PyTorch's: ``python benches/bench_accuracy.py [--case TEXT] [--largest N]``.

Every case is a reduction of n float32 values on the CPU, n from 10^3 to 10^8, or of all rows or all columns of 10^7
values, n in each.  Its error is the largest distance of an element from the float64 result, over the size of the result
(of what is subtracted from, where a mean is), both as root mean squares over a few draws of the inputs; it should be at
most twice that of the better library, or four units in the last place.  Several draws, as one is luck: the roundings of
equal values fall on one side, which changes with the value and with n, and sums of both signs may come out near 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from aims import Aim, verdict
from results import keep
from rich.console import Console
from rich.table import Table

import rollergen as rg

SIZES = tuple(10**power for power in range(3, 9))
LINES, LINED = tuple(10**power for power in range(2, 6)), 10**7
"""Values of a row or a column, and of all of them."""
TIMES, ULPS = 2.0, 4.0
"""What is asked for: at most so many times the better library's error, or so many units in the last place."""

Array = Any
Sample = tuple[Array, float]
"""(the result, float64; the size of what four units of are allowed)."""

INPUTS: dict[str, Callable[[np.random.Generator, int, tuple[int, ...]], Array]] = {
    "equal values": lambda rng, draw, shape: np.full(shape, 0.1 + 0.01 * draw, np.float32),
    "uniform": lambda rng, draw, shape: rng.random(shape, np.float32),
    "normal": lambda rng, draw, shape: rng.standard_normal(shape, np.float32),
    "around 10^4": lambda rng, draw, shape: rng.standard_normal(shape, np.float32) + np.float32(1e4),
}


@dataclass(frozen=True, slots=True)
class Operator:
    """``inputs``: kinds; ``shapes``: of the operands for n; ``peers``: NumPy's and PyTorch's calls."""

    make: Callable[..., rg.Tensor]
    numpy: Callable[..., Array]
    torch: Callable[..., Array]
    exact: Callable[..., Sample]
    shapes: Callable[[int], tuple[tuple[int, ...], ...]] = lambda n: ((n,),)
    inputs: tuple[str, ...] = ("equal values", "uniform", "normal", "around 10^4")
    sizes: tuple[int, ...] = SIZES


def wide(x: Array) -> Iterator[Array]:
    """The values in float64, a part at a time."""
    for first in range(0, x.size, 1 << 22):
        yield x.reshape(-1)[first : first + (1 << 22)].astype(np.float64)


def total(x: Array, function: Callable[[Array], Array] = lambda part: part) -> float:
    return float(sum(np.sum(function(part)) for part in wide(x)))


def exact_sum(x: Array) -> Sample:
    want = total(x)
    return want, abs(want)


def exact_mean(x: Array) -> Sample:
    want = total(x) / x.size
    return want, abs(want)


def moments(x: Array) -> tuple[float, float]:
    mean = total(x) / x.size
    return mean, total(x, lambda part: (part - mean) ** 2) / x.size


def exact_var(x: Array) -> Sample:
    want = moments(x)[1] * x.size / (x.size - 1)
    return want, want


def exact_matmul(a: Array, b: Array) -> Sample:
    parts = range(0, a.shape[1], 1 << 19)
    cut = lambda k: (a[:, k : k + (1 << 19)].astype(np.float64), b[k : k + (1 << 19)].astype(np.float64))
    want = sum(left @ right for left, right in map(cut, parts))
    return want, float(np.max(np.abs(want)))


def exact_softmax(x: Array) -> Sample:
    largest = float(np.max(x))
    powers = np.exp(x.astype(np.float64) - largest)
    powers /= np.sum(powers)
    return powers, float(np.max(powers))


def exact_layer_norm(x: Array) -> Sample:
    mean, variance = moments(x)
    factor = 1 / sqrt(variance + 1e-5)
    return (x.astype(np.float64) - mean) * factor, float(np.max(np.abs(x))) * factor


def exact_lines(function: Callable[..., Array], axis: int) -> Callable[[Array], Sample]:
    """Of `function` along `axis`; its size is that of the largest element."""

    def exact(x: Array) -> Sample:
        want = function(x.astype(np.float64), axis)
        return want, float(np.max(np.abs(want)))

    return exact


def softmax_along(x: Array, axis: int) -> Array:
    powers = np.exp(x - np.max(x, axis, keepdims=True))
    return powers / np.sum(powers, axis, keepdims=True)


def numpy_softmax(x: Array) -> Array:
    powers = np.exp(x - np.max(x))
    return powers / np.sum(powers)


def numpy_layer_norm(x: Array) -> Array:
    return (x - np.mean(x)) / np.sqrt(np.var(x) + np.float32(1e-5))


def lines() -> Iterator[tuple[str, Operator]]:
    """Reductions of many rows, which lie together, and of many columns."""
    import torch

    variance = lambda x, axis: np.var(x, axis, ddof=1)
    functions = {
        "sum": (rg.ops.sum, np.sum, torch.sum, ()),
        "mean": (rg.ops.mean, np.mean, torch.mean, ()),
        "var": (rg.ops.var, variance, torch.var, ("equal values",)),
        "softmax": (rg.ops.softmax, softmax_along, torch.softmax, ("around 10^4",)),
    }
    for of, axis in (("rows", 1), ("columns", 0)):
        shapes = lambda n, turn=2 * axis - 1: ((LINED // n, n)[::turn],)
        for name, (ours, by_numpy, by_torch, without) in functions.items():
            calls = [partial(call, axis=axis) for call in (ours, by_numpy)]
            kinds = tuple(kind for kind in INPUTS if kind not in without)
            torches = lambda x, call=by_torch, axis=axis: call(x, axis)
            yield f"{name} of {of}", Operator(*calls, torches, exact_lines(by_numpy, axis), shapes, kinds, LINES)


def operators() -> dict[str, Operator]:
    import torch

    norm = lambda x: torch.nn.functional.layer_norm(x, (x.shape[-1],))
    rows = {10**7: 4, 10**8: 1}
    return {
        "sum": Operator(rg.ops.sum, np.sum, torch.sum, exact_sum),
        "mean": Operator(rg.ops.mean, np.mean, torch.mean, exact_mean),
        "var": Operator(
            rg.ops.var, lambda x: np.var(x, ddof=1), torch.var, exact_var, inputs=("uniform", "normal", "around 10^4")
        ),
        "matmul": Operator(
            rg.ops.matmul, np.matmul, torch.matmul, exact_matmul,
            lambda k: ((rows.get(k, 16), k), (k, rows.get(k, 16))), ("equal values", "uniform", "normal"),
        ),
        "softmax": Operator(
            lambda x: rg.ops.softmax(x, 0), numpy_softmax, lambda x: torch.softmax(x, 0), exact_softmax,
            inputs=("equal values", "uniform", "normal"),
        ),
        "layer_norm": Operator(lambda x: rg.ops.layer_norm(x, x.shape[0]), numpy_layer_norm, norm, exact_layer_norm),
        **dict(lines()),
    }  # fmt: skip


def distance(got: Array, sample: Sample) -> float:
    want = np.asarray(sample[0])
    return float(np.max(np.abs(np.asarray(got).reshape(want.shape) - want)))


def measure(name: str, one: Operator, kind: str, n: int) -> dict[str, Any]:
    """The row of one case; errors relative to the size of the result."""
    import torch

    shapes = one.shapes(n)
    tensors = [rg.tensor(letter, shape) for letter, shape in zip("ab", shapes, strict=False)]
    kernel = rg.build(one.make(*tensors), "cpu", profile=False, cache=False)
    squares, size = {"ours": 0.0, "NumPy": 0.0, "PyTorch": 0.0}, 0.0
    draws = draws_of(LINED if one.sizes is LINES else n)
    for draw in range(draws):
        rng = np.random.default_rng((n, draw))
        arrays = [INPUTS[kind](rng, draw, shape) for shape in shapes]
        sample = one.exact(*arrays)
        size += sample[1] ** 2
        squares["ours"] += distance(kernel(*arrays), sample) ** 2
        squares["NumPy"] += distance(one.numpy(*arrays), sample) ** 2
        squares["PyTorch"] += distance(one.torch(*map(torch.from_numpy, arrays)), sample) ** 2
    errors = {who: sqrt(square / size) for who, square in squares.items()}
    allowed = max(TIMES * min(errors["NumPy"], errors["PyTorch"]), ULPS * float(np.finfo(np.float32).eps))
    case = f"{name}, {kind}, n = {n:,}"
    return {"case": case, "draws": draws, **errors, "allowed": allowed, "met": errors["ours"] <= allowed}


def draws_of(n: int) -> int:
    return 32 if n <= 10**5 else 8 if n <= 10**6 else 4 if n <= 10**7 else 2


def cases(largest: int) -> Iterator[tuple[str, Operator, str, int]]:
    for name, one in operators().items():
        for kind in one.inputs:
            yield from ((name, one, kind, n) for n in one.sizes if n <= largest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="only up to so many values")
    given = parser.parse_args()
    console, table = Console(width=110), Table("case", "ours", "NumPy", "PyTorch", "allowed", "met")
    found = []
    for name, one, kind, n in cases(given.largest):
        if given.case in f"{name}, {kind}, n = {n:,}":
            row = measure(name, one, kind, n)
            found.append(row)
            figures = [f"{row[who]:.2e}" for who in ("ours", "NumPy", "PyTorch", "allowed")]
            print(row["case"], *figures, "" if row["met"] else "MISSED", flush=True)
            table.add_row(row["case"], *figures, "yes" if row["met"] else "no")
    console.print(table)
    if not given.case and given.largest == SIZES[-1]:
        print(f"kept in {keep('accuracy', {'cases': found})}")
    figures = [(row["case"], f"{row['ours']:.2e}", f"at most {row['allowed']:.2e}", row["met"]) for row in found]
    return verdict([Aim(*one) for one in figures])


if __name__ == "__main__":
    sys.exit(main())
