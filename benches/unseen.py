"""Operators of every class of `operator_cases` with extents drawn at random: none of them was looked at before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from benches.operator_cases import BIAS, CALL, CASES, CONSTANT, TABLES, Case

MAKERS = {made.__name__.strip("_"): made for made, _ in TABLES}
Draw = random.Random


def _between(draw: Draw, least: int, most: int) -> int:
    """Small extents as likely as large ones: even on a logarithmic scale."""
    return round(least * (most / least) ** draw.random())


def _image(draw: Draw, channels: tuple[int, int] = (8, 256)) -> tuple[int, int, int, int]:
    side = _between(draw, 7, 96)
    return draw.choice((1, 1, 2)), _between(draw, *channels), side, side


def _matmul(draw: Draw) -> Case:
    m, n, k = (_between(draw, 48, 1024) for _ in range(3))
    return MAKERS["matmul"]("contraction", m, n, k, "float32", draw.random() < 0.5)


def _few_rows(draw: Draw) -> Case:
    rows, inputs, outputs = _between(draw, 1, 32), _between(draw, 256, 2048), _between(draw, 256, 2048)
    return MAKERS["linear"]("few rows", rows, inputs, outputs, draw.choice((CALL, CONSTANT, BIAS)))


def _batch(draw: Draw) -> Case:
    m, n, k = (_between(draw, 32, 384) for _ in range(3))
    return MAKERS["batch"]("contraction", draw.randint(3, 16), m, n, k)


def _conv(draw: Draw) -> Case:
    image, size, stride = _image(draw, (3, 128)), draw.choice((1, 3, 3, 5)), draw.choice((1, 1, 2))
    return MAKERS["conv"]("convolution", image, _between(draw, 16, 128), size, stride)


def _depthwise(draw: Draw) -> Case:
    return MAKERS["depthwise"]("depthwise", _image(draw, (16, 512)), draw.choice((3, 5)), draw.choice((1, 2)))


def _pool(draw: Draw) -> Case:
    size, stride, padding = draw.choice(((2, 2, 0), (3, 1, 1), (3, 2, 0), (3, 2, 1)))
    how = draw.choice(("max", "avg"))
    return MAKERS["pool"](f"{how} pooling", how, _image(draw), size, stride, padding)


def _reduction(draw: Draw) -> Case:
    shape, axis = (_between(draw, 64, 8192), _between(draw, 64, 2048)), draw.randrange(2)
    how = draw.choice(("sum", "amax"))
    return MAKERS["reduction"](("leading sums", "reduction")[axis], how, shape, axis)


def _rows(draw: Draw) -> Case:
    shape = _between(draw, 64, 4096), _between(draw, 64, 2048)
    how = draw.choice(("softmax", "log_softmax", "layer_norm", "rms_norm"))
    settings = {"dim": -1} if "softmax" in how else {"normalized_shape": (shape[1],)}
    return MAKERS["rows"]("row-resident", how, shape, settings)


def _transpose(draw: Draw) -> Case:
    order = draw.choice(((1, 0), (1, 0, 2), (0, 2, 1), (2, 1, 0)))
    shape = (_between(draw, 128, 3072), _between(draw, 128, 3072))
    if len(order) == 3:
        shape = (*(_between(draw, 16, 256) for _ in range(3)),)
    return MAKERS["transpose"]("transpose", shape, order)


def _map(draw: Draw) -> Case:
    how, inputs = draw.choice((("relu", 1), ("add", 2), ("gelu", 1), ("silu", 1), ("mul", 2), ("tanh", 1)))
    return MAKERS["map"]("elementwise", how, inputs, _between(draw, 1 << 12, 1 << 23))


FAMILIES: Sequence[Callable[[Draw], Case]] = (
    _matmul, _few_rows, _batch, _conv, _depthwise, _pool, _reduction, _rows, _transpose, _map,
)  # fmt: skip


def unseen(count: int, seed: int) -> list[Case]:
    """So many operators, the families in turn; none has the name of one that is listed or was drawn before."""
    draw, known, found = Draw(seed), {one.name for one in CASES}, []
    while len(found) < count:
        case = FAMILIES[len(found) % len(FAMILIES)](draw)
        if case.name not in known:
            known.add(case.name)
            found.append(case)
    return found
