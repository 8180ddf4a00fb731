"""Which programs of matrix instructions become candidates."""

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize


@pytest.mark.parametrize(("device", "size"), [("v100", 1024), ("v100", 4096), ("a100", 1024)])
def test_no_place_goes_to_what_is_hopeless_while_other_tiles_of_matrices_are_left(device, size):
    """A few block tiles in many ways took all places of matrix instructions, and plain ones 13 times slower the rest."""
    a, b = (rg.tensor(name, (size, size), "float16") for name in "AB")
    times = [one.seconds for one in construct(canonicalize(rg.ops.matmul(a, b)), rg.load_device(device), top_k=20)]
    assert len(times) == 20 and times[-1] < 2 * times[0]
