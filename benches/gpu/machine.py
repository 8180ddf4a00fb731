"""The GPU that is present, for the benches of this folder: its spec, runtime, torch's view of it, its state."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import rollergen as rg
from benches.gpu.peers import SUITES
from benches.gpu.rows import RESULTS, Budget, Row
from rollergen.hal.cuda_runtime import CudaRuntime
from rollergen.hal.runtime import cuda_runtime_for
from rollergen.hal.spec import Device
from rollergen.suites import Entry, suite
from rollergen.targets import resolve

BUDGET_S = 540.0
Key = tuple[str, str]


@dataclass(frozen=True)
class Machine:
    """``device``: the spec whose programs run; ``where``: torch's name of the memory that they run on."""

    device: Device
    where: str = "cuda"

    @cached_property
    def runtime(self) -> CudaRuntime:
        """Raises RuntimeUnavailableError where there is no such GPU, no driver, or no CuPy."""
        return cuda_runtime_for(self.device)  # type: ignore[return-value]

    def facts(self) -> Row:
        """What the figures depend on beside the commit."""
        import torch

        return {
            "gpu": str(self.runtime.gpu),
            "spec": self.device.name,
            "driver": self.runtime.description,
            "compiler": self.runtime.compiler,
            "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
            "state_before": gpu_state(),
        }

    def inputs(self, kernel: rg.Kernel, seed: int = 1) -> tuple[Any, ...]:
        """Random values from -1 to 1, of the kernel's shapes and dtypes, on the GPU."""
        import torch

        source = torch.Generator(device=self.where).manual_seed(seed)
        made = []
        for one in kernel.signature.inputs:
            values = torch.rand(one.shape, generator=source, device=self.where, dtype=torch.float32) * 2 - 1
            made.append(values.to(getattr(torch, str(one.dtype))))
        return tuple(made)

    def empty(self, kernel: rg.Kernel) -> Any:
        """An array of the kernel's output."""
        import torch

        (out,) = kernel.signature.outputs
        return torch.empty(tuple(out.shape), dtype=getattr(torch, str(out.dtype)), device=self.where)

    @contextmanager
    def only_for_a_while(self) -> Iterator[None]:
        """Gives back, at the end, the memory that torch and CuPy keep for later."""
        import torch

        try:
            yield
        finally:
            if self.where == "cuda":
                torch.cuda.empty_cache()
                self.runtime.cupy.get_default_memory_pool().free_all_blocks()


QUERIED = "clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"


def gpu_state() -> Row | None:
    """Clocks (MHz), temperature (C), power (W) and what holds the clocks down; None where nvidia-smi is not there."""
    words = ["nvidia-smi", f"--query-gpu={QUERIED}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(QUERIED.split(","), (one.strip() for one in done.stdout.splitlines()[0].split(",")), strict=True))


def parser(text: str) -> argparse.ArgumentParser:
    """The options that all scripts of the folder have."""
    words = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda", help="a spec's name or file; default: that of the GPU present")
    words.add_argument("--suite", nargs="+", default=["roller"], choices=SUITES)
    words.add_argument("--only", nargs="+", help="identifiers of operators")
    words.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds after which no operator is begun")
    words.add_argument("--results", type=Path, default=RESULTS, help="the folder of the result files")
    words.add_argument("--again", action="store_true", help="also what is there")
    return words


def spec(name: str) -> Device:
    return resolve(name)


def entries(given: argparse.Namespace) -> dict[Key, Entry]:
    """Those asked for, by suite and identifier."""
    found = [entry for name in given.suite for entry in suite(name).entries]
    return {(e.suite, e.id): e for e in found if not given.only or e.id in given.only}


def key(row: Row) -> Key:
    return row["suite"], row["id"]


def path(folder: Path, what: str, device: Device) -> Path:
    """``gpu_<what>_<spec>.json``: of a device, and not of a day, so that a run goes on the next day."""
    return folder / f"gpu_{what}_{re.sub(r'[^a-z0-9]+', '-', device.name.lower())}.json"


def budget(given: argparse.Namespace) -> Budget:
    return Budget(given.budget_s)
