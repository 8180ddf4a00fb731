"""The model of bulk-synchronous programs gives what was worked out by hand, tile by tile."""

from dataclasses import replace

import numpy as np
import pytest

from rollergen.bsp.model import bulk_facts
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.model import predict
from tests.bulk.vectors import VECTORS, program_of


@pytest.mark.parametrize("name", VECTORS)
def test_memory_bytes_and_clocks_of_the_vectors_are_met_exactly(name):
    vector, device = VECTORS[name], load_device("ipu")
    program = program_of(vector)
    check(program, device)
    facts = bulk_facts(program, device)
    products, sums = facts.steps
    assert tuple(size for _, size in facts.copies[0]) == vector.copies
    parts, *_ = (b.name for b in program.temporaries)
    assert facts.owned[parts].max() == vector.partial
    assert tuple(facts.owned[b.name].max() for b in (*program.inputs, *program.outputs)) == vector.owned
    assert facts.peak == vector.peak
    assert products.received.max() == vector.received
    assert (products.exchange, products.local, products.compute) == vector.clocks
    assert (sums.exchange, sums.compute) == vector.reduce
    assert facts.clocks == vector.total
    assert float(predict(program, device).seconds) == pytest.approx(vector.total / 1.6e9, rel=1e-12)


@pytest.mark.parametrize("name", VECTORS)
def test_every_byte_of_the_operands_has_one_owner(name):
    program = program_of(VECTORS[name])
    facts = bulk_facts(program, load_device("ipu"))
    for buffer in program.inputs:
        assert facts.owned[buffer.name].sum() == buffer.elements * (2 if buffer.dtype == "float16" else 4)


def test_a_program_that_a_tile_cannot_hold_is_infinitely_slow():
    device = load_device("ipu")
    program = program_of(VECTORS["matmul of float32"])
    peak = bulk_facts(program, device).peak
    of = lambda size: replace(
        device, layers=(device.layers[0], replace(device.layers[1], capacity_bytes=size), *device.layers[2:])
    )
    assert np.isfinite(predict(program, of(peak)).seconds)
    small = of(peak - 8)
    assert np.isinf(predict(program, small).seconds) and bulk_facts(program, small).shortfall == 8


@pytest.mark.parametrize("cost", ["amp_call_clocks", "amp_block_clocks", "exchange_clocks", "home_copy_clocks",
                                  "partial_input_clocks"])  # fmt: skip
def test_every_constant_moves_the_clocks(cost):
    device = load_device("ipu")
    program = program_of(VECTORS["matmul of float32"])
    costs = dict(device.costs)
    dearer = replace(device, costs=tuple({**costs, cost: 2 * costs[cost]}.items()))
    assert bulk_facts(program, dearer).clocks > bulk_facts(program, device).clocks


def test_a_program_for_more_tiles_than_there_are_is_infinitely_slow():
    device = load_device("ipu")
    program = program_of(VECTORS["matmul of float32"])
    tiles = max(stage.blocks for stage in program.stages)
    seconds = lambda units: float(predict(program, replace(device, units=units)).seconds)
    assert seconds(tiles) == seconds(device.units) and np.isinf(seconds(tiles - 1))


def test_the_chips_bandwidth_alone_is_the_tiles_rate_together():
    device = load_device("ipu")
    program = program_of(VECTORS["matmul of float32"])
    last = device.layers[-1]
    whole = last.bytes_per_clock * device.clock_mhz * device.units / 1e3
    without = replace(last, bytes_per_clock=0.0, write_bytes_per_clock=0.0, bandwidth_gb_s=whole)
    alone = replace(device, layers=(*device.layers[:-1], without))
    assert float(predict(program, alone).seconds) == pytest.approx(float(predict(program, device).seconds), rel=1e-9)
    slower = replace(alone, layers=(*device.layers[:-1], replace(without, bandwidth_gb_s=whole / 2)))
    assert predict(program, slower).seconds > predict(program, alone).seconds
