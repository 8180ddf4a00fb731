"""What the stand-in's driver says of the device, and the errors that CuPy raises."""

from __future__ import annotations

import os

LOG: list[tuple] = []
"""What was asked of the device, in order."""


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


def _gpu():
    name, major, minor, memory = os.environ["FAKE_GPU"].split("|")
    return name, int(major), int(minor), int(memory)


def _count():
    if os.environ["FAKE_GPU"] in ("no driver", "old driver", "broken driver"):
        raise CUDARuntimeError(
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
        )
    return 0 if os.environ["FAKE_GPU"] == "no device" else 1


def _driver_version():
    return {"no driver": 0, "old driver": 11080}.get(os.environ["FAKE_GPU"], 12080)


def _properties(number):
    name, major, minor, memory = _gpu()
    return {
        "name": name.encode(), "major": major, "minor": minor, "totalGlobalMem": memory, "maxThreadsPerBlock": 1024,
        "sharedMemPerBlockOptin": {3: 49152, 7: 98304, 8: 166912, 9: 232448, 12: 101376}[major], "l2CacheSize": 1 << 20,
        "multiProcessorCount": 2, "maxThreadsPerMultiProcessor": 2048, "maxBlocksPerMultiProcessor": 32,
        "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304,
    }  # fmt: skip
