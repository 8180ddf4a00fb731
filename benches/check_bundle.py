"""Saved kernels where nothing else is: ``python benches/check_bundle.py``.

Builds and measures kernels of every kind for the CPU, and the model's first choices for absent GPUs; saves each,
moves it into an empty directory, and runs its self-test in a fresh virtual environment that has only
pyopencl[pocl] (with what pip brings along for it), in Python and in C against that environment's OpenCL.
Then the sources for the CPU are broken once, which both must notice.  Exits with 1 if anything is amiss.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import keep
from rich.console import Console

import rollergen as rg

SECONDS = 300
"""Limit of one self-test, compiling included."""


def convolution() -> Any:
    image, residual = rg.tensor("image", (1, 64, 56, 56)), rg.tensor("residual", (1, 64, 56, 56))
    weight, bias = rg.tensor("weight", (64, 64, 3, 3), constant=True), rg.tensor("bias", (64,))
    return rg.ops.relu(rg.ops.add(rg.ops.bias_add(rg.ops.conv2d(image, weight, padding=1), bias), residual), name="Y")


def chain() -> Any:
    a, b, c = rg.tensor("A", (127, 256)), rg.tensor("B", (256, 511)), rg.tensor("C", (511, 65))
    return rg.ops.matmul(rg.ops.matmul(a, b), c, name="Y")


def several() -> list[Any]:
    x = rg.tensor("X", (333, 1000))
    return [rg.ops.sum(x, 1, name="S"), rg.ops.softmax(x, name="P")]


CASES: dict[str, Callable[[], Any]] = {
    "matmul 1024": lambda: rg.ops.matmul(rg.tensor("A", (1024, 1024)), rg.tensor("B", (1024, 1024)), name="C"),
    "matmul, constant weights": lambda: rg.ops.matmul(
        rg.tensor("A", (64, 1000)), rg.tensor("B", (1000, 4097), constant=True), name="C"
    ),
    "two matmuls": chain,
    "conv + bias + residual, relu": convolution,
    "softmax": lambda: rg.ops.softmax(rg.tensor("X", (511, 1023)), name="Y"),
    "sum and softmax": several,
    "int8 matmul": lambda: rg.ops.matmul(
        rg.tensor("A", (127, 511), "int8"), rg.tensor("B", (511, 255), "int8"), name="C"
    ),
    "bfloat16 matmul": lambda: rg.ops.matmul(
        rg.tensor("A", (127, 511), "bfloat16"), rg.tensor("B", (511, 255), "bfloat16"), name="C"
    ),
    "transpose": lambda: rg.ops.t(rg.tensor("X", (1023, 511)), name="Y"),
}
DEVICES = ("cpu", "v100", "mi50")

BREAKS = (
    (re.compile(r"(acc(?:\[[^\]]*\])? = acc(?:\[[^\]]*\])? )\+ "), r"\1- "),
    (re.compile(r"(\n *)(\*\([^;=]*\) = )([^;]*;)"), r"\1if (0) \2\3"),
    (re.compile(r"(\n *)([A-Z]\w*(?:_at)?\[[^;=]*\] = )([^;]*;)"), r"\1if (0) \2\3"),
)
"""Changes of which the first that applies breaks a source: sums become differences, stores are left out."""


def environment(folder: Path) -> Path:
    """Python of a fresh virtual environment with pyopencl[pocl] alone."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pyopencl[pocl]"], check=True)
    return python


def packages(python: Path) -> list[str]:
    found = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout.split()
    if any("rollergen" in name for name in found):
        raise SystemExit(f"the environment is not empty: {found}")
    return found


def saved(make: Callable[[], Any], device: str, folder: Path) -> Path:
    """A kernel saved, and moved to an empty directory."""
    kernel = rg.build(make(), device, top_k=1, cache=False)
    kernel.save(folder / "made")
    empty = Path(tempfile.mkdtemp(dir=folder))
    return Path(shutil.move(folder / "made", empty / "kernel"))


def run(command: list[str | Path], directory: Path) -> tuple[bool, str]:
    """Whether a self-test passed, and what it said."""
    bare = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, timeout=SECONDS, check=False, env=bare
    )
    return done.returncode == 0 and done.stdout.endswith("PASSED\n"), done.stdout + done.stderr


def in_python(directory: Path, python: Path, any_device: bool) -> tuple[bool, str]:
    return run([python, "-I", directory / "launcher.py", *(["--any-device"] if any_device else [])], directory)


def in_c(directory: Path, python: Path, any_device: bool) -> tuple[bool, str]:
    options = "--any-device" if any_device else ""
    return run(["make", "-s", "check-pip", f"PYTHON={python}", "CFLAGS=-O2 -Werror", f"ARGUMENTS={options}"], directory)


def broken(directory: Path) -> bool:
    """Breaks the source; False where none of `BREAKS` applies."""
    path = directory / "kernel.cl"
    text = path.read_text()
    for pattern, replacement in BREAKS:
        changed, count = pattern.subn(replacement, text)
        if count:
            path.write_text(changed)
            return True
    return False


def case(make: Callable[[], Any], device: str, folder: Path, python: Path) -> dict[str, Any]:
    directory, absent = saved(make, device, folder), device != "cpu"
    passed, said = in_python(directory, python, absent)
    compiled, said_in_c = in_c(directory, python, absent)
    facts = {"python": passed, "c": compiled}
    if not absent:
        facts["broken source noticed"] = broken(directory) and all(
            "FAILED\n" in self_test(directory, python, absent)[1] for self_test in (in_python, in_c)
        )
    if not all(facts.values()):
        Console(stderr=True).print(f"{device}: {said}\n{said_in_c}", markup=False)
    return facts


def main() -> None:
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = environment(folder / "venv")
        installed = packages(python)
        for name, make in CASES.items():
            for device in DEVICES:
                facts = case(make, device, folder, python)
                results[f"{name} on {device}"] = facts
                said = ", ".join(f"{what}: {'yes' if fact else 'NO'}" for what, fact in facts.items())
                print(f"{name} on {device}: {said}", flush=True)
    good = sum(all(facts.values()) for facts in results.values())
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    path = keep("check_bundle", {"environment": installed, "compiler": compiler, "self_tests": results})
    print(f"{good} of {len(results)} pass in Python and C, and notice broken sources; kept in {path}")
    sys.exit(good < len(results))


if __name__ == "__main__":
    main()
