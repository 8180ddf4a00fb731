"""Values of a model lie apart while both live, and in little more memory than those that live at once."""

import random

from rollergen.network.arena import ALIGNMENT_BYTES, Lifetime, arranged


def test_values_that_live_at_once_lie_apart():
    random.seed(0)
    for _ in range(50):
        begins = [random.randrange(20) for _ in range(15)]
        lives = {f"v{n}": Lifetime(random.randrange(1, 5000), at, at + random.randrange(5)) for n, at in enumerate(begins)}
        arena = arranged(lives)
        assert arena.peak_bytes <= arena.size_bytes
        for a, x in lives.items():
            assert arena.offsets[a] % ALIGNMENT_BYTES == 0 and arena.offsets[a] + x.size_bytes <= arena.size_bytes
            for b, y in lives.items():
                if a < b and x.first <= y.last and y.first <= x.last:
                    first, last = sorted((a, b), key=arena.offsets.get)
                    assert arena.offsets[first] + lives[first].size_bytes <= arena.offsets[last]


def test_a_chain_of_layers_takes_no_more_than_two_neighbours():
    arena = arranged({f"v{n}": Lifetime(1024 * (12 - n), n, n + 1) for n in range(12)})
    assert arena.size_bytes == arena.peak_bytes == 23 * 1024
