"""The wavefront rule, on accesses whose cost is known from measured programs."""

import numpy as np
import pytest

from rollergen.hal.spec import MemoryLayer
from rollergen.program.model.wavefronts import digits_of_rows, transactions, wavefronts

SRAM = MemoryLayer("shared", "unit", True, 65536, 128, bytes_per_clock=64, banks=32, bank_bytes=4)
LANE = np.arange(32)

VECTORS = {  # name: (bits, word address of each lane, wavefronts of a shared read, of a global load)
    "32-bit consecutive": (32, LANE, 1, 1),
    "32-bit, 8 lanes 8 words apart, 4 copies": (32, LANE % 8 * 8, 2, 2),
    "64-bit consecutive": (64, LANE * 2, 2, 2),
    "64-bit, 16 lanes 4 words apart": (64, LANE % 16 * 4, 4, 4),
    "128-bit consecutive": (128, LANE * 4, 4, 4),
    "128-bit, 8 lanes, 4 copies": (128, LANE % 8 * 4, 4, 4),
    "128-bit, 8 lanes 8 words apart, 4 copies": (128, LANE % 8 * 8, 8, 8),
    "128-bit, 8 lanes 16 words apart, 4 copies": (128, LANE % 8 * 16, 16, 16),
    "64-bit uniform": (64, LANE * 0, 1, 2),
    "128-bit uniform": (128, LANE * 0, 2, 4),
    "128-bit, 4 addresses 8 words apart by lane / 8": (128, LANE // 8 * 8, 2, 4),
}


@pytest.mark.parametrize("name", VECTORS)
def test_known_accesses_cost_their_wavefronts(name):
    bits, words, shared, direct = VECTORS[name]
    assert wavefronts(words * 4, bits // 8, SRAM, merge_pairs=True) == shared
    assert wavefronts(words * 4, bits // 8, SRAM, merge_pairs=False) == direct


def test_an_unaligned_row_of_words_costs_one():
    assert wavefronts(LANE * 4 + 4, 4, SRAM, merge_pairs=False) == 1


def test_a_column_of_a_row_of_32_words_costs_one_wavefront_a_lane():
    assert wavefronts(LANE * 32 * 4, 4, SRAM, merge_pairs=True) == 32
    assert wavefronts(LANE * 33 * 4, 4, SRAM, merge_pairs=True) == 1


def test_lanes_two_apart_merge_like_neighbours():
    by_two = LANE // 4 * 2 + LANE % 2  # lane i has the address of lane i^2
    assert wavefronts(by_two * 8, 8, SRAM, merge_pairs=True) == 1
    assert wavefronts(by_two * 8, 8, SRAM, merge_pairs=False) == 2


def test_a_vector_of_32_bytes_is_two_accesses():
    once = wavefronts(LANE * 32, 16, SRAM, merge_pairs=False)
    assert wavefronts(LANE * 32, 32, SRAM, merge_pairs=False) == 2 * once


def test_a_wave_of_64_lanes_takes_twice_the_phases():
    assert wavefronts(np.arange(64) * 4, 4, SRAM, merge_pairs=False) == 2


def test_halves_share_the_words_of_their_bank():
    assert wavefronts(LANE * 2, 2, SRAM, merge_pairs=False) == 1


def test_transactions_are_the_lines_that_the_lanes_touch():
    assert transactions(np.arange(64) * 4, 4, 64) == 4
    assert transactions(np.arange(64) * 256, 4, 64) == 64
    assert transactions(np.arange(4) * 16 + 8, 16, 64) == 2


def test_the_last_loop_of_a_linear_thread_number_is_the_fastest():
    slow, fast = (own[0] for own in digits_of_rows([np.array([[4]]), np.array([[8]])], 32))
    assert fast.tolist()[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert slow.tolist()[7:9] == [0, 1]
    rows = [np.array([[2], [5]]), np.array([[3], [2]])]
    assert [own.tolist() for own in digits_of_rows(rows, 6)] == [
        [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]],
        [[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 1]],
    ]


def test_one_bank_serves_word_after_word():
    single = MemoryLayer("l1", "unit", False, 65536, 128, bytes_per_clock=4, banks=1, bank_bytes=4)
    assert wavefronts(LANE * 4, 4, single, merge_pairs=False) == 32
    assert wavefronts(LANE * 16, 16, single, merge_pairs=False) == 4 * 32
