"""Networks as torch has them and as ONNX files: ``bench_networks.py [--run | --device v100] [--from WAY] [NAME ...]``.

For a device that is not there each of `benches.networks` is compiled at its published size: seconds to import and to
construct, steps, kernels, the steps that the model's own library runs and why, the prediction.  ``--run`` compiles them
unprofiled for the CPU at small sizes, and holds what they return to torch's in float64.  Files are exported by torch:
``onnx`` by the exporter of TorchScript, ``dynamo`` by the newer one, which needs onnxscript.
"""

from __future__ import annotations

# ruff: noqa: E402
import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.names import with_networks

WAYS = ("torch", "onnx", "dynamo")


def asked() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="v100", help="one that need not be present (v100 unless given)")
    parser.add_argument("--run", action="store_true", help="on the CPU, at small sizes")
    parser.add_argument("--from", dest="ways", action="append", choices=WAYS, help="again for several; torch and onnx")
    return with_networks(parser)


if __name__ == "__main__":
    asked()  # help and errors come before torch, which takes seconds

import numpy as np
import torch

import rollergen as rg
from benches.networks import NETWORKS, network
from benches.results import begun, keep, result_path
from rollergen.importers import onnx_models, torch_models
from rollergen.importers.graph import Network

OPSET = 17
"""Of the files that TorchScript's exporter writes: the newest that it knows whole."""
BOUND = 2e-5
"""Of what a whole network returns, the error over the largest element: some hundred roundings of float32 in a row;
each layer has the gate's own bound."""

Row = dict[str, Any]


def imported(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], way: str, title: str) -> tuple[Network, float]:
    """(the network, seconds of its import, those of torch's exporters apart)."""
    if way == "torch":
        program = torch_models.exported(module, inputs)
        start = time.perf_counter()
        return torch_models.imported(program, title), time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        how: dict[str, Any] = {"dynamo": True, "verbose": False} if way == "dynamo" else {"opset_version": OPSET}
        with torch.no_grad(), _every_operator_traced():
            torch.onnx.export(module, inputs, path, **{"dynamo": False, **how})
        start = time.perf_counter()
        model, _ = onnx_models.loaded(path)
        return onnx_models.imported(model, None, title), time.perf_counter() - start


@contextmanager
def _every_operator_traced() -> Iterator[None]:
    """Of an encoder layer torch otherwise makes one operator, which no exporter has."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)


def compiled(name: str, way: str, device: str, runs: bool) -> Row:
    """The row of one network that came in one way."""
    module, inputs = network(name, small=runs)
    found, import_s = imported(module, inputs, way, name)
    start = time.perf_counter()
    model = rg.compile(found, None, device, profile=False)
    row: Row = {
        "name": name, "from": way, "device": device, "steps": len(model.steps), "kernels": len(model.kernels),
        "host steps": [f"{one.operators}: {one.reason}" for one in model.layers if one.kernel is None],
        "import_s": round(import_s, 2), "compile_s": round(time.perf_counter() - start, 2),
        "predicted_ms": round(model.predicted_time * 1e3, 4),
    }  # fmt: skip
    return row | ({"error": error(model, module, inputs)} if runs else {})


def error(model: rg.Model, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """The largest error of all results beside torch's in float64, over the largest element of its result."""
    made = _listed(model(*(one.numpy() for one in inputs)))
    exact = tuple(one.double() if one.is_floating_point() else one for one in inputs)
    with torch.no_grad():
        wanted = [one.numpy() for one in _listed(module.double()(*exact))]
    return float(max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(made, wanted, strict=True)))


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def refusal(name: str, way: str, device: str, problem: Exception) -> Row:
    return {"name": name, "from": way, "device": device, "problem": f"{type(problem).__name__}: {problem}"[:400]}


def main() -> int:
    arguments = asked()
    device = "cpu" if arguments.run else arguments.device
    kept = f"networks_{device}"
    rows = {(row["name"], row["from"]): row for row in begun(result_path(kept)).get("rows", [])}
    missed = 0
    for name in arguments.names or list(NETWORKS):
        for way in arguments.ways or WAYS[:2]:
            try:
                row = compiled(name, way, device, arguments.run)
            except Exception as problem:  # of torch's exporters too: the table says so
                row = refusal(name, way, device, problem)
            missed += "problem" in row or row.get("error", 0) > BOUND
            rows[name, way] = row
            print(row, flush=True)
            keep(kept, {"bound": BOUND, "rows": list(rows.values())})
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
