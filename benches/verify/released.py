"""Whether a verifier may be offered, and be on by default: bars on an evaluation (`evaluate.compare`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPT_IN = {"top-3": 0.90, "worst top-3": 0.80, "top-3 against analytical": -0.01}
DEFAULT_ON = {"top-3": 0.95, "worst top-3": 0.85, "top-1 against analytical": 0.0}
NO_HEADROOM = 0.98
"""Macro Top-3 of the analytical order from which on a verifier cannot help."""


def release(table: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """``state``: "no headroom", "default-on", "opt-in" or "withheld", with the figures held against each bar.

    Opt-in: macro Top-3, the worst operator's, and the 5th percentile of the paired difference from the analytical
    order.  Default-on: higher ones, and a positive mean difference of Top-1.
    """
    line, model = table[name], table["analytical"]
    figures = {
        "top-3": line["top-3"]["mean"],
        "worst top-3": line["worst top-3"]["value"],
        "top-3 against analytical": line["against analytical"]["top-3"]["low"],
        "top-1 against analytical": line["against analytical"]["top-1"]["mean"],
        "analytical top-3": model["top-3"]["mean"],
    }
    opt_in = all(figures[key] >= bar for key, bar in OPT_IN.items())
    on = opt_in and all(figures[k] >= b for k, b in DEFAULT_ON.items()) and figures["top-1 against analytical"] > 0
    headroom = figures["analytical top-3"] < NO_HEADROOM
    state = "no headroom" if not headroom else "default-on" if on else "opt-in" if opt_in else "withheld"
    return {"state": state, "figures": figures, "opt-in bars": OPT_IN, "default-on bars": DEFAULT_ON}
