"""Specs whose programs run on PoCL by buffers, which stands in for a GPU."""

from rollergen.hal.load import load_device
from rollergen.hal.runtimes.opencl_devices import chosen, placed
from rollergen.hal.runtimes.opencl_platforms import present_devices

POCL = "pocl"


def facts(which=POCL):
    return chosen(which, [facts for facts, _ in present_devices()])


def on_pocl(name="mi50"):
    """The spec, placed on PoCL's CPU, whatever it describes."""
    return placed(load_device(name), facts())
