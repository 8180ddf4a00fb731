"""A sample of the 119 operators on one OpenCL implementation: ``python -m tests.opencl.sample PLATFORM:DEVICE EVERY``.

Each is cut with odd remainders, built for the device as its driver describes it, and checked by the gate; so are
choices between bytes, which end rusticl's process where they are written in C's own way.  Prints what failed and how
many were right; the process sees the platforms that its environment names.
"""

import sys
from itertools import product

import rollergen as rg
from rollergen.bench.suites import suite
from rollergen.hal.probes.opencl_facts import base_of, told
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import chosen
from rollergen.hal.runtimes.opencl_platforms import present_devices
from tests.agreement.cutting import cut

POINTS = 1 << 14


def spec_of(which):
    found = dict(present_devices())
    facts = chosen(which, list(found))
    runtime = BufferRuntime(facts, found[facts])
    return told(runtime, base_of(runtime), "device")


def of_bytes():
    for dtype, size in product(("int8", "uint8"), (1001, 4096)):  # one of a thread, and several
        x, y = rg.tensor("x", (size,), dtype), rg.tensor("y", (size,), dtype)
        yield f"relu {dtype}[{size}]", rg.ops.relu(x)
        yield f"clamp {dtype}[{size}]", rg.ops.clamp(x, 2, 7)
        yield f"where {dtype}[{size}]", rg.ops.where(x > 3, 7, x)
        yield f"maximum {dtype}[{size}]", rg.ops.maximum(x, y)
        yield f"shift {dtype}[{size}]", rg.ops.bitwise_left_shift(x, y)
        yield f"remainder {dtype}[{size}]", rg.ops.remainder(x, y)
        yield f"quotient {dtype}[{size}]", rg.ops.div(x, y, rounding_mode="floor")


def problems(which, every):
    """Of every n-th operator, and of bytes: why it was not right, by its name."""
    spec = spec_of(which)
    operators = [(e.id, e.build(cut(e, POINTS, 16 * POINTS, images=True))) for e in suite("roller").entries[::every]]
    entries, found = [*operators, *of_bytes()], {}
    for name, expression in entries:
        try:
            kernel = rg.build(expression, spec, top_k=1, profile=True, cache=False)
        except rg.errors.RollergenError as error:
            found[name] = str(error)
        else:
            assert kernel.candidates[0].compared
    return found, len(entries)


if __name__ == "__main__":
    wrong, count = problems(sys.argv[1], int(sys.argv[2]))
    print(*(f"{name}: {why}" for name, why in wrong.items()), sep="\n")
    print(f"{count - len(wrong)} of {count} right on {spec_of(sys.argv[1]).title}")
