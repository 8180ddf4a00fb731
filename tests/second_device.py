"""A second device in place of the host's CPU: ``python -m pytest -p tests.second_device FILES``.

PoCL's with memory of its own, or the one that SECOND_DEVICE names (PLATFORM:DEVICE).  Tests that ask for "cpu" get its
spec placed there, so that the same programs run on copies, as on a GPU.  Those marked `in_place` are about the host's
own memory, and are left out.
"""

import os
import sys

import rollergen.build
import rollergen.network.compiling
import rollergen.research  # noqa: F401 - what holds `resolve` by name has to be there before it is replaced
from rollergen import targets
from rollergen.hal.runtimes.opencl_devices import placed
from tests.opencl.devices import POCL, facts

_WHICH = os.environ.get("SECOND_DEVICE", POCL)
_resolve = targets.resolve


def resolve(device):
    found = _resolve(device)
    return placed(found, facts(_WHICH)) if device == "cpu" else found


def pytest_configure():
    for module in list(sys.modules.values()):
        if getattr(module, "resolve", None) is _resolve:
            module.resolve = resolve


def pytest_collection_modifyitems(config, items):
    left_out = [one for one in items if one.get_closest_marker("in_place")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [one for one in items if one not in left_out]
