"""Convolutional networks for pictures, of one path or of paths that join: ResNet, MobileNet, DCGAN, DQN, DenseNet,
EfficientNet, ConvNeXt, DeepLab."""

from __future__ import annotations

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
    """ResNet's block of three convolutions, the stride in the middle one, or the places between its taps."""

    def __init__(self, before: int, channels: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        self.first, self.second = normed(before, channels, 1), normed(channels, channels, 3, stride, dilation=dilation)
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


def normed(before: int, after: int, size: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution that keeps the picture's size, but for its stride, and its norm."""
    edge = size // 2 * dilation
    convolution = nn.Conv2d(before, after, size, stride, edge, dilation, groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


def classified(layers: list[nn.Module], channels: int, classes: int = 1000) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def resnet_layers(block: Any, counts: tuple[int, ...], growth: int, dilated: bool = False) -> list[nn.Module]:
    """All before the classes; ``dilated``: the last two stages look further apart instead of striding."""
    layers: list[nn.Module] = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, count in enumerate(counts):
        apart = 2 ** max(stage - 1, 0) if dilated else 1
        for number in range(count):
            stride = 2 if stage and not number and apart == 1 else 1
            further = {"dilation": apart if number else max(apart // 2, 1)} if apart > 1 else {}
            layers.append(block(before, 64 << stage, stride, **further))
            before = (64 << stage) * growth
    return layers


def resnet(block: Any, counts: tuple[int, ...], growth: int) -> nn.Sequential:
    return classified(resnet_layers(block, counts, growth), 512 * growth)


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Factor, channels, count and first stride of each stage (Sandler et al., table 2)."""


def mobilenet() -> nn.Sequential:
    layers: list[nn.Module] = [normed(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    for factor, channels, count, stride in MOBILE:
        for number in range(count):
            layers.append(Inverted(before, channels, stride if not number else 1, factor))
            before = channels
    return classified([*layers, normed(before, 1280, 1), nn.ReLU6()], 1280)


def dcgan() -> nn.Sequential:
    """The generator (Radford et al. 2016): 100 numbers to a picture of 64 x 64."""
    layers: list[nn.Module] = []
    for before, after, stride, edge in ((100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)):
        layers += [nn.ConvTranspose2d(before, after, 4, stride, edge, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


def dqn() -> nn.Sequential:
    """The network of Mnih et al. 2015: four frames of 84 x 84 to 18 actions."""
    layers: list[nn.Module] = []
    for before, after, size, stride in ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
        layers += [nn.Conv2d(before, after, size, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18))


class Dense(nn.Module):
    """DenseNet's layer (Huang et al. 2017): its 32 channels beside all that it read."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, 128, 1, bias=False),
            nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 32, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.layers(x)], 1)


def densenet() -> nn.Sequential:
    layers: list[nn.Module] = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for count in (6, 12, 24, 16):
        if channels > 64:
            half = nn.Conv2d(channels, channels // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), half, nn.AvgPool2d(2)]
            channels //= 2
        layers += [Dense(channels + 32 * number) for number in range(count)]
        channels += 32 * count
    return classified([*layers, nn.BatchNorm2d(channels), nn.ReLU()], channels)


class Scaled(nn.Module):
    """EfficientNet's block (Tan and Le 2019): MobileNet-V2's with channels weighed by their means."""

    def __init__(self, before: int, channels: int, size: int, stride: int, factor: int) -> None:
        super().__init__()
        wide, few = before * factor, before // 4
        self.wider = nn.Sequential(normed(before, wide, 1), nn.SiLU()) if factor > 1 else nn.Identity()
        self.apart = nn.Sequential(normed(wide, wide, size, stride, wide), nn.SiLU())
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, few, 1), nn.SiLU(), nn.Conv2d(few, wide, 1), nn.Sigmoid()
        )
        self.last, self.adds = normed(wide, channels, 1), stride == 1 and before == channels

    def forward(self, x: Any) -> Any:
        y = self.apart(self.wider(x))
        y = self.last(y * self.weights(y))
        return x + y if self.adds else y


EFFICIENT = (
    (1, 16, 3, 1, 1), (6, 24, 3, 2, 2), (6, 40, 5, 2, 2), (6, 80, 3, 2, 3), (6, 112, 5, 1, 3), (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)  # fmt: skip
"""Factor, channels, size, first stride and count of each stage of B0 (Tan and Le, table 1)."""


def efficientnet() -> nn.Sequential:
    layers: list[nn.Module] = [normed(3, 32, 3, 2), nn.SiLU()]
    before = 32
    for factor, channels, size, stride, count in EFFICIENT:
        for number in range(count):
            layers.append(Scaled(before, channels, size, stride if not number else 1, factor))
            before = channels
    return classified([*layers, normed(before, 1280, 1), nn.SiLU()], 1280)


class ChannelNorm(nn.LayerNorm):
    """A norm over the channels of each pixel."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Next(nn.Module):
    """ConvNeXt's block (Liu et al. 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.apart, self.norm = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels), nn.LayerNorm(channels, 1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.apart(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96, 1e-6)]
    for stage, count in enumerate((3, 3, 9, 3)):
        channels = 96 << stage
        if stage:
            layers += [ChannelNorm(channels // 2, 1e-6), nn.Conv2d(channels // 2, channels, 2, 2)]
        layers += [Next(channels) for _ in range(count)]
    pooled = [nn.AdaptiveAvgPool2d(1), ChannelNorm(768, 1e-6), nn.Flatten(), nn.Linear(768, 1000)]
    return nn.Sequential(*layers, *pooled)


class DeepLab(nn.Module):
    """DeepLab-V3 on ResNet-50 (Chen et al. 2017): a class of 21 for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*resnet_layers(Bottleneck, (3, 4, 6, 3), 4, dilated=True))
        wide = lambda size, apart: nn.Sequential(normed(2048, 256, size, dilation=apart), nn.ReLU())
        self.views = nn.ModuleList([wide(1, 1), *(wide(3, apart) for apart in (12, 24, 36))])
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), normed(2048, 256, 1), nn.ReLU())
        self.head = nn.Sequential(
            normed(1280, 256, 1), nn.ReLU(), normed(256, 256, 3), nn.ReLU(), nn.Conv2d(256, 21, 1)
        )

    def forward(self, x: Any) -> Any:
        y = self.features(x)
        whole = F.interpolate(self.whole(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.head(torch.cat([*(one(y) for one in self.views), whole], 1))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
