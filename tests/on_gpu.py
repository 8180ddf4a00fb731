"""The CUDA GPU that is present in place of the host's CPU: ``python -m pytest -p tests.on_gpu FILES``.

Tests that ask for "cpu" get the GPU, and the CUDA text that `tests.cuda.host` would run on the CPU runs there.  Left out
are those marked `in_place`, which are about the host's own memory, and those that seed faults, which a GPU need not
show.  A fault of the driver leaves no context to go on with and ends the process: with ``-n`` pytest-xdist starts
another.
"""

import os
import sys
from functools import cache

import numpy as np

import rollergen.build
import rollergen.network.compiling
import rollergen.research  # noqa: F401 - what holds `resolve` by name has to be there before it is replaced
from rollergen import targets
from rollergen.hal.errors import BuildError
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from tests.cuda import host, test_programs

LOST = 70
"""Exit status of a process that lost the GPU's context."""
_resolve = targets.resolve


def resolve(device):
    return _resolve("cuda" if device == "cpu" else device)


@cache
def runtime():
    return CudaRuntime()


def run(source, arrays, modes=0, timeout_s=120):
    """`host.run` on the GPU, whose threads run in its own order, in one mode.  Kernels with sizes are not for it."""
    gpu = runtime()
    try:
        module = gpu.compile(source.text)
        held = {name: gpu.wrap(array.view(np.uint8)) for name, array in arrays.items()}  # CuPy knows not all dtypes
        for launch in source.launches:
            kernel = module.kernel(launch.entry, len(launch.arguments), launch.dynamic_bytes, launch.maps)
            gpu.set_arguments(kernel, [held[name] for name in launch.arguments])
            gpu.launch(kernel, launch.blocks, launch.threads)
    except BuildError as error:
        raise host.HostError(str(error)) from None
    try:
        return host.Run({name: array.get().view(arrays[name].dtype) for name, array in held.items()})
    except gpu.cupy.cuda.runtime.CUDARuntimeError as error:
        print(f"{[launch.entry for launch in source.launches]}: {error}", file=sys.stderr, flush=True)
        os._exit(LOST)


def install():
    for module in list(sys.modules.values()):
        if getattr(module, "resolve", None) is _resolve:
            module.resolve = resolve
    test_programs.run = host.run = run


def pytest_configure():
    install()


def pytest_collection_modifyitems(config, items):
    left_out = [
        one for one in items
        if one.get_closest_marker("in_place") or {"seeded", "seeded_map"} & set(one.function.__code__.co_names)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [one for one in items if one not in left_out]
