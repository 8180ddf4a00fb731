"""Regime maps as plain facts, which JSON holds, and back: for directories and the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np

from rollergen.program import serial
from rollergen.sizes.plan import Plan
from rollergen.sizes.regime import RegimeMap


def facts_of_map(regime: RegimeMap, plans: Sequence[Plan]) -> dict[str, Any]:
    """The map with these of its plans."""
    rows = [regime.plans.index(plan) for plan in plans]
    return {
        "plans": [_plan(plan) for plan in plans],
        "map": {
            "sizes": [dict(sizes) for sizes in regime.sizes],
            "counts": list(regime.counts),
            "seconds": [[None if isinf(one) else one for one in row] for row in regime.seconds[rows].tolist()],
            "best": regime.best.tolist(),
        },
    }


def map_of_facts(facts: Mapping[str, Any]) -> RegimeMap:
    """The map that `facts_of_map` told.  Raises RollergenError, ValueError, TypeError, LookupError if it is none."""
    plans = tuple(
        Plan(
            serial.from_json(one["program"]), int(one["count"]), tuple(tuple(map(str, own)) for own in one["axes"]),
            _numbers(one["buffers"]), _numbers(one["inner"]), int(one["most"]),
        )
        for one in facts["plans"]
    )  # fmt: skip
    drawn = facts["map"]
    seconds = np.array([[np.inf if one is None else one for one in row] for row in drawn["seconds"]], np.float64)
    counts, best = tuple(map(int, drawn["counts"])), np.array(drawn["best"], np.float64)
    if not plans or seconds.shape != (len(plans), len(counts)) or best.shape != (len(counts),):
        raise ValueError(f"a map of {seconds.shape} for {len(plans)} plans at {len(counts)} counts")
    return RegimeMap(plans, tuple(dict(one) for one in drawn["sizes"]), counts, seconds, best)


def _numbers(facts: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(number) for name, number in facts.items()}


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "program": serial.to_json(plan.program), "count": plan.count, "axes": [[*own] for own in plan.axes],
        "buffers": dict(sorted(plan.buffers.items())), "inner": dict(plan.inner), "most": plan.most,
    }  # fmt: skip
