"""PaCM, the learned model of Pruner (ASPLOS 2025, section 4.2), as a ranker: features of the statement beside attention
over the dataflow, trained on the order of each operator's programs, adapted by momentum (section 4.3).

The extra ``rollergen[pacm]`` (PyTorch, safetensors).  Differences from the paper's code: one list of programs for each
operator (there: tasks mixed), padding is masked, positions are learned, and an update keeps the normaliser.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from rollergen.features import VERSION, names
from rollergen.features.dataflow import BLOCKS, COLUMNS, sequences
from rollergen.hal.files.trusted import open_untrusted
from rollergen.optional import optional
from rollergen.verify.dataset import Dataset
from rollergen.verify.model_text import VerifierError

FORMAT = "rollergen.pacm.v1"
LARGEST_FILE = 16 << 20
MOMENTUM = 0.99
PAPER = {"width": 256, "epochs": 50, "momentum": 0.99}
"""What the paper has; here half the width and fewer epochs, as one core trains 50 times (folds x seeds)."""
LISTS = 8
"""Operators in one step of training."""

_LEAST_SCALE = 1e-9
"""What a column is divided by where nothing in it is larger."""


def _torch() -> Any:
    return optional("torch", "pacm")


@contextmanager
def _one_thread() -> Iterator[Any]:
    """torch, on one thread: its matrices are so small that several wait for each other, and sums of several threads
    differ from run to run."""
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)


def network(width: int) -> Any:
    """The module: (rows, features), (rows, blocks, columns), mask -> scores (rows,)."""
    torch = _torch()
    nn = torch.nn

    def two_layers(given: int, middle: int, found: int) -> Any:
        return nn.Sequential(nn.Linear(given, middle), nn.ReLU(), nn.Linear(middle, found), nn.ReLU())

    class PaCM(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            half = width // 2
            self.statement = two_layers(len(names()), width, width)
            self.block = two_layers(COLUMNS, half // 2, half)
            self.position = nn.Parameter(torch.zeros(len(BLOCKS), half))
            self.attention = nn.MultiheadAttention(half, 4, batch_first=True)
            self.join = nn.Sequential(nn.Linear(width + half, width), nn.ReLU(), nn.BatchNorm1d(width))
            self.deep = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
            self.score = nn.Linear(width, 1)

        def forward(self, x: Any, blocks: Any, mask: Any) -> Any:
            flow = self.block(blocks) + self.position
            seen, _ = self.attention(flow, flow, flow, key_padding_mask=~mask, need_weights=False)
            flow = ((flow + seen) * mask.unsqueeze(2)).sum(dim=1)
            found = self.join(torch.cat([self.statement(x), flow], dim=1))
            for layer in self.deep:
                found = found + torch.relu(layer(found))
            return self.score(found).squeeze(1)

    return PaCM()


@dataclass
class Attentive:
    """PaCM behind the interface of `rankers.Ranker`.  ``width``: of its layers (the paper's 256 give 0.4 M weights);
    ``epochs``, ``rate``, ``decay``: of Adam, as the paper has them but for the number of epochs (there 50).
    ``momentum``: of the target's weights at an update; 0: ordinary fine-tuning."""

    width: int = 128
    epochs: int = 30
    rate: float = 7e-4
    decay: float = 1e-6
    clip: float = 0.5
    momentum: float = MOMENTUM
    scale: np.ndarray | None = None
    block_scale: np.ndarray | None = None
    module: Any = None
    target: dict[str, Any] = field(default_factory=dict)

    def fit(self, data: Dataset, seed: int) -> None:
        data = data.of(data.right)
        if len(data) < 2:
            raise VerifierError(f"{len(data)} records that passed their check; expected at least 2 to train PaCM on")
        blocks, _ = sequences(data.x)
        self.scale = np.maximum(np.abs(data.x).max(axis=0), _LEAST_SCALE)
        self.block_scale = np.maximum(np.abs(blocks).max(axis=(0, 1)), _LEAST_SCALE)
        with _one_thread() as torch, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = network(self.width)
            self._trained(data, seed, self.epochs)
        self.target = self._weights()

    def update(self, data: Dataset, seed: int, epochs: int = 10) -> None:
        """Momentum adaptation: trained from the target's weights on all rows measured since, which then move the target
        by 1 - ``momentum``; the statistics of the normalisation are not averaged."""
        data = data.of(data.right)
        if len(data) < 2:
            return
        with _one_thread() as torch, torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for name, weight in self.module.named_parameters():
                weight.copy_(self.target[name])
            with torch.enable_grad():
                self._trained(data, seed, epochs)
            for name, weight in self.module.named_parameters():
                self.target[name] = self.momentum * self.target[name] + (1 - self.momentum) * weight.detach()

    def settings(self) -> dict[str, Any]:
        """What a report says of it."""
        return {"width": self.width, "epochs": self.epochs, "momentum": self.momentum, "paper": PAPER}

    def scores(self, data: Dataset) -> np.ndarray:
        self.module.eval()
        with _one_thread() as torch, torch.no_grad():
            return np.asarray(self.module(*self._inputs(data.x)).numpy(), dtype=np.float64)

    def _weights(self) -> dict[str, Any]:
        return {name: weight.detach().clone() for name, weight in self.module.named_parameters()}

    def _inputs(self, x: np.ndarray) -> tuple[Any, Any, Any]:
        torch = _torch()
        blocks, mask = sequences(x)
        tensor = lambda values: torch.from_numpy(values.astype(np.float32))
        return tensor(x / self.scale), tensor(blocks / self.block_scale), torch.from_numpy(mask)

    def _trained(self, data: Dataset, seed: int, epochs: int) -> None:
        torch = _torch()
        inputs = self._inputs(data.x)
        gains = torch.from_numpy(_gains(data).astype(np.float32))
        steps = torch.optim.Adam(self.module.parameters(), lr=self.rate, weight_decay=self.decay)
        self.module.train()
        rng = np.random.default_rng(seed)
        for _ in range(epochs):
            for lists in _batches(data, rng):
                rows = np.concatenate(lists)
                if len(rows) < 2:
                    continue
                scores = self.module(*(part[rows] for part in inputs))
                parts = torch.split(scores, [len(own) for own in lists])
                loss = sum(_rank_loss(part, gains[own]) for part, own in zip(parts, lists, strict=True)) / len(lists)
                steps.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.clip)
                steps.step()


