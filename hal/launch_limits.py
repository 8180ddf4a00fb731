"""What one launch may ask of a runtime; beyond it, runtimes end the process or the launch fails."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKS = 2**31 - 1
"""Blocks of one launch: kernels number them with an ``int`` (and CUDA's grids end there, Programming Guide, table
"Technical Specifications per Compute Capability")."""

POCL_PRIVATE_BYTES = 1 << 20
"""Private memory of all threads of a block on PoCL, which keeps it on the stack of a worker thread: that is 8 MiB on
common systems, and shared with PoCL's own frames; beyond it the process ends with a segmentation fault."""


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """``local_bytes``: memory shared by a block; ``private_bytes``: private arrays of all threads of a block, None
    where the runtime sets no limit of its own."""

    threads: int
    local_bytes: int
    private_bytes: int | None = None
    blocks: int = BLOCKS
