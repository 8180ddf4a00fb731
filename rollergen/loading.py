"""Saved kernels as kernels again."""

from __future__ import annotations

import os
from pathlib import Path

from rollergen.bundle.read import read
from rollergen.errors import BundleError
from rollergen.kernel import Kernel


def load(directory: str | Path) -> Kernel:
    """The kernel that ``kernel.save(directory)`` wrote: the same source, times and explanation.

    Loading runs nothing of it; calling it runs its source, so call only kernels whose origin you trust.
    Raises BundleError: no saved kernel, another format, a file that was damaged or does not fit the others.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise BundleError(f"rg.load(directory): directory is {directory!r}; expected a path")
    found = read(Path(directory))
    return Kernel(
        found.device, found.candidates, found.chosen, found.cuts, lambda: found.growth,
        references=lambda program: found.tests,
    )  # fmt: skip
