"""Where the coefficients of erf in `rollergen.lower.maths` come from, and how much the function errs:
``python benches/minimax.py``.

erf(x) = N / (N + Q) with N = x P(x), for 0 <= x <= `LAST`, where float32 no longer tells erf from 1: P / Q is
erf(x) / (x erfc(x)).  The P and Q with the least largest relative error of erf (Lawson's weights on the linearised
problem, in float64 against values of 40 digits) are scaled by the factor, of ``FACTORS`` tried, for which the
coefficients rounded to float32, evaluated with multiply-adds in float32, err least.  Then the built kernel is held to
erf at every float32 number: errors in units in the last place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import mpmath
import numpy as np
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rollergen as rg

LAST, DEGREES = 3.93, (8, 5)
NODES, ROUNDS, FACTORS, TRIED = 500, 150, 200, 400_000
CHUNK = 1 << 23
"""Numbers of one binade, which a kernel takes at once."""

Pair = tuple[np.ndarray, np.ndarray]


def fitted() -> tuple[float, Pair]:
    """(largest relative error of erf, (P, Q) with Q(0) = 1), coefficients by rising power of x."""
    u = (1 - np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)) / 2
    with mpmath.workdps(40):
        points = [mpmath.mpf(float(v)) for v in u * LAST]
        want = np.array([float(mpmath.erf(x) / mpmath.erfc(x) / x) for x in points])
        left = np.array([float(mpmath.erfc(x)) for x in points])
    above, below = (u[:, None] ** np.arange(degree + 1) for degree in DEGREES)
    weights, q, x = np.ones(NODES), np.ones(NODES), u * LAST
    best: tuple[float, Pair] = (np.inf, (q, q))
    for _ in range(ROUNDS):
        by = np.sqrt(weights) * left / (want * q)  # an error of the quotient is erfc times as large in erf
        columns = np.concatenate([above, -want[:, None] * below[:, 1:]], axis=1) * by[:, None]
        size = np.abs(columns).max(axis=0)
        found = np.linalg.lstsq(columns / size, want * by, rcond=None)[0] / size
        top, bottom = found[: DEGREES[0] + 1], np.concatenate([[1.0], found[DEGREES[0] + 1 :]])
        n, q = x * (above @ top), below @ bottom
        error = np.abs(n / (n + q) / (1 - left) - 1)
        if error.max() < best[0]:
            powers = [LAST ** np.arange(len(c)) for c in (top, bottom)]
            best = float(error.max()), (top / powers[0], bottom / powers[1])
        weights = weights * error / (weights * error).sum()
    return best


def rounded(pair: Pair) -> tuple[float, Pair]:
    """(largest error of those tried in units in the last place, (P, Q) in float32) of the best factor."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0.0, LAST, TRIED), np.exp(rng.uniform(-10.0, 0.5, TRIED))]).astype(np.float32)
    want = special.erf(x.astype(np.float64))
    best = (np.inf, pair)
    for factor in 2.0 ** (np.arange(FACTORS) / FACTORS):
        p, q = ((c * factor).astype(np.float32) for c in pair)
        values = _horner(p, x)
        whole = (x.astype(np.float64) * values + _horner(q, x)).astype(np.float32)
        best = min(best, (float(units(x * values / whole, want).max()), (p, q)), key=lambda found: found[0])
    return best


def _horner(coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    """With multiply-adds of float32: the product of two is exact in float64."""
    value = np.full_like(x, coefficients[-1])
    for one in coefficients[-2::-1]:
        value = (value.astype(np.float64) * x + np.float64(one)).astype(np.float32)
    return value


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units in the last place of float32."""
    exponent = np.maximum(np.frexp(want)[1], -125)
    return np.abs(got.astype(np.float64) - want) / np.ldexp(1.0, exponent - 24)


def every_binade() -> Iterator[np.ndarray]:
    """All positive float32 numbers: 2^23 at a time, denormal ones first."""
    for exponent in range(255):
        yield (np.arange(CHUNK, dtype=np.uint32) + np.uint32(exponent << 23)).view(np.float32)


def largest_error() -> tuple[float, float]:
    """(units in the last place, at which x) of the built kernel over every positive number.

    Raises SystemExit where erf(-x) is not -erf(x), or where the result exceeds 1.
    """
    kernel = rg.build(rg.ops.erf(rg.tensor("X", (CHUNK,))), "cpu")
    worst, where = 0.0, 0.0
    for x in every_binade():
        got = kernel(x)
        if not np.array_equal(kernel(-x), -got) or got.max() > 1:
            raise SystemExit(f"erf is not odd, or exceeds 1, between {x[0]} and {x[-1]}")
        error = units(got, special.erf(x.astype(np.float64)))
        if error.max() > worst:
            worst, where = float(error.max()), float(x[error.argmax()])
    return worst, where


def main() -> None:
    error, pair = fitted()
    tried, found = rounded(pair)
    print(f"degrees {DEGREES}: relative error {error:.3g}; rounded, {tried:.2f} units at most where tried")
    for name, coefficients in zip("PQ", found, strict=True):
        print(f"  {name} = ({', '.join(f'{float(c):.9g}' for c in coefficients)})", flush=True)
    worst, where = largest_error()
    print(f"the built kernel errs by {worst:.3f} units in the last place at most (x = {where:.9g})")


if __name__ == "__main__":
    main()
