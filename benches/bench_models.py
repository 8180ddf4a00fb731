"""Whole models beside torch and ONNX Runtime:
``bench_models.py [--device v100] [--batch N] [--all-cores] [--direct] [NAME ...]``.

Networks of `benches.networks`, `COMPARED` unless named, float32, on one core, a batch of one unless asked otherwise.
Every layer is checked against float64 and the result against torch's in float64, then calls of all libraries are timed
in turns: medians, and medians of the ratios of one turn.  With ``--device`` nothing runs: how long it takes to
construct all kernels, imports and store apart, and their prediction.  ``chrt -r 5`` before the command keeps other
programs away.
"""

from __future__ import annotations

# ruff: noqa: E402
import argparse
import io
import sys
import time
import warnings
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.cores import bind

ALL_CORES = "--all-cores" in sys.argv
CORES = bind(every=ALL_CORES)

from benches.names import with_networks

COMPARED = ("BERT-base", "ViT-B/16", "GPT-2", "LSTM", "MobileNet-V2", "ResNet-50", "ResNet-18", "Inception-V3")
"""Networks that are compared where none is named: each takes one array."""


def asked() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--device", help="one that need not be present: construct and predict alone")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=1, help="pictures, texts or sequences a call, of those that run")
    parser.add_argument("--all-cores", action="store_true", help="every core and as many threads, instead of one")
    parser.add_argument("--direct", action="store_true", help="convolutions without Winograd's filtering")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--no-profile", action="store_true", help="the model's first choices")
    return with_networks(parser, ", ".join(COMPARED))


if __name__ == "__main__":
    asked()  # help and errors come before torch, which takes seconds

import numpy as np
import torch

import rollergen as rg
from benches.networks import network
from benches.results import keep
from benches.timing import settle
from rollergen.importers.torch_models import imported

Row = dict[str, Any]
DEVICES_NAME = "models_on"


def measured(name: str, arguments: argparse.Namespace) -> Row:
    """One network beside the libraries."""
    module, (one_sample,) = network(name)
    x = _repeated(one_sample, arguments.batch)
    with torch.no_grad():
        want = module.double()(x.double() if x.is_floating_point() else x)
        module.float()
        start = time.perf_counter()
        options = rg.BuildOptions(winograd=0) if arguments.direct else rg.BuildOptions()
        profile = False if arguments.no_profile else "auto"
        model = rg.compile(module, (x,), "cpu", profile=profile, options=options)
        row: Row = {"name": name, "compile_s": round(time.perf_counter() - start, 2)}
        model(x)
        row["usable_s"] = round(time.perf_counter() - start, 2)  # its first call done, weights packed
        compared = sum(one.compared for one in model.check(x))
        error = float((model(x) - want).abs().max() / want.abs().max())
        calls = {"rollergen": lambda: model(x), "torch": lambda: module(x), **_onnxruntime(module, x)}
        if not arguments.no_inductor:
            calls["inductor"] = _inductor(module, x)
        times = _in_turns(calls, arguments.rounds)
    arena = model._execution.arena
    timing = model.benchmark(x)
    row |= {
        "steps": len(model.steps), "kernels": len(model.kernels),
        "host steps": sum(one.kernel is None for one in model.layers), "profiled": not arguments.no_profile,
        "compared elements": compared, "relative error": error,
        **{f"{one}_ms": round(median(found) * 1e3, 3) for one, found in times.items()},
        **{f"over {one}": round(median(b / a for a, b in zip(times["rollergen"], times[one], strict=True)), 3)
           for one in times if one != "rollergen"},
        "predicted_ms": round(model.predicted_time * 1e3, 3),
        "sum of steps_ms": round(sum(timing.steps_s) * 1e3, 3),
        "beside the steps": round(timing.beside_s / timing.wall_s, 4),
        "measured over predicted": round(sum(timing.steps_s) / model.predicted_time, 3),
        "arena over peak": round(arena.size_bytes / arena.peak_bytes, 4),
    }  # fmt: skip
    return row | {"over the best": min(row[f"over {one}"] for one in times if one != "rollergen")}


def _repeated(x: torch.Tensor, batch: int) -> torch.Tensor:
    """So many samples, each turned along its last axis, along ``x``'s axis of one element."""
    return torch.cat([x.roll(shift, -1) for shift in range(batch)], x.shape.index(1))


def _onnxruntime(module: Any, x: torch.Tensor) -> dict[str, Any]:
    try:
        import onnxruntime
    except ImportError:
        return {}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), file, dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = len(CORES), 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x.numpy()}
    return {"onnxruntime": lambda: session.run(None, given)}


def _inductor(module: Any, x: torch.Tensor) -> Any:
    import torch._inductor.config

    torch._inductor.config.freezing = True
    made = torch.compile(module)
    made(x)
    return lambda: made(x)


def _in_turns(calls: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each round; with several threads each begins where nobody else's spin."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            if len(CORES) > 1:
                settle()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times


def constructed(name: str, device: str) -> Row:
    """One network for a device that is not there: seconds to import what torch exported, to construct and to find in
    the store (the least of three times each), and the prediction."""
    module, inputs = network(name)
    program = torch.export.export(module, inputs)
    start = time.perf_counter()
    known = imported(program, name)
    import_s = time.perf_counter() - start
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for cache in (False, False, False, True, True, True):
        start = time.perf_counter()
        model = rg.compile(known, None, device, profile=False, cache=cache)
        seconds[cache].append(time.perf_counter() - start)
    return {
        "name": name, "device": device, "steps": len(model.steps), "kernels": len(model.kernels),
        "import_s": round(import_s, 3), "construct_s": round(min(seconds[False]), 3),
        "from_store_s": round(min(seconds[True]), 3), "predicted_ms": round(model.predicted_time * 1e3, 4),
    }  # fmt: skip


def kept_name(arguments: argparse.Namespace) -> str:
    batch = f"_batch_{arguments.batch}" if arguments.batch > 1 else ""
    return "models" + "_direct" * arguments.direct + batch + "_all_cores" * ALL_CORES


def main() -> int:
    arguments = asked()
    rows = []
    for name in arguments.names or COMPARED:
        if arguments.device:
            rows.append(constructed(name, arguments.device))
        else:
            rows.append(measured(name, arguments))
        print(rows[-1], flush=True)
        if arguments.device:
            keep(f"{DEVICES_NAME}_{arguments.device}", {"rows": rows})
        else:
            mean = geometric_mean(row["over the best"] for row in rows)
            keep(kept_name(arguments), {"rows": rows, "mean over the best": round(mean, 3)})
    return 0


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    raise SystemExit(main())
