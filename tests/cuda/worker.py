"""Runs jobs of `host.run`, each in a fork: their libraries may end the process, and what all need is imported once.

A job is a path on a line of the standard input; the answer is a line with the fork's exit status, as `subprocess` has it.
The pickle at the path holds the library, launches, arrays and order before, and the arrays or a message afterwards.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from itertools import zip_longest
from pathlib import Path

import numpy as np

import rollergen.emit  # noqa: F401  (of which launches are)


def main() -> None:
    for line in sys.stdin:
        timeout, path = line.rstrip("\n").split(" ", 1)
        child = os.fork()
        if not child:
            signal.alarm(int(timeout))
            run(Path(path))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(job: Path) -> None:
    path, launches, arrays, modes = pickle.loads(job.read_bytes())
    library = ctypes.CDLL(path)
    held = {name: aligned(array) for name, array in arrays.items()}
    message = ctypes.create_string_buffer(512)
    for launch in launches:
        maps = [mapped(words, held[n]) for n, words in zip(launch.arguments, launch.maps, strict=False)]
        given = [held[n] if m is None else m for n, m in zip_longest(launch.arguments, maps)]
        given += [np.array([size], np.int32) for size in launch.sizes]
        pointers = (ctypes.c_void_p * len(given))(*(array.ctypes.data for array in given))
        if getattr(library, f"launch_{launch.entry}")(pointers, launch.blocks, launch.threads, modes, message):
            job.write_bytes(pickle.dumps(f"{launch.entry}: {message.value.decode()}"))
            return
    job.write_bytes(pickle.dumps(held))


def mapped(words: tuple[int, ...], array: np.ndarray) -> np.ndarray | None:
    """The tensor map of an array; None where it has none."""
    return np.array((array.ctypes.data, *words[1:]), np.uint64) if words else None


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a multiple of 256 bytes, as CUDA's allocations do, and no further zeros behind it."""
    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    main()
