"""Arrays that candidates are checked and timed on."""

import numpy as np
import pytest

from rollergen.errors import DeviceError
from rollergen.expr.values import Buffer
from rollergen.gate import memory
from rollergen.gate.arrays import (
    ALIGNMENT_BYTES,
    CALLER_LEAD_BYTES,
    MOST_ZONE_BYTES,
    PAGE_BYTES,
    guarded,
    zone_bytes,
)
from rollergen.gate.footprint import checking, with_temporaries
from rollergen.gate.gate import Gate
from tests.measure.faulty import RIGHT

BUFFERS = [Buffer(kind, (5, 77), "float32", kind) for kind in ("input", "output", "temporary")]


def test_arrays_of_a_call_begin_where_numpys_do_and_temporaries_on_a_line():
    begins = {name: zone.array.ctypes.data % ALIGNMENT_BYTES for name, zone in guarded(BUFFERS).items()}
    assert begins == {"input": CALLER_LEAD_BYTES, "output": CALLER_LEAD_BYTES, "temporary": 0}


def test_guard_zones_enclose_an_array_and_tell_where_they_were_touched():
    for zone in guarded(BUFFERS).values():
        assert zone.damage() is None
        around = np.lib.stride_tricks.as_strided(zone.array.view(np.uint8), (zone.array.nbytes + 1,), (1,))
        around[-1] ^= 1
        assert "after the last element, the nearest 0 bytes away" in zone.damage()
        zone.reset()
        zone.before[PAGE_BYTES - 3] ^= 1
        assert "before the first element, the nearest 2 bytes away" in zone.damage()


def test_a_guard_zone_is_whole_pages_as_long_as_its_array():
    assert [zone_bytes(n) for n in (0, 1, 4096, 4097, 2**30)] == [4096, 4096, 4096, 8192, MOST_ZONE_BYTES]
    for zone in guarded(BUFFERS, variant=1).values():
        assert zone.before.size == zone.after.size == PAGE_BYTES
        zone.after[PAGE_BYTES - 1] ^= 1
        assert "1 bytes written after the last element, the nearest 4095 bytes away" in zone.damage()


def test_a_check_that_host_memory_does_not_hold_is_refused_before_it_allocates(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 70_000)
    text = r"checking candidates of Y takes 75\.16 KiB \(3 sets of inputs 11\.72 KiB, 2 copies of them 7\.812 KiB, .*host memory"
    with pytest.raises(DeviceError, match=text):
        Gate(RIGHT, None)
    assert checking(RIGHT, host=True).total > 70_000 > with_temporaries(RIGHT).total == 0
