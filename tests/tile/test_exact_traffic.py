"""Transactions from classes of tiles equal a listing of every address."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Buffer, Load, Within
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Copy, Loop, Stage
from rollergen.tile.affine_traffic import _groups
from rollergen.tile.exact_traffic import traffic
from rollergen.tile.segments import Progression, convolve_residues, distinct_transactions, offsets_of
from tests.costs import calls_of
from tests.programs import ALL, gpu_conv, gpu_matmul
from tests.tile.brute_force import brute_force

STAGES = {f"{name}/{stage.name}": stage for name, program in ALL.items() for stage in program.stages}


def counted(stage, transaction_bytes, blocks=None):
    return [(t.tensor, t.role, t.load, t.tiles, t.transactions) for t in traffic(stage, transaction_bytes, blocks)]


@pytest.mark.parametrize("transaction_bytes", [4, 32, 128])
@pytest.mark.parametrize("name", STAGES)
def test_hand_written_stages_move_exactly_the_listed_transactions(name, transaction_bytes):
    assert counted(STAGES[name], transaction_bytes) == brute_force(STAGES[name], transaction_bytes)


@pytest.mark.parametrize("name", ["gpu_matmul/matmul", "cpu_matmul/matmul", "gpu_conv/conv"])
def test_chosen_blocks_are_counted_alone(name):
    stage = STAGES[name]
    ordered = BlockOrder(0)
    stage = Stage(**{f: getattr(stage, f) for f in Stage.__dataclass_fields__} | {"block_order": ordered})
    for blocks in ([0], [stage.blocks - 1], [1, 2]):
        assert counted(stage, 32, blocks) == brute_force(stage, 32, blocks)


def test_the_blocks_of_a_swizzled_grid_add_up_to_the_whole():
    stage = gpu_matmul(200, 260, 16).stages[0]
    assert stage.block_order.group_rows == 2
    one_by_one = [counted(stage, 32, [block]) for block in range(stage.blocks)]
    for whole, parts in zip(counted(stage, 32), zip(*one_by_one, strict=True), strict=True):
        assert whole[4] == sum(part[4] for part in parts)


@st.composite
def loops_of_axis(draw, axis, extent):
    """Random digits of one axis; together they may overhang it."""
    kinds = draw(st.lists(st.sampled_from(["grid", "thread", "serial", "unroll"]), min_size=0, max_size=3))
    sizes = [draw(st.integers(1, 4)) for _ in kinds]
    if not kinds:
        return [Loop(axis, extent, 1, "unroll")]
    inner = int(np.prod(sizes[1:], initial=1))
    sizes[0] = max(1, -(-extent // inner))
    strides = [int(np.prod(sizes[n + 1 :], initial=1)) for n in range(len(sizes))]
    return [Loop(axis, *rest) for rest in zip(sizes, strides, kinds, strict=True)]


@st.composite
def affine_stages(draw):
    """One guarded load with up to three axes, strided, reversed and shared dimensions, under random loops."""
    axes = [Axis(name, draw(st.integers(1, 9))) for name in "abc"[: draw(st.integers(1, 3))]]
    dims = draw(st.integers(1, 3))
    places = [draw(st.integers(0, dims - 1)) for _ in axes]
    indices, shape, guard = [], [], []
    for d in range(dims):
        index = Index()
        for axis, place in zip(axes, places, strict=True):
            if place == d:
                index = index + Index.axis(axis.name) * draw(st.sampled_from([1, 1, 2, 3, -1, 5]))
        low, high = index.bounds({axis.name: (0, axis.extent - 1) for axis in axes})
        index = index + (draw(st.integers(0, 2)) - low)
        shape.append(high - low + 3 + draw(st.integers(0, 6)))
        indices.append(index)
        if index.terms and draw(st.booleans()):
            first = draw(st.integers(0, shape[-1]))
            guard.append(Within(index, first, draw(st.integers(first, shape[-1]))))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    load = Load(Buffer("X", tuple(shape), dtype), tuple(indices), tuple(guard))
    output = Buffer("Y", tuple(axis.extent for axis in axes), kind="output")
    op = TensorOp(output, tuple(axes), tuple(Index.axis(axis.name) for axis in axes), load)
    loops = [loop for axis in axes for loop in draw(loops_of_axis(axis.name, axis.extent))]
    order = {"grid": 0, "thread": 1, "serial": 2, "unroll": 2}
    loops = sorted(draw(st.permutations(loops)), key=lambda loop: order[loop.kind])
    parallel = sum(order[loop.kind] < 2 for loop in loops)
    copies = ()
    if draw(st.booleans()):
        at = draw(st.integers(parallel, len(loops)))
        used = tuple(axis.name for axis in axes)
        copies = (Copy(0, "dram", "shared", at, used, used[-1]),)
    return Stage("s", op, tuple(loops), Compute("fma"), Accumulator(len(loops), "float32"), copies)


@settings(max_examples=150, deadline=None)
@given(affine_stages(), st.sampled_from([4, 8, 16, 32]))
def test_affine_guarded_accesses_are_counted_exactly(stage, transaction_bytes):
    assert counted(stage, transaction_bytes) == brute_force(stage, transaction_bytes)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 7)), min_size=1, max_size=3),
    st.sampled_from([1, 2, 8, 16]),
)
def test_levels_count_the_distinct_transactions_of_their_addresses(shape, transaction):
    levels, addresses, reach = [], np.zeros(1, dtype=int), 0
    for count, slack in shape:
        step = reach + 1 + slack
        levels.append(Progression(count, step))
        addresses = (addresses[:, None] + np.arange(count) * step).ravel()
        reach += step * (count - 1)
    expected = [len(np.unique((addresses + r) // transaction)) for r in range(transaction)]
    assert distinct_transactions(levels, transaction).tolist() == expected


def test_listed_offsets_count_like_progressions():
    listed = distinct_transactions([Progression(3, 1), (0, 5, 10, 15)], 8)
    assert listed.tolist() == distinct_transactions([Progression(3, 1), Progression(4, 5)], 8).tolist()
    assert offsets_of(np.array([4, 9, 14])) == Progression(3, 5)
    assert offsets_of(np.array([4, 9, 15])) == (0, 5, 11)


def test_a_level_that_overlaps_what_it_repeats_is_refused():
    with pytest.raises(ValueError, match="every 2 elements, inside the set's own reach of 4"):
        distinct_transactions([Progression(3, 2), Progression(4, 2)], 8)


def test_residues_convolve():
    one, two = np.array([1, 1, 0, 0]), np.array([0, 0, 1, 2])
    assert convolve_residues([one, two], 4).tolist() == [2, 0, 1, 3]


def test_sizes_do_not_set_the_cost_of_counting_an_affine_stage():
    small, stage = (gpu_matmul(*sizes).stages[0] for sizes in ((257, 259, 253), (4097, 4099, 4093)))
    assert calls_of(lambda: traffic(stage, 32)) == calls_of(lambda: traffic(small, 32))
    tracemalloc.start()
    found = {t.tensor: t for t in traffic(stage, 32)}
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 4097 * 4099  # less than a byte for each element of a tensor
    elements = 65 * 65 * (4097 * 4093) / 4097 * 4097 / 65  # every block column of C reads all of A
    assert found["A"].transactions > elements / 8
    assert found["C"].transactions >= 4097 * 4099 / 8


def test_tiles_that_no_guard_cuts_are_counted_as_one():
    """Else the cost of counting grows with the square of the blocks: minutes for a tensor of 2**31 elements."""
    starts = np.arange(0, 2**20, 1024)
    groups = list(_groups(starts, np.full((len(starts), 1), 1024), 5000, 2**19 + 7, reach=1024))
    assert len(groups) == 7  # before the guard's range, inside, behind, and two tiles at each of its ends
    assert sorted(np.concatenate([members for *_, members in groups])) == list(range(len(starts)))


def test_cutting_a_gather_never_loses_and_adds_at_most_a_tenth(monkeypatch):
    stage = gpu_conv(16, 20, 20, 16).stages[0]
    loops = list(stage.loops)
    loops[4:6] = [Loop("k", 1, 144, "serial"), Loop("k", 144, 1, "serial")]
    stage = Stage(**{f: getattr(stage, f) for f in Stage.__dataclass_fields__} | {"loops": tuple(loops)})
    exact = counted(stage, 32)
    assert exact == brute_force(stage, 32)
    monkeypatch.setattr("rollergen.tile.gather_traffic.ENUMERATED_AT_MOST", 0)
    for bound, count in zip(counted(stage, 32), exact, strict=True):
        assert count[4] <= bound[4] <= 1.1 * count[4]