def _gains(data: Dataset) -> np.ndarray:
    """``(2**y - 1)`` over the best discounted sum of its operator, y = best time over own time."""
    found = np.zeros(len(data))
    for rows in data.operators():
        gain = 2 ** (data.ms[rows].min() / data.ms[rows]) - 1
        best = (np.sort(gain)[::-1] / np.log2(2 + np.arange(len(rows)))).sum()
        found[rows] = gain / best
    return found


def _batches(data: Dataset, rng: np.random.Generator) -> Iterator[list[np.ndarray]]:
    lists = data.operators()
    order = rng.permutation(len(lists))
    for start in range(0, len(order), LISTS):
        yield [lists[n] for n in order[start : start + LISTS]]


def _rank_loss(scores: Any, gains: Any) -> Any:
    """LambdaRank: over pairs of which one is faster, ``|1/D_i - 1/D_j| |G_i - G_j| log2(1 + exp(-(s_i - s_j)))``."""
    torch = _torch()
    with torch.no_grad():
        ranks = scores.argsort(descending=True).argsort()
        discount = 1 / torch.log2(2.0 + ranks)
        weight = (discount[:, None] - discount[None, :]).abs() * (gains[:, None] - gains[None, :]).clamp(min=0)
    gap = scores[:, None] - scores[None, :]
    return (weight * torch.nn.functional.softplus(-gap)).sum() / float(np.log(2))


def save(ranker: Attentive, path: Path) -> None:
    """Weights, normaliser and what they are for, as safetensors."""
    from safetensors.numpy import save_file

    tensors = {f"module.{name}": value.numpy() for name, value in ranker.module.state_dict().items()}
    tensors |= {f"target.{name}": value.numpy() for name, value in ranker.target.items()}
    assert ranker.scale is not None and ranker.block_scale is not None
    tensors |= {"scale": ranker.scale, "block_scale": ranker.block_scale}
    partial = path.with_name(path.name + ".partial")
    try:
        save_file(tensors, partial, {"about": json.dumps(_about(ranker.width))})
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load(path: Path) -> Attentive:
    """Raises VerifierError that names the file and what is wrong with it; nothing in a file is executed."""
    torch = _torch()
    from safetensors import SafetensorError, safe_open

    try:
        with open_untrusted(path) as opened:
            size = os.fstat(opened.fileno()).st_size
        if size > LARGEST_FILE:
            raise VerifierError(f"{path} has {size} bytes; expected at most {LARGEST_FILE}")
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {}).get("about", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, RecursionError, SafetensorError, AttributeError, TypeError) as error:
        # the last two: a dtype that numpy has not
        raise VerifierError(f"{path} cannot be read as {FORMAT}: {error}") from None
    width = about.get("width") if isinstance(about, dict) else None
    if not isinstance(width, int) or not 8 <= width <= 1024 or width % 8 or about != _about(width):
        raise VerifierError(f"{path} is no {FORMAT} for features of version {VERSION}: train it anew")
    ranker = Attentive(width=width, module=network(width))
    expected = {f"module.{name}": value.numpy() for name, value in ranker.module.state_dict().items()}
    expected |= {f"target.{name}": value.numpy() for name, value in ranker._weights().items()}
    expected |= {"scale": np.zeros(len(names())), "block_scale": np.zeros(COLUMNS)}
    for name, like in expected.items():
        one = tensors.get(name)
        if one is None or one.shape != like.shape or one.dtype != like.dtype or not np.isfinite(one).all():
            raise VerifierError(f"{path}: {name} is not {like.dtype}{list(like.shape)} of finite numbers")
    if unknown := tensors.keys() - expected.keys():
        raise VerifierError(f"{path}: there is no {min(unknown)} in {FORMAT}")
    if min(tensors["scale"].min(), tensors["block_scale"].min()) < _LEAST_SCALE:
        raise VerifierError(f"{path}: a scale is below {_LEAST_SCALE:g}; expected it positive, and no less than that")
    if any((one < 0).any() for name, one in tensors.items() if name.endswith("running_var")):
        raise VerifierError(f"{path}: a variance is not positive")
    ranker.module.load_state_dict({n[7:]: torch.from_numpy(v) for n, v in tensors.items() if n.startswith("module.")})
    ranker.target = {n[7:]: torch.from_numpy(v) for n, v in tensors.items() if n.startswith("target.")}
    ranker.scale, ranker.block_scale = tensors["scale"], tensors["block_scale"]
    return ranker


def _about(width: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "width": width,
        "features": VERSION,
        "names_sha256": sha256("\n".join(names()).encode()).hexdigest(),
    }
