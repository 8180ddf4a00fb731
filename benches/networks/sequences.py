"""Networks of attention and of recurrences: BERT, GPT-2, LLaMA, ViT, Whisper, DeTR, LSTM."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benches.networks.convolutional import Bottleneck, resnet_layers


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


def bert() -> nn.Sequential:
    """BERT-base after its embeddings."""
    return nn.Sequential(*(Encoder() for _ in range(12)))


def bert_large() -> nn.Sequential:
    return nn.Sequential(*(Encoder(1024, 16, 4096) for _ in range(24)))


class BertOfIds(nn.Module):
    """BERT-base with its embeddings of words, places and kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, 768) for n in (30522, 512, 2))
        self.norm, self.layers = nn.LayerNorm(768, 1e-12), bert()

    def forward(self, ids: Any, kinds: Any) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.norm(self.words(ids) + self.kinds(kinds) + self.places(places)))


class Block(nn.Module):
    """A layer with norms before attention and before the two products (GPT-2, ViT, Whisper)."""

    def __init__(self, width: int, heads: int, causal: bool = False, approximate: str = "none") -> None:
        super().__init__()
        self.heads, self.causal, self.approximate = heads, causal, approximate
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, s, width = x.shape
        parts = self.qkv(self.first(x)).split(width, 2)
        q, k, v = (one.view(n, s, self.heads, width // self.heads).transpose(1, 2) for one in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, s, width))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate=self.approximate))


class GPT2(nn.Module):
    """GPT-2 of 124 million parameters (Radford et al. 2019), its classes weighed by the words' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.Sequential(*(Block(768, 12, True, "tanh") for _ in range(12)))
        self.norm = nn.LayerNorm(768)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.norm(self.layers(x)) @ self.words.weight.T


class Vit(nn.Module):
    """ViT-B/16 (Dosovitskiy et al. 2021)."""

    def __init__(self, size: int = 224) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.randn(1, 1, 768))
        self.places = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, 768))
        self.layers = nn.Sequential(*(Block(768, 12) for _ in range(12)))
        self.norm, self.classes = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.classes(self.norm(self.layers(x))[:, 0])


def sines(count: int, width: int) -> torch.Tensor:
    """Whisper's table of places: sines, then cosines, of frequencies from 1 to 1/10000."""
    rates = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(count)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


class Whisper(nn.Module):
    """The encoder of Whisper tiny (Radford et al. 2022): mel frames to states."""

    def __init__(self, frames: int = 3000, width: int = 384) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.register_buffer("places", sines(frames // 2, width))
        self.layers, self.norm = nn.Sequential(*(Block(width, 6) for _ in range(4))), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        return self.norm(self.layers(x + self.places))


class Rms(nn.Module):
    """A norm by the root of the mean square (Zhang and Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def turned(x: Any, angles: Any) -> Any:
    """Rotary places (Su et al. 2021): halves of each head turned by angles."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class LlamaBlock(nn.Module):
    """A layer of LLaMA with shared keys and values; with a cache it reads one more place of it in each call."""

    def __init__(self, width: int, heads: int, shared: int, hidden: int) -> None:
        super().__init__()
        self.size, self.heads, self.shared = width // heads, heads, shared
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.q, self.k, self.v = linear(width, width), *(linear(width, shared * self.size) for _ in range(2))
        self.out, self.gate, self.up = linear(width, width), linear(width, hidden), linear(width, hidden)
        self.down, self.first, self.second = linear(hidden, width), Rms(width), Rms(width)

    def forward(self, x: Any, places: Any, cache: Any = None) -> Any:
        n, s, width = x.shape
        rates = 10000 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = places[:, None] * rates
        h = self.first(x)
        heads = lambda one, count: one.view(n, s, count, self.size).transpose(1, 2)
        q, k = turned(heads(self.q(h), self.heads), angles), turned(heads(self.k(h), self.shared), angles)
        v, mask = heads(self.v(h), self.shared), None
        if cache is not None:
            k, v = (old.index_copy(2, places, new) for old, new in zip(cache, (k, v), strict=True))
            mask = torch.arange(k.shape[2], device=x.device) <= places[:, None]
        k, v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=cache is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, s, width))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """LLaMA's layers at TinyLlama's widths (Zhang et al. 2024) between words and their scores; no cache."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(32000, 2048), nn.Linear(2048, 32000, bias=False)
        self.layers = nn.ModuleList(LlamaBlock(2048, 32, 4, 5632) for _ in range(layers))
        self.norm = Rms(2048)

    def forward(self, ids: Any) -> Any:
        x, places = self.words(ids), torch.arange(ids.shape[1], device=ids.device)
        for layer in self.layers:
            x = layer(x, places)
        return self.scores(self.norm(x))


class LlamaAlone(nn.Module):
    """One layer of LLaMA for a whole text."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = LlamaBlock(2048, 32, 4, 5632)

    def forward(self, x: Any) -> Any:
        return self.layer(x, torch.arange(x.shape[1], device=x.device))


class LlamaStep(LlamaAlone):
    """One layer of LLaMA for one more word, after those whose keys and values are given."""

    def forward(self, x: Any, place: Any, keys: Any, values: Any) -> Any:
        return self.layer(x, place, (keys, values))


class Detr(nn.Module):
    """DeTR on ResNet-50 (Carion et al. 2020): classes and boxes of 100 queries; no mask."""

    def __init__(self, width: int = 256, heads: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.features = nn.Sequential(*resnet_layers(Bottleneck, (3, 4, 6, 3), 4))
        self.narrow, self.queries = nn.Conv2d(2048, width, 1), nn.Embedding(100, width)
        self.rows, self.columns = nn.Embedding(50, width // 2), nn.Embedding(50, width // 2)
        layer: dict[str, Any] = {"d_model": width, "nhead": heads, "dim_feedforward": 2048, "batch_first": True}
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), layers, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), layers, nn.LayerNorm(width))
        self.classes, self.boxes = nn.Linear(width, 92), nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        y = self.narrow(self.features(x))
        height, width = y.shape[-2:]
        across = self.columns.weight[:width][None].expand(height, -1, -1)
        down = self.rows.weight[:height][:, None].expand(-1, width, -1)
        memory = self.encoder(y.flatten(2).transpose(1, 2) + torch.cat([across, down], -1).flatten(0, 1))
        found = self.decoder(self.queries.weight[None].expand(x.shape[0], -1, -1), memory)
        return self.classes(found), self.boxes(found).sigmoid()


class Lstm(nn.Module):
    """Layers of LSTM cells over a sequence (steps, batch, width), as in ROLLER's evaluation."""

    def __init__(self, width: int = 256, layers: int = 10) -> None:
        super().__init__()
        self.layers = nn.LSTM(width, width, layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x)[0]


class LanguageModel(nn.Module):
    """AutoTVM's LSTM language model (Zaremba et al. 2014, medium): one step of two layers, and the words' scores."""

    def __init__(self, width: int = 650, words: int = 10000) -> None:
        super().__init__()
        self.first, self.second = nn.LSTMCell(width, width), nn.LSTMCell(width, width)
        self.scores = nn.Linear(width, words)

    def forward(self, x: Any, h0: Any, c0: Any, h1: Any, c1: Any) -> Any:
        h0, c0 = self.first(x, (h0, c0))
        h1, c1 = self.second(h0, (h1, c1))
        return self.scores(h1), h0, c0, h1, c1
