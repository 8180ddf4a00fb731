"""Instructions, which a busy machine does not move either: of the construction path, and of the kernels that it makes.

The construction path runs under valgrind's callgrind, which collects inside one C function only, that of
``sys.call_tracing``, which calls what it is given and is called by nothing else: builds with everything imported and
nothing kept, without the process around them, which takes forty times as many and moves by a tenth of theirs.
Callgrind instruments nothing before `_BUILDS` asks for it, when all is imported: imports would take longer than builds.
Kernels are compiled by NVIDIA's compiler and disassembled.  Each is counted where its tool is installed, and compared
with a baseline of the same tools only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benches.counts import HERE, cases

BASELINE = HERE / "results" / "baseline" / "instructions.json"
CONSTRUCTED = ("matmul", "v100")
COMPILED = ("a100", ("matmul", "conv2d", "sum", "softmax", "relu"))
COLLECTED = "_PyEval_CallTracing"
BUILDS = 3
MARGINS = {"construction": 0.10, "machine code": 0.10}
"""How much more than the baseline is allowed: two counts of construction lie within a hundredth."""

_BUILDS = """
import os, subprocess, sys
from benches.counts import cases
from benches.seeds.predicted import forget
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
device, make = load_device(sys.argv[2]), cases()[sys.argv[1]]
def build():
    forget()
    construct(canonicalize(make()), device, top_k=10)
build()
# Valgrind looks for what it is told only while the process runs, so that waiting for the answer would be for ever.
switched_on = subprocess.Popen(["callgrind_control", "-i", "on", str(os.getpid())])
while switched_on.poll() is None:
    pass
if switched_on.returncode:
    sys.exit("callgrind_control failed")
for _ in range(int(sys.argv[3])):
    sys.call_tracing(build, ())
"""

Found = dict[str, dict[str, Any]]


def construction_tools() -> str | None:
    """What a count of the construction path holds for: processor, Python, valgrind; None where there is no valgrind."""
    if shutil.which("valgrind") is None:
        return None
    said = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{platform.machine()}, Python {platform.python_version()}, {said}"


def construction(case: str, device: str) -> int:
    """Instructions of one construction of ten candidates, mean of `BUILDS`.  Raises RuntimeError where valgrind fails,
    or the interpreter has no function of that name."""
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={COLLECTED}"]
    words += ["--instr-atstart=no"]
    words += [sys.executable, "-c", _BUILDS, case, device, str(BUILDS)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(words, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    counted = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode or counted is None:
        raise RuntimeError(f"callgrind of {case} on {device} failed: {done.stderr.strip()[-2000:]}")
    if not int(counted[1]):
        raise RuntimeError(f"callgrind of {case} on {device}: {sys.executable} never entered {COLLECTED}")
    return int(counted[1]) // BUILDS


def machine_code_tools(device: str) -> str | None:
    """What a count of machine code holds for: NVIDIA's compiler; None where it or a disassembler is missing."""
    from rollergen.hal.compilers.nvrtc import is_installed, version
    from rollergen.hal.compilers.sass import disassemblers

    return f"NVRTC {version()}" if is_installed() and disassemblers() else None


def machine_code(case: str, device_name: str) -> int | None:
    """Instructions of the first choice's kernels; None where no disassembler here reads the architecture."""
    from rollergen.construct import construct
    from rollergen.emit import emit
    from rollergen.expr.canonical import canonicalize
    from rollergen.hal.compilers.nvrtc import compile_cuda
    from rollergen.hal.compilers.sass import histogram
    from rollergen.hal.load import load_device
    from rollergen.measure.compile_report import compiled_target

    device = load_device(device_name)
    program = construct(canonicalize(cases()[case]()), device, top_k=1)[0].program
    found = histogram(compile_cuda(emit(program, device).text, compiled_target(device)[0].arch).code)
    return None if found is None else sum(sum(kernel.values()) for kernel in found.values())


def count() -> Found:
    """What can be counted here: {kind: {"tools": text, "counts": {case: instructions}}}."""
    found: Found = {}
    if (tools := construction_tools()) is not None:
        case, device = CONSTRUCTED
        found["construction"] = {"tools": tools, "counts": {f"{case}, {device}": construction(case, device)}}
    device, listed = COMPILED
    if (tools := machine_code_tools(device)) is not None:
        counted = {f"{case}, {device}": machine_code(case, device) for case in listed}
        found["machine code"] = {"tools": tools, "counts": {k: n for k, n in counted.items() if n is not None}}
    return found


def comparable(base: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds that both have, counted with the same tools."""
    return tuple(kind for kind in MARGINS if kind in base and kind in now and base[kind]["tools"] == now[kind]["tools"])


def regressions(base: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What takes more instructions than the baseline by more than its margin."""
    worse = []
    for kind in comparable(base, now):
        for case, old in base[kind]["counts"].items():
            new = now[kind]["counts"].get(case)
            if new is None:
                worse.append(f"{kind} of {case}: it is not counted any more")
            elif new > old * (1 + MARGINS[kind]):
                worse.append(
                    f"{kind} of {case}: {new:,} instructions, {old:,} before (+{new / old - 1:.0%}; "
                    f"at most +{MARGINS[kind]:.0%})"
                )
    return worse


def baseline(path: Path = BASELINE) -> Found:
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found
