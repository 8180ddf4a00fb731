"""Networks built from code with random weights, sizes as published: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """ResNet's basic block (He et al. 2015)."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = normed(before, channels, 3, stride)
        self.second = normed(channels, channels, 3)
        same = stride == 1 and before == channels
        self.beside = nn.Identity() if same else normed(before, channels, 1, stride)

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))) + self.beside(x))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, the stride in the middle one."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = normed(before, channels, 1), normed(channels, channels, 3, stride)
        self.third = normed(channels, 4 * channels, 1)
        same = stride == 1 and before == 4 * channels
        self.beside = nn.Identity() if same else normed(before, 4 * channels, 1, stride)

    def forward(self, x: Any) -> Any:
        return F.relu(self.third(F.relu(self.second(F.relu(self.first(x))))) + self.beside(x))


class Inverted(nn.Module):
    """MobileNet-V2's block (Sandler et al. 2018)."""

    def __init__(self, before: int, channels: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = before * factor
        layers = [normed(before, wide, 1), nn.ReLU6()] if factor > 1 else []
        layers += [normed(wide, wide, 3, stride, wide), nn.ReLU6(), normed(wide, channels, 1)]
        self.layers, self.adds = nn.Sequential(*layers), stride == 1 and before == channels

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.adds else self.layers(x)


class Encoder(nn.Module):
    """A layer of BERT-base (Devlin et al. 2018): norms after the sums."""

    def __init__(self, width: int = 768, heads: int = 12, hidden: int = 3072) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.middle, self.last = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        n, s, width = x.shape
        q, k, v = self.qkv(x).view(n, s, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, s, width)
        x = self.middle(x + self.out(mixed))
        return self.last(x + self.down(F.gelu(self.up(x))))


def normed(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


def resnet(block: Any, counts: tuple[int, ...], growth: int) -> nn.Sequential:
    layers: list[nn.Module] = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, count in enumerate(counts):
        for number in range(count):
            layers.append(block(before, 64 << stage, 2 if stage and not number else 1))
            before = (64 << stage) * growth
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Factor, channels, count and first stride of each stage (Sandler et al., table 2)."""


def mobilenet() -> nn.Sequential:
    layers: list[nn.Module] = [normed(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    for factor, channels, count, stride in MOBILE:
        for number in range(count):
            layers.append(Inverted(before, channels, stride if not number else 1, factor))
            before = channels
    layers += [normed(before, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BERT-base layer": (Encoder, (1, 128, 768)),
    "BERT-base": (lambda: nn.Sequential(*(Encoder() for _ in range(12))), (1, 128, 768)),
    "ResNet-18": (lambda: resnet(Residual, (2, 2, 2, 2), 1), (1, 3, 224, 224)),
    "ResNet-50": (lambda: resnet(Bottleneck, (3, 4, 6, 3), 4), (1, 3, 224, 224)),
    "MobileNet-V2": (mobilenet, (1, 3, 224, 224)),
}
"""By name: what builds it, and the shape of its input."""


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """(the network in eval mode, an input), weights and statistics of norms drawn with seed 0."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    made = build().eval()
    for one in made.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.1)
            one.running_var.uniform_(0.5, 2)
    return made, torch.randn(shape)
