"""Operators of ROLLER's list, cut small, computed from their CUDA text: a sample; benches/check_cuda_fixture.py has all."""

from __future__ import annotations

import pytest

from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from tests.agreement.cutting import cut
from tests.cuda.cut_axes import LACKS, tiles, why_not
from tests.cuda.host import compiler
from tests.cuda.operators import axes, choose, execute

POINTS, BYTES = 60_000, 1 << 19


def sample(count: int) -> list[tuple[str, str]]:
    """Operators spread evenly over the list, which is sorted by class, for the two devices in turn."""
    entries = suite("roller").entries
    chosen = [entries[number * (len(entries) - 1) // (count - 1)].id for number in range(count)]
    return [(id, ("v100", "h200")[number % 2]) for number, id in enumerate(chosen)]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("id", "device"), sample(24))
@pytest.mark.every(13)
def test_an_operator_computes_its_definition_from_the_cuda_text(id, device):
    found = execute(suite("roller").entry(id), device, POINTS, BYTES, first_too=False)
    assert found["state"] == "right"
    assert found["compared"] > 0


def test_the_sample_has_every_class_of_the_list():
    kinds = {entry.kind for entry in suite("roller").entries}
    assert {suite("roller").entry(id).kind for id, _ in sample(24)} == kinds


def test_another_program_or_cut_shows_what_the_first_lacks():
    chosen = choose(suite("roller").entry("D0"), load_device("v100"), POINTS, BYTES)
    first, other = (axes(suite("roller").entry("D0"), (one,), load_device("v100")) for one in chosen)
    assert sum(map(bool, first.values())) > sum(map(bool, other.values()))


def test_an_axis_cut_below_a_vector_is_said_to_lack_tiles():
    entry = suite("roller").entry("C2")
    fields = cut(entry, POINTS, BYTES, images=True)
    fields["inputs"][1]["shape"][0] = 3
    program = construct(canonicalize(entry.build(fields)), load_device("v100"), top_k=1)[0].program
    assert tiles(program)["contraction.f"] == 1
    assert why_not(entry, program)["contraction.f"] in LACKS


def test_images_are_cut_to_odd_extents_that_hold_three_windows():
    entry = next(e for e in suite("roller").entries if e.kind == "depthwise_conv2d")
    fields = cut(entry, POINTS, BYTES, images=True)
    image, taps = fields["inputs"][0]["shape"], fields["inputs"][1]["shape"][1:]
    assert all(extent % 2 for extent in image[2:])
    assert all(extent >= min(3 * tap - 2, full) // 2 for extent, tap, full in zip(
        image[2:], taps, entry.fields["inputs"][0]["shape"][2:], strict=True))  # fmt: skip
