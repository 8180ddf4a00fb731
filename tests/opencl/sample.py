"""A sample of the 119 operators on one OpenCL implementation: ``python -m tests.opencl.sample PLATFORM:DEVICE EVERY``.

Each is cut with odd remainders, built for the device as its driver describes it, and checked by the gate.  Prints what
failed and how many were right; the process sees the platforms that its environment names.
"""

import sys

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


def problems(which, every):
    """Of every n-th operator: why it was not right, by its name."""
    spec, entries = spec_of(which), suite("roller").entries[::every]
    found = {}
    for entry in entries:
        expression = entry.build(cut(entry, POINTS, 16 * POINTS, images=True))
        try:
            kernel = rg.build(expression, spec, top_k=1, profile=True, cache=False)
        except rg.errors.RollergenError as error:
            found[entry.id] = str(error)
        else:
            assert kernel.candidates[0].compared
    return found, len(entries)


if __name__ == "__main__":
    wrong, count = problems(sys.argv[1], int(sys.argv[2]))
    print(*(f"{name}: {why}" for name, why in wrong.items()), sep="\n")
    print(f"{count - len(wrong)} of {count} right on {spec_of(sys.argv[1]).title}")
