"""A U-Net that removes noise (Ho et al. 2020, with its attention), size cut: 64 channels, three levels, 32 x 32."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Timed(nn.Module):
    """Two convolutions that know the time."""

    def __init__(self, before: int, after: int, times: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, before), nn.GroupNorm(32, after)
        self.one, self.other = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.time = nn.Linear(times, after)
        self.beside = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Any, time: Any) -> Any:
        y = self.one(F.silu(self.first(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.beside(x) + self.other(F.silu(self.second(y)))


class Mixed(nn.Module):
    """Attention of all pixels to all."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        n, c, h, w = x.shape
        parts = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, h * w)
        q, k, v = (one.transpose(2, 3) for one in parts.unbind(1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(n, c, h, w))


class UNet(nn.Module):
    def __init__(self, channels: int = 64, levels: int = 3) -> None:
        super().__init__()
        times, widths = 4 * channels, [channels << level for level in range(levels)]
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(4, channels, 3, 1, 1)
        self.down, self.narrower = nn.ModuleList(), nn.ModuleList()
        for before, after in zip([channels, *widths], widths, strict=False):
            self.down.append(Timed(before, after, times))
            self.narrower.append(nn.Conv2d(after, after, 3, 2, 1))
        self.middle, self.mixed = Timed(widths[-1], widths[-1], times), Mixed(widths[-1])
        self.up, self.wider = nn.ModuleList(), nn.ModuleList()
        for below, after in zip([widths[-1], *widths[::-1]], widths[::-1], strict=False):
            self.wider.append(nn.Conv2d(below, after, 3, 1, 1))
            self.up.append(Timed(2 * after, after, times))
        self.last = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, 1, 1))

    def forward(self, x: Any, time: Any) -> Any:
        rates = torch.exp(-math.log(10000) * torch.arange(self.channels // 2, device=x.device) / (self.channels // 2))
        angles = time[:, None] * rates
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype))
        x, kept = self.first(x), []
        for block, narrower in zip(self.down, self.narrower, strict=True):
            x = block(x, time)
            kept.append(x)
            x = narrower(x)
        x = self.mixed(self.middle(x, time))
        for wider, block in zip(self.wider, self.up, strict=True):
            x = wider(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat([x, kept.pop()], 1), time)
        return self.last(x)
