"""Traffic that the interpreter counts, against arithmetic done by hand on the tensors' layout."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import Copy
from tests.program.hand_devices import AVX512, TURING
from tests.programs import cpu_matmul, gpu_conv, gpu_matmul, relu, row_sum, softmax, transpose
from tests.tensor_ops import small_integers

SECTOR, LINE = 32, 64  # bytes of one transaction of the two devices' backing stores


def counted(program, device, blocks=None, **options):
    """(tiles, transactions) by tensor, of the last stage."""
    traffic = interpret(program, small_integers(program), device, blocks, **options).traffic
    last = program.stages[-1].name
    return {one.tensor: (one.tiles, one.transactions) for one in traffic if one.stage == last}


def run(first_byte, bytes_, transaction):
    """Transactions that a run of adjacent bytes touches."""
    return (first_byte + bytes_ - 1) // transaction - first_byte // transaction + 1


def test_matmul_of_whole_tiles_moves_each_tile_once_for_each_block_and_step():
    # 128x64x32 in blocks of 64x64 and steps of 8: 2 blocks x 4 steps.
    # A's tile is 64 rows of 8 floats, each exactly one sector; B's is 8 rows of 64 floats, 8 sectors each.
    assert counted(gpu_matmul(128, 64, 32), TURING) == {
        "A": (2 * 4, 2 * 4 * 64),
        "B": (2 * 4, 2 * 4 * 8 * 8),
        "C": (2, 128 * 64 * 4 // SECTOR),
    }


def test_matmul_with_tails_counts_rows_where_they_really_begin():
    m, n, k = 70, 100, 37
    blocks = [(i, j) for i in (0, 64) for j in (0, 64)]
    # Row i of A begins at byte 4 * 37 * i: tiles of 8 floats straddle sectors, the last one has 5 floats.
    a = sum(run(4 * (37 * r + s), 4 * min(8, k - s), SECTOR)
            for i, _ in blocks for r in range(i, min(i + 64, m)) for s in range(0, k, 8))  # fmt: skip
    # Row k of B begins at a multiple of 400 bytes, 16 past a sector for odd k; the second tile has 36 columns.
    b = sum(run(4 * (100 * r + j), 4 * min(64, n - j), SECTOR) for _, j in blocks for r in range(k))
    c = sum(run(4 * (100 * r + j), 4 * min(64, n - j), SECTOR) for i, j in blocks for r in range(i, min(i + 64, m)))
    steps = ceil(k / 8)
    assert counted(gpu_matmul(m, n, k), TURING) == {"A": (4 * steps, a), "B": (4 * steps, b), "C": (4, c)}


def test_an_operand_that_bypasses_the_shared_layer_counts_once_for_each_block():
    program = gpu_matmul(128, 64, 32)
    stage = program.stages[0]
    bare = replace(program, stages=(replace(stage, copies=()),))
    # Each of 2 blocks reads 64 whole rows of A (128 bytes) and all of B, once as distinct transactions.
    assert counted(bare, TURING) == {
        "A": (2, 2 * 64 * 4),
        "B": (2, 2 * 32 * 64 * 4 // SECTOR),
        "C": (2, 128 * 64 * 4 // SECTOR),
    }


def test_threads_fill_their_registers_together():
    program = gpu_matmul(64, 64, 32)
    stage = program.stages[0]
    registers = Copy(0, "dram", "registers", 5, ("i", "k"), "k")
    program = replace(program, stages=(replace(stage, copies=(registers,)),))
    # One tile for each of 4 steps: the threads' fragments of A overlap and cover 64 rows of one sector.
    assert counted(program, TURING)["A"] == (4, 4 * 64)
    deeper = replace(registers, at_loop=6, order=("i",), along="i")
    program = replace(program, stages=(replace(stage, copies=(deeper,)),))
    # One tile for each of 32 values of k, 4 bytes of each of 64 rows.
    assert counted(program, TURING)["A"] == (32, 32 * 64)


def test_partial_results_that_wait_in_the_output_are_counted_once_for_each_block():
    program = cpu_matmul(24, 64, 48, kc=16, pack=False)
    # One block: the three tiles of k store the same 24 rows of 4 lines.
    assert counted(program, AVX512) == {"A": (1, 24 * 3), "B": (1, 48 * 4), "C": (1, 24 * 4)}


def test_every_row_of_a_reduction_is_a_block_of_its_own():
    # 100 floats are 400 bytes: rows begin 16 bytes (a quarter of a line) later each time.
    lines = sum(run(400 * row, 400, LINE) for row in range(10))
    assert counted(row_sum(10, 100), AVX512) == {"X": (10, lines), "S": (10, 10)}
    sectors = sum(run(400 * row, 400, SECTOR) for row in range(10))
    assert counted(row_sum(10, 100, "gpu"), TURING) == {"X": (10, sectors), "S": (10, 10)}


@pytest.mark.parametrize("shape, device, transaction", [("cpu", AVX512, LINE), ("gpu", TURING, SECTOR)])
def test_a_row_that_is_walked_three_times_is_counted_once(shape, device, transaction):
    rows = sum(run(400 * row, 400, transaction) for row in range(10))
    assert counted(softmax(10, 100, shape), device) == {"X": (10, rows), "Y": (10, rows)}


def test_a_transposed_tile_counts_rows_of_both_tensors():
    # 64 columns x 96 rows in tiles of 32 x 32: 2 x 3 blocks, 32 rows of 32 floats (4 sectors) each way.
    assert counted(transpose(96, 64), TURING) == {"X": (6, 6 * 32 * 4), "Y": (6, 6 * 32 * 4)}


def test_streams_count_whole_lines_and_the_last_part_of_one():
    # 1000 floats in blocks of 256: three blocks of 16 lines, then 232 floats in 15 (14.5).
    assert counted(relu(1000), AVX512) == {"X": (4, 3 * 16 + ceil(232 * 4 / LINE)), "Y": (4, 3 * 16 + 15)}


def test_guarded_elements_are_not_read():
    # One channel of 4 x 8, one filter: tap (ky, kx) of all positions reads rows and columns that exist only.
    program = gpu_conv(1, 4, 8, 16)
    result = counted(program, TURING)
    # Steps of 4 taps over 9; each row of X is one sector.  Steps {0..3}, {4..7}, {8} of (ky, kx):
    # the first has ky 0 and 1: rows -1..2 and 0..3 of the image, so all 4 rows exist in some tap;
    # the second has ky 1 and 2: rows 0..3; the third is ky 2, kx 2: rows 1..4, of which 3 exist.
    assert result["X"] == (3, 4 + 4 + 3)
    # 9 floats a filter, 36 bytes: 16 filters' elements of each step, filter f from byte 36 f + 16 step.
    taps = [(0, 4), (4, 4), (8, 1)]
    weights = sum(len({(36 * f + 4 * (t + e)) // SECTOR for f in range(16) for e in range(c)}) for t, c in taps)
    assert result["W"] == (3, weights)
    assert result["Y"] == (1, 16 * 4 * 8 * 4 // SECTOR)


def test_counts_of_single_blocks_add_up_to_the_whole():
    program = gpu_matmul(130, 100, 37)
    whole = counted(program, TURING)
    parts = [counted(program, TURING, {"matmul": [block]}) for block in range(program.stages[0].blocks)]
    for tensor, figures in whole.items():
        assert tuple(np.sum([part[tensor] for part in parts], axis=0)) == figures


def test_transactions_may_be_those_of_another_layer():
    shared = TURING.layer("shared").transaction_bytes
    program = gpu_matmul(128, 64, 32)
    records = interpret(program, small_integers(program), TURING, layer="shared").traffic
    store = next(one for one in records if one.role == "store")
    assert (store.transaction_bytes, store.transactions) == (shared, 128 * 64 * 4 // shared)
    assert store.bytes == 128 * 64 * 4


def test_records_name_stage_tensor_and_access_in_launch_order():
    program = cpu_matmul(bias=True)
    traffic = interpret(program, small_integers(program), AVX512).traffic
    assert [(t.stage, t.tensor, t.role, t.load) for t in traffic] == [
        ("pack_B", "B", "load", 0), ("pack_B", "B_packed", "store", -1),
        ("matmul", "A", "load", 0), ("matmul", "B_packed", "load", 1), ("matmul", "D", "load", 2),
        ("matmul", "C", "store", -1),
    ]  # fmt: skip
