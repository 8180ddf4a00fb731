"""Runs programs with every buffer flush against a page that may not be touched.

``python -m tests.lower.guard_pages [fault]`` prints the name of each program before it runs it; an
access outside a buffer ends the process.  With ``fault`` a copy's guard against what serial loops
skip is left out first.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace

import numpy as np

from rollergen.emit import emit
from rollergen.program.rprogram import Copy
from tests import programs
from tests.lower.devices import DEVICES
from tests.lower.harness import random_inputs, runtime
from tests.lower.reference import numpy_dtype, run_program

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_KEPT: list[mmap.mmap] = []


def flush_array(shape, dtype, at_end):
    """An array that ends (or begins) where a forbidden page begins (or ends)."""
    dtype = numpy_dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    pages = -(-size // PAGE)
    region = mmap.mmap(-1, (pages + 2) * PAGE)
    _KEPT.append(region)
    base = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for page in (0, pages + 1):
        if _LIBC.mprotect(ctypes.c_void_p(base + page * PAGE), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE + (pages * PAGE - size if at_end else 0)
    return np.frombuffer(region, np.uint8, size, start).view(dtype).reshape(shape)


def run(program):
    inputs = random_inputs(program)
    expected = run_program(program, inputs)
    source, device = emit(program, DEVICES[program.device]), runtime()
    module = device.compile(source.text)
    for at_end in (True, False):
        print("end" if at_end else "start", flush=True)
        run_beside(program, source, device, module, inputs, expected, at_end)


def run_beside(program, source, device, module, inputs, expected, at_end):
    arrays = {b.name: flush_array(b.shape, b.dtype, at_end) for b in program.buffers()}
    for name, array in arrays.items():
        array[...] = inputs.get(name, np.nan)
    for launch in source.launches:
        kernel = module.kernel(launch.entry)
        wrapped = [device.wrap(arrays[name].reshape(-1)) for name in launch.arguments]
        device.set_arguments(kernel, wrapped)
        device.launch(kernel, launch.blocks, launch.threads)
        device.finish()
    for buffer in program.outputs:
        np.testing.assert_allclose(arrays[buffer.name], expected[buffer.name], rtol=1e-6)


def packed_inside():
    """B staged in a private array that reaches beyond the end of B."""
    program = programs.cpu_matmul(70, 100, 37, pack=False, guard="peel")
    copy = Copy(1, "dram", "l2", 3, ("k", "j"), "j", vector=16)
    return replace(program, stages=(replace(program.stages[0], copies=(copy,)),))


def main(fault):
    if fault:
        from rollergen.lower import fills

        old = fills._filling
        fills._filling = lambda here, copy, changes: replace(old(here, copy, changes), loose=frozenset())
    everything = {"packed_inside": packed_inside(), **({} if fault else programs.ALL)}
    for name, program in everything.items():
        print(name, flush=True)
        run(program)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] == ["fault"])
