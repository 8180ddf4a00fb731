"""Group H: the micro-performance model's own terms, summed over the stages of a call."""

from __future__ import annotations

from rollergen.verify.features.view import StageView, slog

_NAMED = (
    "multiply-adds", "issue", "load ports", "store ports", "path", "latency", "column walks", "tlb 1", "tlb 2",
    "tiles", "blocks", "launch",
)  # fmt: skip
_LAYERS = 4


def limiter_features(view: StageView) -> dict[str, float]:
    """log of the nanoseconds of every limiter and of their combination; layers count from the innermost."""
    layers = [layer.name for layer in view.device.layers[1:]]
    found = dict.fromkeys((*_NAMED, *(f"bandwidth {n}" for n in range(1, _LAYERS + 1)), "other"), 0.0)
    for stage in view.prediction.stages:
        if not stage.once:
            for limiter in stage.limiters:
                found[_name(limiter.name, layers)] += float(limiter.seconds) * 1e9
    total = float(view.prediction.seconds) * 1e9
    shares = {f"{name} share": value / total for name, value in found.items() if total > 0}
    return {**{name: slog(value) for name, value in found.items()}, **shares, "total": slog(total)}


def _name(limiter: str, layers: list[str]) -> str:
    if limiter in _NAMED:
        return limiter
    layer, _, what = limiter.rpartition(" ")
    if what == "path":
        return "path"
    if what == "bandwidth" and layer in layers:
        return f"bandwidth {min(_LAYERS, layers.index(layer) + 1)}"
    return "other"
