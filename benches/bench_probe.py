"""Does the probe repeat, and do kernels made from its spec cost more?  ``python benches/bench_probe.py [--part probe]``

``--part probe``: the CPU present is probed twice, in processes of their own: each figure, how far the two are apart,
what `devices check` says.  ``--part choices``: ten operators, the first choices from the first probed spec, from the
file devices/cpu.json with what the operating system tells of this machine (caches, cores, vectors) and no measured
figure, and from `cpu` as it is used, built and checked, then timed in turns.  Kept in results/probe_<cpu>_<day>.json
with the first spec, part by part; `--only` names operators.  ``--device P:D``: another OpenCL device, by copies to
memory of its own, is probed twice; kept in results/probe_<platform>_<cpu>_<day>.json.  For figures to trust, on a core
of its own:

    taskset -c 1 chrt -f 20 python benches/bench_probe.py --part probe
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

import rollergen as rg
from benches.results import begun, keep, result_path
from benches.timing import alternate, thinned
from rollergen.hal.lints import WARNING, lint
from rollergen.hal.load import load_device, save_device
from rollergen.hal.probes.host import completed
from rollergen.hal.probes.host_facts import cache_levels

NAME = "probe"
PROBED, WRITTEN, USED = "probed", "written", "cpu"
Row = dict[str, Any]
T = rg.tensor


def operators() -> dict[str, Callable[[], Any]]:
    """Of every class of the suites, cut until a call takes less than 50 ms on one core."""
    conv = lambda image, weight, **how: rg.ops.conv2d(T("X", image), T("W", weight), name="Y", **how)
    product = lambda m, n, k: rg.ops.matmul(T("A", (m, k)), T("B", (k, n)), name="C")
    return {
        "matmul 1024x1024x1024": lambda: product(1024, 1024, 1024),
        "matmul 997x997x997": lambda: product(997, 997, 997),
        "matmul 128x4096x1024": lambda: product(128, 4096, 1024),
        "conv2d 3x3 64x56x56 to 64": lambda: conv((1, 64, 56, 56), (64, 64, 3, 3), padding=1),
        "conv2d 1x1 256x56x56 to 64": lambda: conv((1, 256, 56, 56), (64, 256, 1, 1)),
        "depthwise 3x3 144x56x56": lambda: conv((1, 144, 56, 56), (144, 1, 3, 3), padding=1, groups=144),
        "average pool 3x3/2 64x112x112": lambda: rg.ops.avg_pool2d(T("X", (1, 64, 112, 112)), 3, 2, 1, name="Y"),
        "sum of 4096 rows of 1024": lambda: rg.ops.sum(T("X", (4096, 1024)), axis=-1, name="Y"),
        "softmax 2048x1000": lambda: rg.ops.softmax(T("X", (2048, 1000)), name="Y"),
        "relu 4096x1024": lambda: rg.ops.relu(T("X", (4096, 1024)), name="Y"),
    }


def probed(device: str | None) -> tuple[list[Row], dict[str, Any]]:
    """What one probe, in a process of its own, measured, and its spec."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probed.json"
        which = ["--cpu"] if device is None else ["--opencl", device]
        words = ["devices", "probe", *which, "-o", str(path), "--json"]
        told = subprocess.run([sys.executable, "-m", "rollergen", *words], capture_output=True, text=True)
        if told.returncode:
            raise SystemExit(f"rollergen {' '.join(words)}:\n{told.stderr or told.stdout}")
        found = json.loads(told.stdout)
        return found["measured"], json.loads(path.read_text())


