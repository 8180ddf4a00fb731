"""Networks whose layers branch: Inception-V3 and NASNet."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benches.networks.convolutional import classified

Size = int | tuple[int, int]


def convolved(before: int, after: int, size: Size, stride: int = 1, padding: Any = 0) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, size, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after, 1e-3), nn.ReLU())


def path(before: int, *layers: tuple[int, Size, int, Any]) -> nn.Sequential:
    """Convolutions by (channels, size, stride, padding)."""
    made = []
    for after, size, stride, padding in layers:
        made.append(convolved(before, after, size, stride, padding))
        before = after
    return nn.Sequential(*made)


class Branches(nn.Module):
    """The results of all paths side by side."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Any) -> Any:
        return torch.cat([one(x) for one in self.paths], 1)


def pooled(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), convolved(before, after, 1))


def _narrow(before: int, after: int) -> Branches:
    return Branches(
        path(before, (64, 1, 1, 0)), path(before, (48, 1, 1, 0), (64, 5, 1, 2)),
        path(before, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)), pooled(before, after),
    )  # fmt: skip


def _crossed(c: int) -> Branches:
    """Rows and columns of seven apart."""
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    twice = ((c, *column), (c, *row), (c, *column), (192, *row))
    return Branches(
        path(768, (192, 1, 1, 0)), path(768, (c, 1, 1, 0), (c, *row), (192, *column)),
        path(768, (c, 1, 1, 0), *twice), pooled(768, 192),
    )  # fmt: skip


def _wide(before: int) -> Branches:
    apart = lambda: Branches(path(384, (384, (1, 3), 1, (0, 1))), path(384, (384, (3, 1), 1, (1, 0))))
    return Branches(
        path(before, (320, 1, 1, 0)), nn.Sequential(path(before, (384, 1, 1, 0)), apart()),
        nn.Sequential(path(before, (448, 1, 1, 0), (384, 3, 1, 1)), apart()), pooled(before, 192),
    )  # fmt: skip


def inception() -> nn.Sequential:
    """Inception-V3 (Szegedy et al. 2015)."""
    seven = ((192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)))
    layers: list[nn.Module] = [
        path(3, (32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)), nn.MaxPool2d(3, 2),
        path(64, (80, 1, 1, 0), (192, 3, 1, 0)), nn.MaxPool2d(3, 2),
        _narrow(192, 32), _narrow(256, 64), _narrow(288, 64),
        Branches(path(288, (384, 3, 2, 0)), path(288, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)), nn.MaxPool2d(3, 2)),
        *map(_crossed, (128, 160, 160, 192)),
        Branches(
            path(768, (192, 1, 1, 0), (320, 3, 2, 0)), path(768, (192, 1, 1, 0), *seven, (192, 3, 2, 0)),
            nn.MaxPool2d(3, 2),
        ),
        _wide(1280), _wide(2048),
    ]  # fmt: skip
    return classified(layers, 2048)


class Separable(nn.Module):
    """NASNet's separable convolution: twice channel by channel, then across channels."""

    def __init__(self, before: int, after: int, size: int, stride: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, step in ((before, stride), (after, 1)):
            apart = nn.Conv2d(channels, channels, size, step, size // 2, groups=channels, bias=False)
            layers += [nn.ReLU(), apart, nn.Conv2d(channels, after, 1, bias=False), nn.BatchNorm2d(after, 1e-3)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Halved(nn.Module):
    """Half of the pixels, in two interleaved pictures."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.even, self.odd = (nn.Conv2d(before, after // 2, 1, bias=False) for _ in range(2))
        self.norm = nn.BatchNorm2d(after, 1e-3)

    def forward(self, x: Any) -> Any:
        x = F.relu(x)
        moved = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(F.avg_pool2d(x, 1, 2)), self.odd(F.avg_pool2d(moved, 1, 2))], 1))


class Cell(nn.Module):
    """NASNet-A's cells (Zoph et al. 2018, fig. 4): of what the last two cells made."""

    def __init__(self, before: int, earlier: int, channels: int, halves: bool, reduces: bool) -> None:
        super().__init__()
        c, self.reduces = channels, reduces
        squeezed = lambda n: nn.Sequential(nn.ReLU(), nn.Conv2d(n, c, 1, bias=False), nn.BatchNorm2d(c, 1e-3))
        self.last = squeezed(before)
        self.earlier = Halved(earlier, c) if halves else squeezed(earlier)
        sizes = (5, 7, 7, 5, 3) if reduces else (5, 3, 5, 3, 3)
        strides = (2, 2, 2, 2, 1) if reduces else (1,) * 5
        self.separable = nn.ModuleList(Separable(c, c, n, s) for n, s in zip(sizes, strides, strict=True))

    def forward(self, x: Any, earlier: Any) -> Any:
        h, p = self.last(x), self.earlier(earlier)
        a, b, c, d, e = self.separable
        if not self.reduces:
            mean = F.avg_pool2d(p, 3, 1, 1)
            return torch.cat([p, a(h) + b(p), c(p) + d(p), F.avg_pool2d(h, 3, 1, 1) + p, mean + mean, e(h) + h], 1)
        first, most = a(h) + b(p), F.max_pool2d(h, 3, 2, 1)
        second = most + c(p)
        third = F.avg_pool2d(h, 3, 2, 1) + d(p)
        return torch.cat([second, third, F.avg_pool2d(first, 3, 1, 1) + second, e(first) + most], 1)


class NASNet(nn.Module):
    """NASNet-A: stem, then three stages of cells with reductions between them; as published 6 cells, 168 channels."""

    def __init__(self, cells: int = 6, channels: int = 168, stem: int = 96) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), nn.BatchNorm2d(stem, 1e-3))
        plan = [(channels // 4, True), (channels // 2, True)]
        for stage in range(3):
            plan += [(channels << stage, True)] * bool(stage) + [(channels << stage, False)] * cells
        made, before, earlier, halves = [], stem, stem, False
        for width, reduces in plan:
            made.append(Cell(before, earlier, width, halves, reduces))
            before, earlier, halves = width * (4 if reduces else 6), before, reduces
        self.cells, self.classes = nn.ModuleList(made), nn.Linear(before, 1000)

    def forward(self, x: Any) -> Any:
        x = earlier = self.stem(x)
        for cell in self.cells:
            x, earlier = cell(x, earlier), x
        return self.classes(F.relu(x).mean((2, 3)))
