"""Seeded faults in the model and the closed forms: each one must break an agreement."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from rollergen.program.model import access as model_access
from rollergen.program.model import facts as model_facts
from rollergen.program.model import lane_rows as model_lane_rows
from rollergen.program.model import moved as model_moved
from rollergen.program.model import nest as model_nest
from rollergen.program.model import occupancy as model_occupancy
from rollergen.program.model import predict_stage
from rollergen.program.model import price as model
from rollergen.program.model import reuse as model_reuse
from rollergen.program.model import services as model_services
from rollergen.program.model import tiles as model_tiles
from rollergen.program.model import together as model_together
from rollergen.program.model import wavefronts as model_wavefronts
from rollergen.program.model import work as model_work
from rollergen.program.model.limiters import arithmetic as model_arithmetic
from rollergen.program.model.limiters import bandwidth as model_bandwidth
from rollergen.tile import affine_traffic, axis_tiles, closed_forms, exact_traffic, guarded_access, segments
from tests.program.batches import cpu_stage
from tests.program.hand_devices import AVX512, TURING
from tests.program.test_model_wavefronts import SRAM, VECTORS
from tests.programs import cpu_matmul, gpu_conv, gpu_matmul, row_sum, softmax, transpose
from tests.tile.brute_force import brute_force

COUNTED = [
    gpu_matmul(70, 66, 37).stages[0],  # 64 of 66 columns: neighbouring rows share transactions
    gpu_conv().stages[0],
    transpose().stages[0],
    *cpu_matmul(50, 70, 21).stages,
]
EXPECTED = [brute_force(stage, 32) for stage in COUNTED]
CPU = cpu_matmul(1000, 1000, 1000, pack=False, kc=128).stages[0]
GPU = gpu_matmul(70 * 64, 65 * 64, 256).stages[0]


def known_wavefronts():
    for bits, words, shared, direct in VECTORS.values():
        assert model_wavefronts.wavefronts(words * 4, bits // 8, SRAM, merge_pairs=True) == shared
        assert model_wavefronts.wavefronts(words * 4, bits // 8, SRAM, merge_pairs=False) == direct


def counted_traffic():
    for stage, expected in zip(COUNTED, EXPECTED, strict=True):
        found = [(t.tensor, t.role, t.load, t.tiles, t.transactions) for t in exact_traffic.traffic(stage, 32)]
        assert found == expected


def forms_where_tiles_fit():
    stage = gpu_matmul(128, 64, 32).stages[0]
    counted = [t.transactions for t in exact_traffic.traffic(stage, 4)]
    forms = closed_forms.closed_forms(stage.op, {"i": 64, "j": 64, "k": 8})
    assert [one.traffic.value for one in forms] == counted


def figures_by_hand():
    """Clocks of single limiters, counted on paper."""
    gpu, cpu = ({x.name: x.clocks for x in predict_stage(s, d).limiters} for s, d in ((GPU, TURING), (CPU, AVX512)))
    a_round = 64 * 64 * 256 / 64  # clocks of one block: 64 multiply-adds each
    assert gpu["multiply-adds"] == pytest.approx(64 * a_round)  # 70 * 65 blocks on 72 units: 63.2
    assert gpu["latency"] == pytest.approx(16 * (256 / 8 * 450 + 256 * 4))  # 64 blocks, four at a time
    wave = 128 / 64
    a_step = 8 * 8 * (2 * 1 + 2 * 2) * wave  # 8 warps, 8 steps; A: two uniform pairs, B: 16 addresses twice
    staging = 8 * (2 * (2 + 1) + 2 * (4 + 4) / 2) * wave  # a round of A by single floats, half of one of B by four
    assert gpu["shared path"] == pytest.approx(64 * (32 * (a_step + staging) + 8 * 8 * 4 * 2 / 2), rel=0.2)
    predicted = predict_stage(GPU, TURING)
    assert predicted.resident_blocks == 4
    assert predicted.shared_bytes == 8 * (64 + 4) * 4 + 8 * 64 * 4
    assert cpu["multiply-adds"] == pytest.approx(1002 * 1024 * 1000 / 32)
    assert cpu["load ports"] == pytest.approx(167 * 32 * 1000 * 8 / 3)
    assert cpu["latency"] == pytest.approx(4 * 167 * 32 * 1000 * (1 - 512 / (2 * (125 * (12 + 2 + 6 + 4)))), rel=1e-3)
    assert cpu["tiles"] > 167 * 32 * 8 * (25 + 12)


def memory_by_hand():
    cold = replace(AVX512, costs=tuple((n, v) for n, v in AVX512.costs if n != "warm_cache"))
    traffic = dict(predict_stage(CPU, cold).traffic_bytes)
    assert traffic["dram"] == pytest.approx(4 * 4e6, rel=0.1)  # A, B and C in, C out; and what ragged lines add
    assert traffic["l2"] > 10 * traffic["dram"]  # B goes through the small cache for each strip of rows
    dram = dict(predict_stage(gpu_matmul(4096, 4096, 4096).stages[0], TURING).traffic_bytes)["dram"]
    waves = 4096 / (72 * 4)  # 288 blocks of 4096 at a time
    assert dram > 5 * waves * 64 * 4096 * 4  # a wave is narrower than the matrix: panels come again


def other_stages_by_hand():
    clocks = lambda stage, device: {x.name: x.clocks for x in predict_stage(stage, device).limiters}
    chained = row_sum(64, 4096).stages[0]
    assert clocks(chained, AVX512)["latency"] < 0.6 * 64 * 256 * 4  # two chains
    spilling = cpu_matmul(1000, 1000, 1000, pack=False, kc=128).stages[0]
    tall = tuple(replace(x, extent=20) if (x.axis, x.kind) == ("i", "unroll") else x for x in spilling.loops)
    assert predict_stage(replace(spilling, loops=tall), AVX512).spilled == 40 + 2 + 2 - 32 + 1
    rows = clocks(softmax(4096, 1024).stages[0], AVX512)
    assert rows["multiply-adds"] > 4096 * 64 * (1 + 12 + 1 + 8) / 2  # exp and division take more than one slot
    odd = cpu_stage(2, 4, 64, 1, 1, base=cpu_matmul(500, 1021, 300, pack=False).stages[0], n=1021)
    crossing = 4 * 64 * (1 + 60 / 64) / 128  # 15 of 16 vectors touch two lines
    assert clocks(odd, AVX512)["load ports"] == pytest.approx(250 * 16 * 300 * (crossing + 2 * 4 / 128))
    assert clocks(transpose(2048, 2048).stages[0], TURING)["shared path"] < 64 * 64 / 72 * 8 * 4 * 4 * 2 * 1.2


def batches_agree():
    stages = [GPU, replace(GPU, loops=tuple(replace(x, stride=x.stride) for x in GPU.loops))]
    extents = [np.array([s.loops[p].extent for s in stages]) for p in range(len(GPU.loops))]
    strides = [np.array([s.loops[p].stride for s in stages]) for p in range(len(GPU.loops))]
    loops = tuple(replace(x, extent=e, stride=s) for x, e, s in zip(GPU.loops, extents, strides, strict=True))
    together, alone = predict_stage(replace(GPU, loops=loops), TURING), predict_stage(GPU, TURING)
    np.testing.assert_allclose(together.seconds, alone.seconds)


AGREEMENTS = (
    known_wavefronts,
    counted_traffic,
    forms_where_tiles_fit,
    figures_by_hand,
    memory_by_hand,
    other_stages_by_hand,
    batches_agree,
)


def forget():
    """Nothing that was computed before a fault was seeded, or with it, may be remembered."""
    model_wavefronts._banked.cache_clear()
    model_facts.facts_of.cache_clear()
    model_lane_rows.known_of.cache_clear()
    model_together.price_cache.clear()


def disagreements():
    forget()
    found = []
    for agreement in AGREEMENTS:
        try:
            agreement()
        except (AssertionError, ValueError, KeyError, IndexError):
            found.append(agreement.__name__)
    return found


held = axis_tiles.AxisTiles.held
histogram = segments._progression_histogram
waves = model_nest.waves_of
slots = model_arithmetic.slot_clocks
shape = model_tiles.tile_shape
place = model_services._place

MUTATIONS = {
    "all words of a bank are one": (model_wavefronts, "_most_words_in_a_bank", lambda words, banks: 1),
    "all banks are one": (model_wavefronts, "_most_words_in_a_bank", lambda words, banks: len(words)),
    "lane pairs always merge": (model_wavefronts, "_lane_pairs_share", lambda addresses: True),
    "lane pairs never merge": (model_wavefronts, "_lane_pairs_share", lambda addresses: False),
    "the last element of a tile is forgotten": (axis_tiles.AxisTiles, "held", lambda self: np.maximum(held(self) - 1, 0)),
    "a tile reaches one element beyond its axis": (
        axis_tiles.AxisTiles, "held", lambda self: np.minimum(held(self) + 1, len(self.offsets))
    ),
    "neighbouring rows never share a transaction": (
        segments, "_progression_starts", lambda level, t: np.zeros(t, dtype=np.int64)
    ),
    "one row too many shares a transaction": (
        segments, "_progression_starts", lambda level, t: histogram(level.count, level.step, t)
    ),
    "the rest of a period is dropped": (
        segments, "_progression_histogram", lambda n, step, t: histogram(n - n % t if n > t else n, step, t)
    ),
    "a staged operand is counted by the block": (exact_traffic, "_copy_depth", lambda stage, load: 0),
    "guards are ignored": (affine_traffic, "_bounds", lambda access, d: (-(2**62), 2**62)),
    "start addresses are ignored": (
        affine_traffic, "convolve_residues", lambda h, t: np.eye(t, dtype=np.int64)[0] * prod(int(x.sum()) for x in h)
    ),
    "divisions cancel though they do not": (guarded_access, "recompose", lambda index: index.axis("k")),
    "the store counts once for each step": (
        closed_forms, "_steps", lambda op, tile, axes, f=closed_forms._steps: f(op, tile, {a.name for a in op.axes})
    ),
    "waves are not whole": (
        model, "waves_of",
        lambda nest, device, resident: replace(waves(nest, device, resident), per_unit=nest.blocks / device.units),
    ),
    "one block at a time": (model, "resident_blocks", lambda *a: (True, 1)),
    "a warp is one thread": (model_arithmetic, "slot_clocks", lambda nest, *of: slots(nest, *of) / nest.lockstep),
    "vectors have one lane": (model_arithmetic, "slot_clocks", lambda nest, *of: slots(nest, *of) * nest.lanes),
    "registers never run out": (model_occupancy, "register_cap", lambda nest, device: 10**6),
    "separate chains are one": (model_work, "_chain", lambda nest, steps: steps),
    "everything survives in a cache": (model_reuse, "survival", lambda fill, costs: fill * 0 + 1.0),
    "nothing survives in a cache": (model_reuse, "survival", lambda fill, costs: fill * 0.0),
    "stores do not read their lines": (
        model_bandwidth, "_directions",
        lambda nest, costs, streams, last: (sum(lines for _, lines in streams[:-1]), streams[-1][1]),
    ),
    "writing is free": (
        model_bandwidth, "_directions", lambda nest, costs, streams, last: (sum(lines for _, lines in streams), 0)
    ),
    "vectors never cross a line": (model_access, "line_split", lambda nest, layer, operand, width, begins: 1),
    "a staged tile has no padding": (
        model_services, "_place", lambda places, extents, copy, vector, padding: place(places, extents, copy, vector, 0)
    ),
    "a register tile is the block's": (
        model_access, "tile_shape", lambda nest, copy, *, block: shape(nest, copy, block=True)
    ),
    "latency is paid once": (model, "latency_clocks", lambda *a: 0),
    "every exp is one slot": (model_moved, "_phase_slots", lambda phase, costs: sum(n for _, n in phase.operations)),
    "the last lane of a vector is alone": (model_access, "lanes_apart", lambda nest, operand, lane: 0),
}


def test_without_a_fault_everything_agrees():
    assert disagreements() == []


@pytest.mark.parametrize("fault", MUTATIONS)
def test_a_fault_is_noticed(fault, monkeypatch):
    where, name, mutant = MUTATIONS[fault]
    assert hasattr(where, name)
    monkeypatch.setattr(where, name, mutant)
    try:
        assert disagreements(), f"nobody notices that {fault}"
    finally:
        monkeypatch.undo()
        forget()