def probe_part(device: str | None) -> Row:
    (one, spec), (two, _) = probed(device), probed(device)
    second = {row["path"]: row for row in two}
    both = [(row, second[row["path"]]) for row in one if row["path"] in second]
    rows = [
        {
            "figure": a["path"], "first": a["raw"], "second": b["raw"],
            "apart": max(a["raw"], b["raw"]) / min(a["raw"], b["raw"]) - 1, "spreads": [a["spread"], b["spread"]],
        }
        for a, b in both
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probed.json"
        path.write_text(json.dumps(spec))
        found = [str(one) for one in lint(load_device(path)) if one.severity == WARNING]
    only_once = sorted({row["path"] for row in one} ^ set(second))
    return {"figures": rows, "measured once only": only_once, "warnings of the check": found, "spec": spec}


def shown_part(device: str | None) -> Row:
    found = probe_part(device)
    for row in found["figures"]:
        print(f"{row['figure']:28} {row['first']:>9.4g} {row['second']:>9.4g} {row['apart']:.1%}")
    print(f"warnings: {found['warnings of the check'] or 'none'}")
    return found


def choices(only: list[str], spec: dict[str, Any], seconds: float, kept: dict[str, Row]) -> dict[str, Row]:
    with tempfile.TemporaryDirectory() as folder:
        probed, written = Path(folder) / "probed.json", Path(folder) / "written.json"
        probed.write_text(json.dumps(spec))
        save_device(replace(completed(load_device("cpu"), cache_levels(), None), name=WRITTEN, verified=()), written)
        for name, make in operators().items():
            if only and name not in only:
                continue
            kept[name] = choice(make, {PROBED: str(probed), WRITTEN: str(written), USED: USED}, seconds)
            told = ", ".join(f"{key} {value:.3f}" for key, value in kept[name]["ratio"].items())
            print(f"{name}: over {told}; the same source as {kept[name]['same'] or 'none'}", flush=True)
    return kept


def choice(make: Callable[[], Any], devices: dict[str, str], seconds: float) -> Row:
    """Median milliseconds of the first choices, and the median of the rounds' ratios of the probed spec's to others."""
    kernels = {
        name: rg.build(make(), device, top_k=1, profile=True, cache=False)  # checked against the definition
        for name, device in devices.items()
    }
    rng = np.random.default_rng(1)
    arrays = [rng.random(b.shape, dtype=np.float32) * 2 - 1 for b in kernels[USED].signature.inputs]
    out = np.empty(kernels[USED].signature.outputs[0].shape, np.float32)
    times = alternate({name: lambda k=kernel: k(*arrays, out=out) for name, kernel in kernels.items()}, seconds)
    others, bodies = (WRITTEN, USED), {name: _program_text(kernel) for name, kernel in kernels.items()}
    return {
        "ratio": {of: median(a / b for a, b in zip(times[PROBED], times[of], strict=True)) for of in others},
        "same": [of for of in others if bodies[of] == bodies[PROBED]],
        "rounds": len(times[PROBED]),
        "milliseconds": {name: median(values) * 1e3 for name, values in times.items()},
        "predicted_milliseconds": {name: kernel.predicted_time * 1e3 for name, kernel in kernels.items()},
        "samples": {name: thinned(values) for name, values in times.items()},
    }  # fmt: skip


def _program_text(kernel: Any) -> str:
    """The source without its comments, which tell the device's name and the predictions."""
    return "\n".join(line for line in kernel.source.splitlines() if not line.lstrip().startswith(("//", "*", "/*")))


def summary(rows: dict[str, Row]) -> dict[str, Row]:
    """The probed spec's choices over each of the others', in measured time."""
    return {of: _over(of, list(rows.values())) for of in (WRITTEN, USED)}


def _over(of: str, rows: list[Row]) -> Row:
    ratios = [row["ratio"][of] for row in rows]
    return {
        "operators": len(rows), "the same source": sum(of in row["same"] for row in rows),
        "geometric mean": exp(mean(map(log, ratios))), "largest": max(ratios), "least": min(ratios),
    }  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--part", choices=("probe", "choices"))
    words.add_argument("--only", nargs="+", default=[], choices=list(operators()), metavar="OPERATOR")
    words.add_argument("--seconds", type=float, default=1.0, help="Of timing for each operator.")
    words.add_argument("--device", metavar="P:D", help="The OpenCL device that --part probe probes.")
    given = words.parse_args()
    if given.device is not None:
        content = shown_part(given.device)
        platform = re.sub("[^a-z0-9]+", "-", given.device.partition(":")[0].lower())
        keep(f"{NAME}_{platform}", {"probe": content, "largest": max(row["apart"] for row in content["figures"])})
        return
    kept = begun(result_path(NAME))
    content = {key: kept[key] for key in ("probe", "choices", "summary") if key in kept}
    if given.part != "choices":
        content["probe"] = shown_part(given.device)
        keep(NAME, content)
    if given.part != "probe":
        if "probe" not in content:
            raise SystemExit(f"--part choices: {result_path(NAME)} has no probe of this code; --part probe makes one")
        content["choices"] = choices(given.only, content["probe"]["spec"], given.seconds, content.get("choices", {}))
        content["summary"] = summary(content["choices"])
        print(content["summary"])
        keep(NAME, content)


if __name__ == "__main__":
    main()
