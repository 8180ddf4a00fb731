"""The cores that a bench is bound to, and as many threads of every library, which reads them when it is imported."""

from __future__ import annotations

import os

THREADS = ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def bind(every: bool = False) -> list[int]:
    """Binds this process to its last core, or to ``every`` one that it has.  Returns their numbers."""
    present = sorted(os.sched_getaffinity(0))
    cores = present if every else present[-1:]
    for name in THREADS:
        os.environ[name] = str(len(cores))
    os.sched_setaffinity(0, cores)
    return cores
