"""Runs one job of `host.run`: ``python worker.py JOB``, arrays in, arrays out, through the same pickle."""

from __future__ import annotations

import ctypes
import pickle
import sys
from pathlib import Path


def main(job: Path) -> None:
    path, launches, arrays, reverse = pickle.loads(job.read_bytes())
    library = ctypes.CDLL(path)
    held = {name: aligned(array) for name, array in arrays.items()}
    message = ctypes.create_string_buffer(512)
    for launch in launches:
        pointers = (ctypes.c_void_p * len(launch.arguments))(*(held[n].ctypes.data for n in launch.arguments))
        if getattr(library, f"launch_{launch.entry}")(pointers, launch.blocks, launch.threads, int(reverse), message):
            sys.exit(f"{launch.entry}: {message.value.decode()}")
    job.write_bytes(pickle.dumps(held))


def aligned(array):  # type: ignore[no-untyped-def]
    """A copy that starts at a multiple of 256 bytes, as CUDA's allocations do, and no further zeros behind it."""
    import numpy as np

    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    main(Path(sys.argv[1]))
