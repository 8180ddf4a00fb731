"""Counts that do not depend on how busy a machine is: what building costs, and what it yields.

For fixed operators and devices, each from a fresh state: calls of this package's functions and of SymPy's while the
operator is made, constructed and emitted (first its first time, then again with what was found for operators
forgotten), how many candidates there are, and the bytes that the model's first choice moves.
Baselines are one file of JSON: rewritten by ``python benches/bench_counts.py --rebase``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "results" / "baseline" / "counts.json"
PACKAGE = ("rollergen", "hal")
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}
"""Frames of their own until Python 3.11 only."""

Counts = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Bound:
    """``margin``: how much more than the baseline is allowed, as a share; negative: how much less."""

    unit: str
    margin: float


BOUNDS: Mapping[str, Bound] = {
    "candidates": Bound("programs", -0.0),
    "first calls": Bound("calls of the package's functions, a structure's first build", 0.25),
    "further calls": Bound("calls of the package's functions, a further build", 0.25),
    "sympy calls": Bound("calls of SymPy's functions, both builds", 0.25),
    "bytes": Bound("bytes that leave the layers, the first choice", 0.25),
    "predicted ns": Bound("nanoseconds predicted, the first choice", 0.25),
}
"""Wide margins, because construction is still being worked on; nothing here is noise, so they may be narrowed."""


def cases() -> dict[str, Callable[[], Any]]:
    import rollergen as rg

    t = rg.tensor
    return {
        "matmul": lambda: rg.ops.matmul(t("A", (512, 768)), t("B", (768, 1024))),
        "conv2d": lambda: rg.ops.conv2d(t("X", (8, 64, 28, 28)), t("W", (128, 64, 3, 3)), padding=1),
        "sum": lambda: rg.ops.sum(t("X", (4096, 1000)), 1),
        "softmax": lambda: rg.ops.softmax(t("X", (512, 1024))),
        "relu": lambda: rg.ops.relu(t("X", (1 << 20,))),
    }


def devices() -> Iterator[Any]:
    from rollergen.hal.load import load_device

    for name in ("v100", "mi50", str(HERE / "devices" / "cpu_avx512_2mb.json")):
        yield load_device(name)


class Calls:
    """Counts Python calls by package while it is entered."""

    def __init__(self) -> None:
        self.own = self.sympy = 0
        root = str(HERE.parent)
        self._own = tuple(os.path.join(root, name) + os.sep for name in PACKAGE)

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        if file.startswith(self._own):
            self.own += frame.f_code.co_name not in COMPREHENSIONS
        elif f"{os.sep}sympy{os.sep}" in file:
            self.sympy += 1

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)


def count() -> Counts:
    """All counts, by case and device.  For a process that has built nothing yet: see `counted_anew`."""
    found: Counts = {}
    for device in devices():
        for name, make in cases().items():
            found[f"{name}, {device.name}"] = _of(make, device)
    return found


def _of(make: Callable[[], Any], device: Any) -> dict[str, float]:
    from benches.seeds.predicted import forget
    from rollergen.program.model import predict

    with Calls() as first:
        programs = _built(make, device)
    forget()
    with Calls() as further:
        _built(make, device)
    said = predict(programs[0], device)
    moved = sum(float(sent) for stage in said.stages for _, sent in stage.traffic_bytes)
    return {
        "candidates": len(programs), "first calls": first.own, "further calls": further.own,
        "sympy calls": first.sympy + further.sympy, "bytes": moved, "predicted ns": round(1e9 * said.seconds),
    }  # fmt: skip


def _built(make: Callable[[], Any], device: Any) -> list[Any]:
    from rollergen.construct import construct
    from rollergen.emit import emit_all
    from rollergen.expr.canonical import canonicalize

    programs = [one.program for one in construct(canonicalize(make()), device, top_k=10)]
    emit_all(programs, device)
    return programs


def counted_anew() -> dict[str, Any]:
    """The counts of a fresh process whose hashes are not random, and the versions that they hold for."""
    code = "import json; from benches.counts import count; print(json.dumps(count()))"
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"counting failed: {done.stderr.strip()[-2000:]}")
    return {"versions": versions(), "counts": json.loads(done.stdout.splitlines()[-1])}


def versions() -> dict[str, str]:
    return {"python": ".".join(platform.python_version_tuple()[:2]), "sympy": version("sympy")}


def regressions(base: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is worse than the baseline by more than its margin; SymPy's calls are compared for the same SymPy only."""
    worse = []
    for case, counts in base["counts"].items():
        if case not in now["counts"]:
            worse.append(f"{case}: it is not counted any more")
            continue
        for name, bound in BOUNDS.items():
            if name == "sympy calls" and base["versions"]["sympy"] != now["versions"]["sympy"]:
                continue
            old, new = counts[name], now["counts"][case][name]
            if name == "candidates" and new < old:
                worse.append(f"{case}: {new:g} candidates, {old:g} before")
            elif name != "candidates" and new > old * (1 + bound.margin):
                share = new / old - 1 if old else float("inf")
                worse.append(f"{case}: {name}: {new:g}, {old:g} before (+{share:.0%}; at most +{bound.margin:.0%})")
    return worse
