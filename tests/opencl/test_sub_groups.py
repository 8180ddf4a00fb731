"""Whether a device's sub-groups exchange registers, and how many threads they have, is found by running a kernel."""

from types import SimpleNamespace

import numpy as np
import pytest

from rollergen.hal.errors import BuildError
from rollergen.hal.exchanges import EXTENSIONS
from rollergen.hal.probes.opencl_sub_groups import REQUIRED, sub_groups

KHRONOS, INTEL = (frozenset({name, one.beside}) for name, one in EXTENSIONS.items())
SHUFFLE = next(iter(EXTENSIONS))


class Answering:
    """A runtime whose sub-groups have so many threads; ``wrong``: one of the exchanges, from 1, gives nothing."""

    opencl = SimpleNamespace(Error=RuntimeError)

    def __init__(self, width, extensions=KHRONOS, wrong=0, refused=(), threads=1024):
        self.width, self.extensions, self.wrong, self.refused = width, extensions, wrong, refused
        self.limits = SimpleNamespace(threads=threads)

    def compile(self, text):
        asked = [width for width in (8, 16, 32, 64) if f"size({width})" in text]
        if asked and asked[0] in self.refused:
            raise BuildError("refused")
        self.seen = asked[0] if asked else self.width
        return SimpleNamespace(kernel=lambda name: name)

    def wrap(self, array):
        return array

    def set_arguments(self, kernel, buffers): ...

    def launch(self, kernel, blocks, threads): ...

    def read(self, buffer, start, size):
        at = np.arange(256)
        rows = [
            np.full(256, self.seen),
            7 * (at ^ 1),
            7 * (at // self.seen * self.seen + 3),
            7 * (at - 1),
            7 * (at + 1),
        ]
        if self.wrong:
            rows[self.wrong] = 0 * at
        return np.concatenate(rows).astype(np.int32).view(np.uint8)


def test_a_device_with_one_size_needs_no_attribute():
    found = sub_groups(Answering(64))
    assert (found.width, found.dialect) == (64, {"exchange_extension": SHUFFLE})


def test_a_size_is_asked_for_where_kernels_may_and_the_next_where_it_is_refused():
    found = sub_groups(Answering(8, KHRONOS | {REQUIRED}, refused=(32,)))
    assert found.width == 16 and found.dialect["kernel_attribute"] == "__attribute__((intel_reqd_sub_group_size(16)))"


def test_intels_own_exchanges_are_used_where_there_are_no_others():
    assert sub_groups(Answering(16, INTEL)).dialect == {"exchange_extension": "cl_intel_subgroups"}
    assert sub_groups(Answering(16, INTEL | KHRONOS)).extension == SHUFFLE


@pytest.mark.parametrize("wrong", [1, 2, 3, 4])
def test_a_wrong_exchange_is_none(wrong):
    assert sub_groups(Answering(32, wrong=wrong)) is None


@pytest.mark.parametrize(
    "device",
    [Answering(32, frozenset({SHUFFLE})), Answering(32, frozenset()), Answering(12), Answering(32, threads=128)],
)
def test_reductions_go_through_local_memory_where_there_are_none(device):
    assert sub_groups(device) is None
