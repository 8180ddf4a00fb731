"""Whole models on the GPU beside PyTorch: ``python benches/gpu/models.py``.

Each is compiled without measuring (the model's first choices), its result on tensors of the GPU and of the host is held
to PyTorch's of the same dtype (``error``: largest difference over the largest element), and calls are timed by the
host's clock until the GPU is done, then replays of CUDA graphs of both.  float32 is float32 on both sides: TF32 is off.
Rows are kept in results/gpu_models_<spec>.json.  Exits with 1 where an error is beyond 1e-2, with 3 where time ran out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.gpu import machine
from benches.gpu.cases import Key
from benches.gpu.machine import Machine
from benches.gpu.peers import fix_precision
from benches.gpu.rows import Row, Rows
from rollergen.errors import RollergenError

NAME, SUITE = "models", "models"
MOST_ERROR, CALLS, ROUNDS, WARM_UP = 1e-2, 20, 9, 5


def encoder() -> Any:
    from torch import nn

    return nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")


def embedding() -> Any:
    from torch import nn

    return nn.Sequential(nn.Embedding(5000, 256), nn.LayerNorm(256), nn.Linear(256, 512), nn.ReLU())


def vision(name: str) -> Callable[[], Any]:
    def made() -> Any:
        import torchvision

        return getattr(torchvision.models, name)()

    return made


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "encoder layer, 4 x 128": (encoder, (4, 128, 768), "float32"),
    "encoder layer, 8 x 512, half": (encoder, (8, 512, 768), "float16"),
    "embedding, 4 x 100": (embedding, (4, 100), "int64"),
    "ResNet-18": (vision("resnet18"), (1, 3, 224, 224), "float32"),
    "ResNet-18, 8 images, half": (vision("resnet18"), (8, 3, 224, 224), "float16"),
    "MobileNet-V2": (vision("mobilenet_v2"), (1, 3, 224, 224), "float32"),
}
"""What makes a model, and the shape and dtype of its input; ids for int64."""


def row(name: str, on: Machine) -> Row:
    import torch

    torch.manual_seed(0)
    make, shape, dtype = MODELS[name]
    module = make().eval()
    x = torch.randint(0, 5000, shape) if dtype == "int64" else torch.randn(shape).to(getattr(torch, dtype))
    module = module.half() if dtype == "float16" else module
    started = time.perf_counter()
    compiled = rg.compile(module, (x,), on.device, profile=False)
    found: Row = {"compile_s": round(time.perf_counter() - started, 2), "predicted_ms": 1e3 * compiled.predicted_time}
    with torch.no_grad():
        module, there = module.to(on.where), x.to(on.where)
        want = module(there)
        found |= {"error": apart(compiled(there), want), "error of host arrays": apart(compiled(x), want)}
        ours, theirs = (lambda: compiled(there)), (lambda: module(there))
        found |= {"ms": timed(ours), "torch_ms": timed(theirs)}
        host = [layer.operators for layer in compiled.layers if layer.kernel is None]
        if not host and dtype != "int64":  # ids are checked on the host
            found |= {"graph_ms": timed(graph(ours)), "torch_graph_ms": timed(graph(theirs))}
    worst = max(found["error"], found["error of host arrays"])
    state = "timed" if worst <= MOST_ERROR else f"wrong: {worst:.2g} apart"
    return {**found, "ratio": found["torch_ms"] / found["ms"], "host steps": host, "state": state}


def apart(got: Any, want: Any) -> float:
    wanted = want.double().cpu()
    return float((got.double().cpu() - wanted).abs().max() / wanted.abs().max())


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one of several calls in a row: the median of rounds."""
    import torch

    for _ in range(WARM_UP):
        call()
    found = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - started) / CALLS)
    return round(median(found), 4)


def graph(call: Callable[[], object]) -> Callable[[], None]:
    """What replays the call, captured after calls on the stream of the capture."""
    import torch

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        call()
        call()
    torch.cuda.current_stream().wait_stream(beside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    replay: Callable[[], None] = captured.replay
    return replay


def summary(rows: list[Row]) -> Row:
    return {"models": len(rows), "timed": sum(one["state"] == "timed" for one in rows)}


def main(words: list[str] | None = None) -> int:
    given = machine.parsed(machine.parser(__doc__), words)
    if given.dry_run:
        raise RollergenError("models.py has no dry run; tests/cuda/test_models.py runs models on the stand-in")
    on = machine.machine(given)
    keys: list[Key] = [(SUITE, name) for name in MODELS if not given.only or name in given.only]
    facts = {**on.facts(), "precision": fix_precision()}
    rows = Rows(machine.path(given.results, NAME, on.device), facts, summary)
    code = rows.fill(
        keys, lambda key: row(key[1], on), machine.budget(given), again=given.again, retry=given.retry, alive=on.alive
    )
    return code or int(any(one["state"] != "timed" for one in rows.all()))


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
