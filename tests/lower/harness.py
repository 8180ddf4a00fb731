"""Runs emitted source on this machine: poisoned outputs, guard zones, small-integer inputs."""

from __future__ import annotations

import numpy as np

from rollergen.emit import emit
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from tests.agreement.readers import quickly
from tests.lower.devices import DEVICES
from tests.lower.reference import numpy_dtype, run_program

ZONE = 4096
_RUNTIME = []


def runtime():
    if not _RUNTIME:
        _RUNTIME.append(OpenCLRuntime())
    return _RUNTIME[0]


class Zoned:
    """An array between two zones of a byte pattern."""

    def __init__(self, shape, dtype, fill=None):
        dtype = numpy_dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        self.raw = np.full(size + 2 * ZONE + 64, 0xA5, np.uint8)
        start = ZONE + (-(self.raw.ctypes.data + ZONE)) % 64
        self.bounds = start, start + size
        self.array = self.raw[start : start + size].view(dtype).reshape(shape)
        self.array[...] = fill if fill is not None else self.array
        self.before = self.raw.copy()

    def zones_intact(self):
        a, b = self.bounds
        return bool((self.raw[:a] == 0xA5).all() and (self.raw[b:] == 0xA5).all())

    def unchanged(self):
        return bool((self.raw == self.before).all())


def small_integers(shape, dtype, seed):
    """Values for which sums in float32 are exact."""
    return np.random.default_rng(seed).integers(-3, 4, size=shape).astype(numpy_dtype(dtype))


def random_inputs(program, seed=0):
    return {b.name: small_integers(b.shape, b.dtype, seed + n) for n, b in enumerate(program.inputs)}


def execute(source, program, inputs):
    """Every buffer after all launches, as `Zoned`; outputs and temporaries start as NaN (or garbage)."""
    run = runtime()
    zoned = {}
    for buffer in program.buffers():
        given = inputs.get(buffer.name)
        if given is None and "float" in buffer.dtype:
            given = np.nan
        zoned[buffer.name] = Zoned(buffer.shape, buffer.dtype, given)
    module = run.compile(source.text, quickly(source))
    wrapped = {name: run.wrap(z.array.reshape(-1)) for name, z in zoned.items()}
    for launch in source.launches:
        kernel = module.kernel(launch.entry)
        run.set_arguments(kernel, [wrapped[name] for name in launch.arguments])
        run.launch(kernel, launch.blocks, launch.threads)
        run.finish()
    return zoned


def difference(program, inputs=None, tolerance=0.0, seed=0):
    """None if the program's outputs equal the oracle's and nothing else was touched, else a reason."""
    inputs = inputs or random_inputs(program, seed)
    expected = run_program(program, inputs)
    source = emit(program, DEVICES[program.device])
    got = execute(source, program, inputs)
    for buffer in program.inputs:
        if not got[buffer.name].unchanged():
            return f"input {buffer.name} was written"
    for buffer in (*program.temporaries, *program.outputs):
        if not got[buffer.name].zones_intact():
            return f"guard zone of {buffer.name} was written"
        a, b = got[buffer.name].array.reshape(-1), expected[buffer.name].reshape(-1)
        a, b = (x.astype(np.float64) if x.dtype.kind not in "biu" else x for x in (a, b))
        same = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        if not same.all():
            at = int(np.flatnonzero(~same)[0])
            return f"{buffer.name}[{at}] is {a[at]}, expected {b[at]} ({int((~same).sum())} of {same.size} differ)"
    return None
