"""Bulk-synchronous programs executed across all tiles: results, bytes and memory, tile by tile."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.bsp.assemble import BulkPlan, bulk_stage, with_tile_mappings
from rollergen.bsp.interpreter import interpret_bulk
from rollergen.bsp.model import bulk_facts
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.reference import evaluate
from rollergen.expr.splitting import split_reduction
from rollergen.hal.load import load_device
from rollergen.program.rprogram import RProgram

T = rg.tensor


def whole_numbers(program, seed=0):
    random = np.random.default_rng(seed)
    return {b.name: random.integers(-2, 3, b.shape).astype(numpy_dtype(b.dtype)) for b in program.inputs}


def assert_agree(expression, program, device=None):
    """Values equal the definition's; memory and bytes equal the closed forms on every tile; fragments are at most
    theirs."""
    device = device or load_device("ipu")
    arrays = whole_numbers(program)
    facts, got = bulk_facts(program, device), interpret_bulk(program, arrays, device)
    (output,) = program.outputs
    want = evaluate(expression, *(arrays[b.name] for b in program.inputs))
    assert got.written[output.name].all()
    assert np.array_equal(got.outputs[output.name], want.astype(numpy_dtype(output.dtype)))
    assert len(got.steps) == len(facts.steps)
    for counted, form in zip(got.steps, facts.steps, strict=True):
        tiles = len(form.received)
        assert counted.stage == form.stage
        assert np.array_equal(counted.received[:tiles], form.received) and not counted.received[tiles:].any()
        assert np.array_equal(counted.sent[:tiles], form.sent[:tiles])
        assert np.all(counted.fragments[:tiles] <= form.fragments[:tiles])
    for name, size in got.owned.items():
        assert np.array_equal(size, facts.owned[name]), name
    assert np.array_equal(got.live, facts.live)
    assert got.peak <= facts.capacity
    return got


@lru_cache(maxsize=32)
def matmul(m, n, k, blocks, parts, dtype="float32", chunk=0):
    """(expression, program) of a product in blocks of (rows, columns), k in so many parts and chunks."""
    device = load_device("ipu")
    expression = rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype), name="C")
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    instruction = device.instruction("amp_f16" if dtype == "float16" else "amp_f32")
    grid = tuple(zip("ij", blocks, strict=True))
    plan = BulkPlan(grid, (0, 1), instruction, 1, "j", "k", chunk)
    if parts == 1:
        stages, temporaries = (bulk_stage(op, plan, device, "products"),), ()
    else:
        first, second = split_reduction(op, "k", parts)
        plan = replace(plan, blocks=(*grid, ("k_part", 1)))
        sums = bulk_stage(second, BulkPlan(shares=first.output.name), device, "sums")
        stages, temporaries = (bulk_stage(first, plan, device, "products"), sums), (first.output,)
    return expression, with_tile_mappings(RProgram("ipu", graph.inputs, graph.outputs, stages, temporaries))


MATMULS = {
    "whole blocks": (64, 64, 64, (16, 16), 1),
    "edges on all axes": (61, 45, 37, (7, 9), 1),
    "columns that fill no block of the instruction": (33, 20, 24, (8, 10), 1),
    "parts, whole": (64, 48, 96, (16, 24), 4),
    "parts, edges": (53, 45, 36, (9, 12), 3),
    "more parts than elements of a share": (3, 5, 64, (2, 3), 16),
    "steps": (40, 24, 100, (9, 8), 1, "float32", 24),
    "float16": (61, 45, 37, (7, 9), 1, "float16"),
    "float16, parts": (53, 45, 36, (9, 12), 3, "float16"),
    "float16, steps": (40, 24, 100, (9, 8), 1, "float16", 32),
}


@pytest.mark.parametrize("name", MATMULS)
def test_products_agree_on_every_tile(name):
    assert_agree(*matmul(*MATMULS[name]))


def window(image, weight, blocks, **arguments):
    device = load_device("ipu")
    expression = rg.ops.conv2d(T("X", image), T("W", weight), **arguments)
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    plan = BulkPlan(blocks, (0, 1), device.instruction("amp_f32"), 1, "f", "c")
    return expression, with_tile_mappings(
        RProgram("ipu", graph.inputs, graph.outputs, (bulk_stage(op, plan, device, "windows"),))
    )


WINDOWS = {
    "halos in both directions": ((2, 9, 13, 15), (11, 9, 3, 3), (("n", 1), ("oy", 4), ("ox", 6), ("f", 8)), {"padding": 1}),
    "stride 2 with taps": ((1, 8, 15, 14), (8, 8, 3, 3), (("oy", 3), ("ox", 4)), {"stride": 2, "padding": 1}),
    "stride 3 reads some elements only": ((1, 5, 17, 16), (8, 5, 1, 1), (("oy", 2), ("f", 8)), {"stride": 3}),
    "dilation": ((1, 4, 12, 12), (9, 4, 3, 3), (("oy", 2), ("f", 8)), {"dilation": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_agree_on_every_tile(name):
    image, weight, blocks, arguments = WINDOWS[name]
    assert_agree(*window(image, weight, blocks, **arguments))


def test_runs_are_equal_to_the_bit():
    _, program = matmul(*MATMULS["parts, edges"])
    random = np.random.default_rng(3)
    arrays = {b.name: random.standard_normal(b.shape).astype(np.float32) for b in program.inputs}
    one, two = (interpret_bulk(program, arrays, load_device("ipu")).outputs["C"] for _ in range(2))
    assert np.array_equal(one.view(np.int32), two.view(np.int32))


# What must fail -----------------------------------------------------------------------------------


def changed(program, number=0, **fields):
    stages = list(program.stages)
    stages[number] = replace(stages[number], superstep=replace(stages[number].superstep, **fields))
    return replace(program, stages=tuple(stages))


def run(program, device=None):
    return interpret_bulk(program, whole_numbers(program), device or load_device("ipu"))


def test_an_exchange_that_is_dropped_is_seen():
    _, program = matmul(*MATMULS["whole blocks"])
    with pytest.raises(ProgramError, match="of another tile; expected the load among copied"):
        run(changed(program, copied=(0,)))


def test_a_tensor_without_owners_is_refused():
    _, program = matmul(*MATMULS["whole blocks"])
    with pytest.raises(ProgramError, match="A has no tile mapping"):
        run(replace(program, tile_mappings=program.tile_mappings[1:]))


def test_tiles_never_hold_more_than_their_memory():
    _, program = matmul(*MATMULS["parts, edges"])
    device = load_device("ipu")
    peak = bulk_facts(program, device).peak
    of = lambda size: replace(
        device, layers=(device.layers[0], replace(device.layers[1], capacity_bytes=size), *device.layers[2:])
    )
    assert run(program, of(peak)).peak == peak
    with pytest.raises(ProgramError, match=rf"holds {peak} bytes; expected at most {peak - 1}"):
        run(program, of(peak - 1))


def test_a_grid_of_more_blocks_than_tiles_is_refused():
    _, program = matmul(256, 256, 8, (4, 8), 1)
    with pytest.raises(ProgramError, match="2048 blocks; expected at most 1216"):
        run(program)


@pytest.mark.parametrize("mutation", ["short halo", "wrong sender", "address off by one"])
def test_a_wrong_transfer_is_seen(mutation, monkeypatch):
    from rollergen.bsp.interpreter import exchange, tile_tensors

    image, weight, blocks, arguments = WINDOWS["halos in both directions"]
    expression, program = window(image, weight, blocks, **arguments)
    if mutation == "short halo":
        held = exchange.held_intervals
        monkeypatch.setattr(exchange, "held_intervals", lambda *x: [(low, high - 1) for low, high in held(*x)])
    else:
        load = tile_tensors.TileTensor.read

        def read(tensor, addresses, where):
            shift = {"wrong sender": tensor.width, "address off by one": 1}[mutation]
            return load(tensor, np.minimum(addresses + shift, len(tensor.values) - 1), where)

        monkeypatch.setattr(tile_tensors.TileTensor, "read", read)
    with pytest.raises((ProgramError, AssertionError)):
        assert_agree(expression, program)
