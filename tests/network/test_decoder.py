"""The decoder of the examples generates what NumPy and torch do, which have no cache: all tokens again at each step."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg

COUNT = 32


KERNELS = ("embed", "append_key", "append_value", "attend", "feed", "choose")


@pytest.fixture(scope="module")
def builds():
    """Every kernel that `rg.build` made since the example was read, in order."""
    return []


@pytest.fixture(scope="module")
def decoder(builds):
    path = Path(__file__).resolve().parents[2] / "examples" / "decoder.py"
    spec = importlib.util.spec_from_file_location("decoder", path)
    module = importlib.util.module_from_spec(spec)
    build = rg.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rg, "build", lambda *given, **options: builds.append(build(*given, **options)) or builds[-1])
        spec.loader.exec_module(module)
        yield module


def numpys(model, d, tokens):
    """The logits of the last token, in float64."""
    norm = lambda h: h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * model["gain"]
    length, h = len(tokens), model["table"][tokens].astype("float64")
    c, s = (model[name][:length, None].astype("float64") for name in ("cos", "sin"))

    def turned(y):
        a, b = y[..., : d.HALF], y[..., d.HALF :]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    for w in model["layers"]:
        q, k, v = ((norm(h) @ w[name].T).reshape(length, -1, d.DEPTH) for name in ("wq", "wk", "wv"))
        k, v = (np.repeat(one, d.HEADS // d.SHARED, 1) for one in (turned(k), v))
        scores = np.where(np.tri(length) > 0, np.einsum("qhd,khd->hqk", turned(q), k) / d.DEPTH**0.5, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        h = h + np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v).reshape(length, -1) @ w["wo"].T
        a = norm(h) @ w["w1"].T
        h = h + (a / (1 + np.exp(-a)) * (norm(h) @ w["w3"].T)) @ w["w2"].T
    return norm(h[-1]) @ model["head"].T


def torchs(model, d, tokens):
    """The same in torch's float32, by its own operators."""
    torch = pytest.importorskip("torch")
    f, of = torch.nn.functional, torch.from_numpy
    norm = lambda h: f.rms_norm(h, (d.WIDTH,), of(model["gain"]), 1e-5)
    length, h = len(tokens), of(model["table"])[torch.tensor(tokens)]
    c, s = (of(model[name])[:length].repeat(1, 2) for name in ("cos", "sin"))
    turned = lambda y: y * c + torch.cat([-y[..., d.HALF :], y[..., : d.HALF]], -1) * s
    for w in model["layers"]:
        w = {name: of(one) for name, one in w.items()}
        q, k, v = (f.linear(norm(h), w[n]).view(length, -1, d.DEPTH).transpose(0, 1) for n in ("wq", "wk", "wv"))
        seen = f.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        h = h + f.linear(seen.transpose(0, 1).reshape(length, -1), w["wo"])
        h = h + f.linear(f.silu(f.linear(norm(h), w["w1"])) * f.linear(norm(h), w["w3"]), w["w2"])
    return f.linear(norm(h[-1]), of(model["head"])).numpy()


@pytest.mark.parametrize("logits", [numpys, torchs])
def test_every_token_is_the_references(decoder, logits):
    model = decoder.drawn(3)
    tokens, ours = [1], list(decoder.generate(model, COUNT))
    for _ in range(COUNT):
        tokens.append(int(np.argmax(logits(model, decoder, tokens))))
    assert ours == tokens[1:]
    assert len(set(ours)) > COUNT // 2  # it does not stand still


def test_one_build_of_each_kernel_serves_every_layer_and_length(decoder, builds):
    list(decoder.generate(decoder.drawn(3), COUNT))
    assert builds == [getattr(decoder, name) for name in KERNELS]


def test_what_a_cache_held_before_matters(decoder):
    model = decoder.drawn(3)
    first = list(decoder.generate(model, 8))
    model["layers"][0]["wv"] = model["layers"][0]["wv"] * 0
    assert list(decoder.generate(model, 8)) != first
