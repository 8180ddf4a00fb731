"""Networks built from code with random weights, sizes as published: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benches.networks import cells, convolutional, diffusion, sequences
from benches.networks.convolutional import Bottleneck, Residual, resnet

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """``build`` and ``inputs`` take the side of the picture, the length of the text or of the sound: ``size`` as
    published, ``small`` where a check shall be quick.  Weights are as many for both."""

    build: Callable[[int], nn.Module]
    inputs: Callable[[int], Inputs]
    size: int
    small: int


def _of_pictures(build: Callable[[], nn.Module], size: int = 224, small: int = 64) -> Recipe:
    return Recipe(lambda _: build(), lambda side: (torch.randn(1, 3, side, side),), size, small)


def _of_fixed(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Recipe:
    return Recipe(lambda _: build(), lambda _: tuple(map(torch.randn, shapes)), 1, 1)


def _of_states(build: Callable[[], nn.Module], width: int, small: int = 16) -> Recipe:
    return Recipe(lambda _: build(), lambda length: (torch.randn(1, length, width),), 128, small)


def _ids(length: int, below: int) -> torch.Tensor:
    return torch.randint(0, below, (1, length))


def _decoding(length: int) -> Inputs:
    """A word's state, its place, and the keys and values before it."""
    before = (torch.randn(1, 4, length, 64) for _ in range(2))
    return (torch.randn(1, 1, 2048), torch.tensor([length // 2]), *before)


STATE = (1, 650)
NETWORKS: dict[str, Recipe] = {
    "BERT-base layer": _of_states(sequences.Encoder, 768),
    "BERT-base": _of_states(sequences.bert, 768),
    "BERT-large": Recipe(
        lambda _: sequences.bert_large(), lambda length: (torch.randn(1, length, 1024),), 512, 16
    ),
    "BERT-base of ids": Recipe(
        lambda _: sequences.BertOfIds(), lambda length: (_ids(length, 30522), _ids(length, 2)), 128, 16
    ),
    "ResNet-18": _of_pictures(lambda: resnet(Residual, (2, 2, 2, 2), 1)),
    "ResNet-50": _of_pictures(lambda: resnet(Bottleneck, (3, 4, 6, 3), 4)),
    "MobileNet-V2": _of_pictures(convolutional.mobilenet),
    "Inception-V3": _of_pictures(cells.inception, 299, 96),
    "GPT-2": Recipe(lambda _: sequences.GPT2(), lambda length: (_ids(length, 50257),), 128, 16),
    "LLaMA block": _of_states(sequences.LlamaAlone, 2048),
    "LLaMA block, one word": Recipe(lambda _: sequences.LlamaStep(), _decoding, 128, 16),
    "LLaMA of two layers": Recipe(lambda _: sequences.Llama(), lambda length: (_ids(length, 32000),), 128, 16),
    "ViT block": _of_states(lambda: sequences.Block(768, 12), 768),
    "ViT-B/16": Recipe(sequences.Vit, lambda side: (torch.randn(1, 3, side, side),), 224, 64),
    "DCGAN": _of_fixed(convolutional.dcgan, (1, 100, 1, 1)),
    "DQN": _of_fixed(convolutional.dqn, (1, 4, 84, 84)),
    "LSTM cells": _of_fixed(sequences.LanguageModel, STATE, STATE, STATE, STATE, STATE),
    "LSTM": Recipe(lambda _: sequences.Lstm(), lambda steps: (torch.randn(steps, 1, 256),), 100, 4),
    "NASNet": _of_pictures(cells.NASNet, 331, 75),
    "DenseNet-121": _of_pictures(convolutional.densenet),
    "EfficientNet-B0": _of_pictures(convolutional.efficientnet),
    "ConvNeXt-tiny": _of_pictures(convolutional.convnext),
    "DeepLab-V3": _of_pictures(convolutional.DeepLab, 512, 64),
    "DeTR": _of_pictures(sequences.Detr, 800, 64),
    "U-Net": Recipe(
        lambda _: diffusion.UNet(), lambda side: (torch.randn(1, 4, side, side), torch.tensor([500.0])), 32, 16
    ),
    "Whisper encoder": Recipe(sequences.Whisper, lambda frames: (torch.randn(1, 80, frames),), 3000, 64),
}
"""By name, weights and inputs float32, batch 1."""


def network(name: str, small: bool = False) -> tuple[nn.Module, Inputs]:
    """(the network in eval mode, the arguments of a call), weights and statistics of norms drawn with seed 0."""
    torch.manual_seed(0)
    recipe = NETWORKS[name]
    size = recipe.small if small else recipe.size
    made = recipe.build(size).eval()
    for one in made.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.1)
            one.running_var.uniform_(0.5, 2)
    return made, recipe.inputs(size)
