"""The stand-in for a GPU that dry runs use: the tests' CuPy, whose kernels are compiled for and run on the CPU."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from benches.gpu.cases import SUITE, Key, small
from benches.results import ROOT
from rollergen.bench.suites import Entry

GPU = "NVIDIA H200|9|0|150000000000"
"""Name, compute capability, bytes: the device whose kernels have matrix instructions of every narrow dtype."""
COMPILE_WITH = {"backend": "eager"}
"""torch.compile, without the minutes that Inductor takes on a CPU."""
POINTS, BYTES = 30_000, 1 << 18
"""Of an operator of ROLLER's list that is cut: multiply-adds, and bytes of its arrays, at most."""


def install() -> None:
    """From here on this process has the stand-in for CuPy."""
    fake = str(ROOT / "tests" / "cuda" / "fake")
    if "FAKE_GPU" not in os.environ:
        os.environ["FAKE_GPU"] = GPU
    if fake not in sys.path:
        sys.path.insert(0, fake)
    import cupy

    cupy.cuda.Event.done = False  # torch's tensors are in host memory here, so that calls wait for the stand-in


def cut(found: dict[Key, Entry]) -> dict[Key, Entry]:
    """The first operator of each kind and dtype, in small.  Those of other suites have several tiles and remainders."""
    from tests.agreement.cutting import cut as cut_fields

    first: dict[tuple[str, str, str], Key] = {}
    for key, one in found.items():
        first.setdefault((one.suite, one.kind, one.dtype), key)
    chosen = {key: found[key] for key in first.values()}
    return {
        key: small(one)
        if one.suite == SUITE
        else replace(one, fields=cut_fields(one, POINTS, BYTES, images=one.suite == "roller"))
        for key, one in chosen.items()
    }
