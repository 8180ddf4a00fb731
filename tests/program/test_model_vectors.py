"""What vectors of one core cost beside multiply-adds: the model counts what the text does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.program.model import predict_stage
from rollergen.program.rprogram import Loop
from tests.program.hand_devices import AVX512
from tests.programs import relu


def fetched(stage, layer, device=AVX512):
    """Bytes read from a layer and written to it."""
    return dict(predict_stage(stage, device).traffic_bytes)[layer]


def cut(elements, each):
    """A map of so many elements in blocks of ``each``."""
    stage = relu(elements).stages[0]
    _, serial, lane = stage.loops
    blocks = Loop("i", -(-elements // each), each, "grid")
    return replace(stage, loops=(blocks, replace(serial, extent=each // 16), lane))


@settings(max_examples=60, deadline=None)
@given(st.integers(1 << 18, 1 << 20), st.sampled_from([1 << 12, 1 << 14, 1 << 16]))
def test_blocks_of_which_the_last_is_cut_fetch_the_lines_of_the_tensor(vectors, each):
    elements = vectors // 16 * 16
    whole, parts = (fetched(one, "l3") for one in (cut(elements, elements), cut(elements, each)))
    assert parts == pytest.approx(whole, rel=1e-9)


def test_a_core_finds_in_its_own_caches_what_fits_there():
    small, large = cut(1 << 12, 1 << 12), cut(1 << 24, 1 << 24)
    assert fetched(small, "l2") == fetched(small, "l3") == 0 < fetched(large, "l3")
    cores = replace(AVX512, units=4)  # the next call's blocks run anywhere
    assert fetched(small, "l3", cores) == (1 << 12) * 4  # read once, stored past the caches
