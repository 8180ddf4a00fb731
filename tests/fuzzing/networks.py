"""Random networks of torch: graphs of 5 to 40 operators, each of values that any operator before it made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Layer = Callable[..., Any]
ELEMENTWISE = (
    torch.relu, F.silu, F.gelu, torch.tanh, torch.sigmoid, F.hardswish, F.softplus, F.leaky_relu, torch.sin,
    lambda x: x.clamp(-0.5, 0.75), lambda x: torch.where(x > 0.1, x, -x), lambda x: x.abs().sqrt(),
)  # fmt: skip
PAIRS = (torch.add, torch.sub, torch.maximum, lambda a, b: 0.5 * a * b, lambda a, b: a / (1 + b.abs()))


class Network(nn.Module):
    """``plan``: for each value after the input (the number of its layer, the values that the layer reads)."""

    def __init__(self, layers: list[Layer], plan: list[tuple[int, ...]], results: list[int]) -> None:
        super().__init__()
        self.modules_ = nn.ModuleList([one for one in layers if isinstance(one, nn.Module)])
        self.layers, self.plan, self.results = layers, plan, results

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x]
        for layer, read in zip(self.layers, self.plan, strict=True):
            values.append(layer(*(values[n] for n in read)))
        return tuple(values[n] for n in self.results)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.qkv, self.out = heads, causal, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, s, width = x.shape
        q, k, v = self.qkv(x).view(n, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        made = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(made.transpose(1, 2).reshape(n, s, width))


class Squeezed(nn.Module):
    """Channels weighed by their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.layer(x.mean((2, 3), keepdim=True)))


def drawn(seed: int) -> tuple[Network, torch.Tensor]:
    """(a network in eval mode, an input of it); the same for the same seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    pictures = random.random() < 0.5
    channels = random.choice((4, 8, 12))
    shape = (random.choice((1, 2)), channels, random.choice((5, 8, 14)), random.choice((6, 9)))
    if not pictures:
        shape = (random.choice((1, 2)), random.choice((4, 7, 16)), channels)
    kinds = _of_pictures(channels) if pictures else _of_sequences(channels)
    layers: list[Layer] = []
    plan: list[tuple[int, ...]] = []
    for made in range(random.randint(5, 40)):
        recent = lambda made=made: max(random.randint(0, made), random.randint(0, made))
        if random.random() < 0.3:
            layers.append(random.choice(PAIRS))
            plan.append((recent(), recent()))
        else:
            layers.append(random.choice(kinds)())
            plan.append((recent(),))
    network = Network(layers, plan, sorted({len(plan), random.randint(1, len(plan))})).eval()
    for one in network.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 2)
    return network, torch.randn(shape)


def _of_pictures(c: int) -> list[Callable[[], Layer]]:
    groups = random.choice((1, 2, c))
    return [
        lambda: random.choice(ELEMENTWISE), lambda: random.choice(ELEMENTWISE),
        lambda: nn.Conv2d(c, c, 1), lambda: nn.Conv2d(c, c, 3, padding=1, bias=random.random() < 0.5),
        lambda: nn.Conv2d(c, c, 3, padding=1, groups=groups), lambda: nn.Conv2d(c, c, 3, padding=2, dilation=2),
        lambda: nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()),
        lambda: nn.BatchNorm2d(c), lambda: nn.GroupNorm(2, c), lambda: Squeezed(c),
        lambda: nn.MaxPool2d(3, 1, 1), lambda: nn.AvgPool2d(3, 1, 1),
        lambda: lambda x: F.interpolate(F.max_pool2d(x, 2), size=x.shape[2:]),
        lambda: lambda x: x.softmax(1), lambda: lambda x: x.flip(3), lambda: lambda x: x.roll((1, -2), (2, 3)),
        lambda: lambda x: F.pad(x, (1, 2, 0, 1))[:, :, : x.shape[2], 2 : 2 + x.shape[3]],
        lambda: lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), lambda: lambda x: x.cumsum(2),
    ]  # fmt: skip


def _of_sequences(w: int) -> list[Callable[[], Layer]]:
    return [
        lambda: random.choice(ELEMENTWISE), lambda: random.choice(ELEMENTWISE),
        lambda: nn.Linear(w, w), lambda: nn.Sequential(nn.Linear(w, 3 * w), nn.GELU(), nn.Linear(3 * w, w)),
        lambda: nn.LayerNorm(w), lambda: nn.RMSNorm(w), lambda: Attention(w, 2, random.random() < 0.5),
        lambda: lambda x: x.softmax(-1), lambda: lambda x: x.log_softmax(1),
        lambda: lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x,
        lambda: lambda x: x - x.mean(-1, keepdim=True), lambda: lambda x: x / (1 + x.amax(1, keepdim=True).abs()),
        lambda: lambda x: x.chunk(2, -1)[0].repeat(1, 1, 2), lambda: lambda x: x.transpose(1, 2).contiguous().flip(1).transpose(1, 2),
        lambda: lambda x: x.sort(-1)[0], lambda: lambda x: x.var(-1, keepdim=True) + x,
    ]  # fmt: skip
