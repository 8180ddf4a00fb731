"""Group E: what each operand's buffer goes through along the loops (TVM's features as Pruner lists them), and the
arithmetic intensity by level."""

from __future__ import annotations

from math import log2, prod

from rollergen.expr.index import linear
from rollergen.program.model.prediction import flops_of
from rollergen.verify.features.view import OPERANDS, Chain, StageView, slog

_POINTS = 10


def access_features(view: StageView) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in OPERANDS:
        chain = view.chains[name]
        found |= {f"{name} {what}": value for what, value in _buffer(view, chain).items()}
    found |= {f"intensity {n}": value for n, value in enumerate(_curve(view))}
    chains = [chain for chain in view.chains.values() if chain is not None]
    tile = lambda spans: sum(prod(spans.get(a, 1) for a in c.load.axes()) * c.itemsize for c in chains)
    return found | {
        "register bytes": slog(tile(view.register_tile)),
        "block bytes": slog(tile(view.block_tile)),
        "loops": float(len(view.loops)),
    }


BUFFER = (
    "bytes", "unique bytes", "lines", "unique lines", "reuse loop", "reuse serial", "reuse none", "reuse distance",
    "reuse distance bytes", "reuse count", "bytes per reuse", "unique bytes per reuse", "lines per reuse",
    "unique lines per reuse", "stride",
)  # fmt: skip


def _buffer(view: StageView, chain: Chain | None) -> dict[str, float]:
    if chain is None:
        return dict.fromkeys(BUFFER, 0.0)
    line = view.device.layers[1].transaction_bytes
    points = prod(loop.extent for loop in view.loops)
    touched = points * chain.itemsize
    unique = (chain.unique[0] if chain.unique else 1) * chain.itemsize
    stride = _stride(view, chain)
    lines = points * min(1.0, stride * chain.itemsize / line)
    unique_lines = max(1.0, unique / line) if stride <= 1 else min(unique / chain.itemsize, unique / line * stride)
    kind, distance, distance_bytes, count = _reuse(view, chain)
    per = count if count > 0 else 0.5
    sizes = (touched, unique, lines, unique_lines)
    values = (
        *map(slog, sizes), float(kind == "loop"), float(kind == "serial"), float(kind == "none"),
        slog(distance), slog(distance_bytes), slog(count), *(slog(size / per) for size in sizes), slog(stride),
    )  # fmt: skip
    return dict(zip(BUFFER, values, strict=True))


def _stride(view: StageView, chain: Chain) -> int:
    """Elements between two iterations of the innermost loop that moves through the buffer; 0: none does."""
    offset = linear(chain.load.indices, chain.load.buffer.shape)
    for loop in reversed(view.loops):
        coefficient = abs(offset.coefficient(loop.axis)) * loop.stride
        if coefficient:
            return coefficient
    return 0


def _reuse(view: StageView, chain: Chain) -> tuple[str, int, int, int]:
    """(kind, iterations and bytes between two uses, uses): loops outward that index the buffer multiply the distance;
    the first that does not starts the count, the next that does ends it."""
    axes = chain.load.axes()
    distance, count, began = 1, 1, None
    for position in range(len(view.loops) - 1, -1, -1):
        loop = view.loops[position]
        if loop.axis in axes:
            if began is not None:
                break
            distance *= loop.extent
        else:
            began = position if began is None else began
            count *= loop.extent
    if began is None:
        serial = len({load for load in view.definition.loads() if load.buffer == chain.load.buffer}) > 1
        return ("serial" if serial else "none"), 0, 0, 0
    inside = began + 1
    others = [c for c in view.chains.values() if c is not None]
    touched = sum((c.unique[inside] if inside < len(c.unique) else 1) * c.itemsize for c in others)
    return "loop", distance, touched, count


def _curve(view: StageView) -> list[float]:
    """log2(operations) / log2(bytes touched) by loop level, at ten equal steps of log2(operations)."""
    chains = [chain for chain in view.chains.values() if chain is not None]
    points = prod(loop.extent for loop in view.loops)
    per_point = flops_of(view.stage) / max(1, points)
    levels: list[tuple[float, float]] = []
    inside = 1
    for position in range(len(view.loops) - 1, -1, -1):
        inside *= view.loops[position].extent
        operations = log2(1 + per_point * inside)
        touched = log2(1 + sum(c.unique[position] * c.itemsize for c in chains))
        levels.append((operations, operations / max(touched, 1.0)))
    if not levels:
        return [0.0] * _POINTS
    top = levels[-1][0]
    return [_interpolated(levels, top * (n + 1) / _POINTS) for n in range(_POINTS)]


def _interpolated(levels: list[tuple[float, float]], at: float) -> float:
    before = (0.0, 0.0)
    for level in levels:
        if level[0] >= at:
            width = level[0] - before[0]
            return level[1] if width <= 0 else before[1] + (level[1] - before[1]) * (at - before[0]) / width
        before = level
    return levels[-1][1]
