"""The GPU that is present, for the benches of this folder: its spec, runtime, torch's view of it, its state; and the
options that all of them have."""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import rollergen as rg
from benches.gpu import dry
from benches.gpu.cases import DEFAULT, SUITES, Key, is_core, listed
from benches.gpu.rows import RESULTS, STOPPED, Budget, Row
from rollergen.bench.suites import Entry
from rollergen.errors import RollergenError
from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.runtime import cuda_runtime_for
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.spec import Device
from rollergen.runtime import interop
from rollergen.targets import resolve

BUDGET_S = 540.0
DRY_RESULTS = Path(tempfile.gettempdir()) / "rollergen_gpu_dry_run"
WHOLE = 8
"""Integers of the inputs lie below this, and not below its negative."""


@dataclass(frozen=True)
class Machine:
    """``device``: the spec whose programs run; ``dry``: on the stand-in, with torch on the CPU."""

    device: Device
    dry: bool = False

    @property
    def where(self) -> str:
        """torch's name of the memory that calls work in."""
        return "cpu" if self.dry else "cuda"

    @cached_property
    def runtime(self) -> CudaRuntime:
        """Raises RuntimeUnavailableError where there is no such GPU, no driver, or no CuPy."""
        return cuda_runtime_for(self.device)  # type: ignore[return-value]

    def facts(self) -> Row:
        """What the figures depend on beside the commit.  Raises RollergenError where torch sees no GPU."""
        import torch

        if not self.dry and not torch.cuda.is_available():
            raise RollergenError(f"torch {torch.__version__} sees no GPU; expected a build for CUDA: see pytorch.org")
        return {
            "gpu": str(self.runtime.gpu),
            "spec": self.device.name,
            "driver": self.runtime.description,
            "compiler": self.runtime.compiler,
            "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
            "state_before": self.state(),
        }

    def state(self) -> Row | None:
        """`gpu_state` of the GPU that is used, which need not be the machine's first."""
        return None if self.dry else gpu_state(self.runtime.cupy.cuda.Device(self.runtime.gpu.number).pci_bus_id)

    def alive(self) -> bool:
        """Whether the GPU still answers this process: after an illegal access none of its calls succeeds."""
        try:
            self.runtime.empty(1).fill(0)
            self.runtime.finish()
        except Exception:  # of the driver, or of CuPy, whatever it is: there is nothing to go on with
            return False
        return True

    def inputs(self, kernel: rg.Kernel, seed: int = 1) -> tuple[Any, ...]:
        """Random values from -1 to 1, integers from -`WHOLE` to `WHOLE` - 1, of the kernel's shapes and dtypes."""
        import torch

        source = torch.Generator(device=self.where).manual_seed(seed)
        made = []
        for one in kernel.signature.inputs:
            dtype = getattr(torch, str(one.dtype))
            if dtype.is_floating_point:
                values = torch.rand(one.shape, generator=source, device=self.where, dtype=torch.float32) * 2 - 1
                made.append(values.to(dtype))
            else:
                made.append(torch.randint(-WHOLE, WHOLE, one.shape, generator=source, device=self.where, dtype=dtype))
        return tuple(made)

    def empty(self, kernel: rg.Kernel) -> Any:
        """An array of the kernel's output."""
        import torch

        (out,) = kernel.signature.outputs
        return torch.empty(tuple(out.shape), dtype=getattr(torch, str(out.dtype)), device=self.where)

    def arrays(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """What a kernel is called with: the tensors; in a dry run copies of them in the stand-in's memory."""
        if not self.dry:
            return tuple(tensors)
        return tuple(self.runtime.wrap(interop.view(one, "a tensor", self.device.name)) for one in tensors)

    def tensor(self, array: Any) -> Any:
        """A result as torch's tensor."""
        import torch

        return interop.alike((array.get(),), (torch.empty(0),))[0] if self.dry else array

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


def gpu_state(bus: str) -> Row | None:
    """Clocks (MHz), temperature (C), power (W) and what holds the clocks down, of the GPU on this bus; None where
    nvidia-smi is not there."""
    words = ["nvidia-smi", f"--id={bus}", f"--query-gpu={QUERIED}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(QUERIED.split(","), (one.strip() for one in done.stdout.splitlines()[0].split(",")), strict=True))


def parser(text: str | None) -> argparse.ArgumentParser:
    """The options that all scripts of the folder have."""
    words = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda", help="a spec's name or file; default: that of the GPU present")
    words.add_argument("--suite", nargs="+", default=list(DEFAULT), choices=SUITES)
    words.add_argument("--core", action="store_true", help="only the core of the list")
    words.add_argument("--only", nargs="+", help="identifiers of operators")
    words.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds after which no operator is begun")
    words.add_argument("--results", type=Path, help="the folder of the result files; default: benches/results")
    words.add_argument("--again", action="store_true", help="also what is there")
    words.add_argument("--retry", action="store_true", help="also what was wrong, or failed")
    words.add_argument("--dry-run", action="store_true", help="without a GPU: small sizes, on the tests' stand-in")
    return words


def parsed(words: argparse.ArgumentParser, given: Sequence[str] | None) -> argparse.Namespace:
    """The options; from here on a dry run has the stand-in."""
    found = words.parse_args(given)
    if found.dry_run:
        dry.install()
    found.results = found.results or (DRY_RESULTS if found.dry_run else RESULTS)
    found.results.mkdir(parents=True, exist_ok=True)
    return found


def ended(main: Callable[[], int]) -> int:
    """The exit code of a script: `STOPPED` where it cannot go on, with one sentence where the reason is a known one."""
    try:
        return main()
    except (RollergenError, RuntimeUnavailableError, OSError) as error:
        print(error)
    except ImportError as error:
        print(f"{error}; README.md of benches/gpu says what to install")
    except Exception:
        traceback.print_exc()
    return STOPPED


def machine(given: argparse.Namespace) -> Machine:
    return Machine(resolve(given.device), given.dry_run)


def entries(given: argparse.Namespace) -> dict[Key, Entry]:
    """Those asked for, core ones first."""
    found = listed(tuple(given.suite))
    found = {
        key: one
        for key, one in found.items()
        if (not given.only or one.id in given.only) and (not given.core or is_core(one))
    }
    return dry.cut(found) if given.dry_run else found


def facts_of(entry: Entry) -> Row:
    """What each row says of its operator."""
    return {"kind": entry.kind, "dtype": entry.dtype}


def path(folder: Path, what: str, device: Device) -> Path:
    """``gpu_<what>_<spec>.json``: of a device, and not of a day, so that a run goes on the next day."""
    return folder / f"gpu_{what}_{re.sub(r'[^a-z0-9]+', '-', device.name.lower())}.json"


def budget(given: argparse.Namespace) -> Budget:
    return Budget(given.budget_s)
