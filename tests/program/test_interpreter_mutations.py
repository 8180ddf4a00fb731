"""Mistakes seeded into the interpreter, one at a time: each must show in some program's result or traffic."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from rollergen.errors import ProgramError
from rollergen.expr.values import named_combiner
from rollergen.program import blocks, traffic
from rollergen.program.interpreter import copies as interpret_copies
from rollergen.program.interpreter import execute as interpreter
from rollergen.program.interpreter import levels as interpret_levels
from rollergen.program.interpreter import loads as interpret_loads
from rollergen.program.interpreter import plan as interpret_plan
from rollergen.program.interpreter import points as interpret_points
from rollergen.program.interpreter import reduce as interpret_reduce
from rollergen.program.interpreter.execute import execute
from rollergen.program.rprogram import SERIAL, Accumulator, Compute, Copy, Loop, RProgram, Stage
from rollergen.tile.exact_traffic import traffic as closed_form
from tests.program.hand_devices import AVX512, TURING
from tests.program.test_interpreter import argmax_program
from tests.programs import ALL, F32, gpu_matmul, matmul_op, row_sum
from tests.tensor_ops import evaluate_program, small_integers


def panels(m=20, n=16, k=12):
    """Panels of 8 rows, of which the last two stop early; B is staged anew for each."""
    loops = (Loop("i", 8, 1, "thread"), Loop("j", 16, 1, "thread"), Loop("i", 4, 8, "serial"),
             Loop("k", 3, 4, "serial"), Loop("k", 4, 1, "unroll"))  # fmt: skip
    copies = (Copy(1, "dram", "shared", 4, ("k", "j"), "j"),)
    return _matmul(m, n, k, loops, Accumulator(3, F32), copies, (("i", "mask"),))


def registers(m=11, n=4, k=9):
    """Fragments straight from memory: B's once for each k and each of a thread's rows."""
    loops = (Loop("i", 4, 1, "thread"), Loop("i", 3, 4, "unroll"), Loop("k", 9, 1, "serial"), Loop("j", 4, 1, "unroll"))
    copies = (Copy(1, "dram", "registers", 3, ("j",), "j"),)
    return _matmul(m, n, k, loops, Accumulator(1, F32), copies, (("i", "mask"),))


def row_maximum():
    """Largest elements of rows with a tail, all below zero."""
    program = row_sum()
    stage = program.stages[0]
    reduction = replace(stage.op.reductions[0], combiner=named_combiner("max", F32))
    return replace(program, stages=(replace(stage, op=replace(stage.op, reductions=(reduction,))),))


def seven_threads():
    """Sums of rows by 7 threads each: a number without halves."""
    program = row_sum(shape="gpu")
    loops = (Loop("i", 10, 1, "grid"), Loop("k", 7, 1, "thread"), Loop("k", 15, 7, "serial"))
    return replace(program, stages=(replace(program.stages[0], loops=loops),))


def _matmul(m, n, k, loops, accumulator, copies, guards):
    op = matmul_op(m, n, k)
    stage = Stage("matmul", op, loops, Compute("fma"), accumulator, copies, guards=guards)
    inputs = tuple(load.buffer for load in op.loads())
    return RProgram("v100", inputs, (op.output,), (stage,))


PROGRAMS = {**ALL, "argmax": argmax_program(), "cpu_argmax": argmax_program("cpu"), "panels": panels(),
            "registers": registers(), "seven threads": seven_threads(),
            "row maximum": row_maximum(), "swizzled": gpu_matmul(300, 200, 8),
            "asynchronous": gpu_matmul(70, 68, 37, depth=3, asynchronous=True)}  # fmt: skip


NEGATIVE = ("row maximum",)
"""Programs whose inputs are all below zero, where a zero would be the largest."""


def device_of(program):
    return AVX512 if program.device == "cpu" else TURING


@lru_cache(maxsize=64)
def expected(name):
    """Inputs, outputs by the definition, traffic by the closed forms."""
    program = PROGRAMS[name]
    arrays = small_integers(program)
    if name in NEGATIVE:
        arrays = {tensor: -1 - np.abs(array) for tensor, array in arrays.items()}
    stages = [closed_form(stage, device_of(program).backing.transaction_bytes) for stage in program.stages]
    counts = [(one.tensor, one.tiles, one.transactions) for stage in stages for one in stage]
    return arrays, evaluate_program(program, arrays), counts


def agrees(name):
    """Whether the program runs, gives what its definition says and moves what the closed forms say."""
    program = PROGRAMS[name]
    arrays, outputs, counts = expected(name)
    try:
        result = execute(program, arrays, device_of(program))
    except (ProgramError, IndexError, ValueError, KeyError):
        return False
    if [(one.tensor, one.tiles, one.transactions) for one in result.traffic] != counts:
        return False
    return all(
        result.written[b.name].all() and np.allclose(result.outputs[b.name], outputs[b.name], rtol=1e-6, atol=0)
        for b in program.outputs
    )


def one_less(function):
    return lambda stage, box, position: max(1, function(stage, box, position) - (stage.loops[position].kind == SERIAL))


def first_only(function):
    return lambda combiner, parts, dimension: tuple(np.take(part, [0], axis=dimension) for part in parts)


def not_the_last(function):
    """A tree that forgets the odd one out."""

    def mutant(combiner, parts, dimension):
        count = parts[0].shape[dimension]
        kept = tuple(np.take(part, range(max(1, count - count % 2)), axis=dimension) for part in parts)
        return function(combiner, kept, dimension)

    return mutant


def reversed_digits(function):
    return lambda digits, number: function(digits[::-1], number)


def without_padding(function):
    def mutant(copy, shape, cell):
        row = 0
        for extent, position in zip(shape[:-1], cell[:-1], strict=True):
            row = row * extent + position
        return row * shape[-1] + interpret_copies.swizzled(copy, row, cell[-1])

    return mutant


def without_swizzle(function):
    def mutant(copy, shape, cell):
        row = 0
        for extent, position in zip(shape[:-1], cell[:-1], strict=True):
            row = row * extent + position
        return row * (shape[-1] + copy.padding) + cell[-1]

    return mutant


def short_of_a_group(function):
    return lambda *arguments: tuple(position[: -arguments[2]] for position in function(*arguments))


def overhang_by_one(function):
    return lambda value, extent: function(value, extent + 1)


def returning(value):
    return lambda function: lambda *arguments, **named: value


def wrong_identity(function):
    return lambda combiner, shape: tuple(part + 1 for part in function(combiner, shape))


def without_strides(function):
    def mutant(stage, variables, name):
        return sum((variables[p] for p, loop in enumerate(stage.loops) if loop.axis == name), 0)

    return mutant


def one_further(function):
    """Cells one further on, the last one first."""

    def mutant(copy, shape, cell):
        rows = int(np.prod(shape[:-1]))
        return (function(copy, shape, cell) + 1) % (rows * (shape[-1] + copy.padding))

    return mutant


def stored_one_further(function):
    def mutant(run, points):
        at, chosen = function(run, points)
        return (at + 1) % run.stage.op.output.elements, chosen

    return mutant


def zero_for_masked(function):
    def mutant(combiner, bodies, executed):
        return tuple(np.where(executed, body, body.dtype.type(0)) for body in bodies)

    return mutant


def exchanged_kept_rows(function):
    """Every kept row's name with another one's value."""

    def mutant(value, kept_rows):
        values = [r.value for r in kept_rows][::-1]
        return function(value, tuple(replace(r, value=v) for r, v in zip(kept_rows, values, strict=True)))

    return mutant


def without_outer_digit(function):
    return lambda stage, number: {**function(stage, number), 0: np.int64(0)}


def full_groups(function):
    """The last group as high as the others."""

    def mutant(number, rows, columns, width):
        group, rest = np.divmod(number, width * columns)
        return np.minimum(group * width + rest % width, rows - 1), rest // width

    return mutant


MUTATIONS = {
    "a serial loop stops one iteration early": (interpret_points, "trip_count", one_less),
    "a serial loop does not stop at the end of its axis": (interpret_points, "reached", lambda f: lambda *a: True),
    "a guard lets one point too many pass": (interpret_points, "within_extent", overhang_by_one),
    "guards are dropped": (interpret_points, "executed", lambda f: interpret_points.reached),
    "serial loops never stop and nothing is guarded": (interpret_points, "executed", returning(True)),
    "masked points contribute their values": (interpret_reduce, "masked", lambda f: lambda c, bodies, mask: bodies),
    "masked points contribute zero to a maximum": (interpret_reduce, "masked", zero_for_masked),
    "accumulators start from a wrong identity": (interpret_reduce, "identities", wrong_identity),
    "separate accumulators are dropped": (interpret_reduce, "in_order", first_only),
    "lanes are dropped": (interpret_reduce, "halved", first_only),
    "blocks start from a wrong identity": (interpret_reduce, "blocks", lambda f: lambda *a: [x + 1 for x in f(*a)]),
    "blocks of several leaves are never closed": (interpret_levels.Levels, "_close", returning(None)),
    "lanes are not combined": (interpret_reduce, "combined_lanes", returning(())),
    "threads' accumulators are dropped": (interpret_reduce, "combined_across_threads", returning(())),
    "the tree forgets an odd accumulator": (interpret_reduce, "halved", not_the_last),
    "partial results in the output are ignored": (interpreter, "waiting", returning(np.float32(0))),
    "every pass is the first": (interpreter, "is_first", returning(True)),
    "no pass is the first": (interpreter, "is_first", returning(False)),
    "every pass applies the result": (interpreter, "is_last", returning(True)),
    "no pass applies the result": (
        interpreter, "is_last", lambda f: lambda stage, *_: not stage.accumulator.carry),
    "results are stored one element further on": (interpreter, "store_points", stored_one_further),
    "tiles are filled one cell further on": (interpret_copies, "store_address", one_further),
    "tiles are read one cell further on": (interpret_copies, "fetch_address", one_further),
    "padding is ignored where a tile is read": (interpret_copies, "fetch_address", without_padding),
    "padding is ignored where a tile is filled": (interpret_copies, "store_address", without_padding),
    "swizzle is ignored where a tile is read": (interpret_copies, "fetch_address", without_swizzle),
    "swizzle is ignored where a tile is filled": (interpret_copies, "store_address", without_swizzle),
    "digits in the wrong order where a tile is filled": (interpret_copies, "decode", reversed_digits),
    "digits in the wrong order where a tile is read": (interpret_copies, "encode", reversed_digits),
    "the last group of a tile is not filled": (interpret_copies, "filling_order", short_of_a_group),
    "a ring's buffers are taken one ahead": (
        interpret_loads, "buffer_of", lambda f: lambda copy, tile: (tile + (tile > 1)) % copy.depth),
    "what is out of range is not replaced by the fill": (
        interpret_loads, "filled_in", lambda f: lambda load, values, there: values),
    "a load's own guard is dropped": (interpret_loads, "guarded", returning(True)),
    "a copy does not stop at the end of the axes": (
        interpret_loads, "fillable", lambda f: lambda layout, points: interpret_loads.guarded(layout.load, points)),
    "strides are dropped": (interpret_points, "axis_value", without_strides),
    "kept values are lost": (
        interpreter, "keep", lambda f: lambda run, tile, kept_row, leaf, x: f(run, tile, kept_row, leaf, x * 0)),
    "kept rows are taken for each other": (interpret_plan, "with_kept_rows", exchanged_kept_rows),
    "blocks take no notice of the outer grid loop": (interpreter, "grid_positions", without_outer_digit),
    "the last group of blocks is taken to be full": (blocks, "swizzled", full_groups),
    "transactions of a tile are counted more than once": (
        traffic, "distinct", lambda f: lambda numbers, limit: numbers),
    "elements are taken for bytes": (traffic, "ITEMSIZE", lambda sizes: dict.fromkeys(sizes, 1)),
    "blocks share their transactions": (
        traffic.TrafficCounter, "close_block", lambda f: lambda self, accesses: None),
    "fillings share their transactions": (interpret_copies, "filling_number", returning(0)),
    "fillings of loops that the load ignores are not counted": (interpret_copies, "reaching_fillings", returning(1)),
    "stopped iterations are counted as fillings": (
        interpret_copies, "executed_fillings", lambda f: lambda layout, box, axis: 1 + f(layout, box, axis)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_mistake_every_program_agrees(name):
    assert agrees(name)


@pytest.mark.parametrize("mistake", MUTATIONS)
def test_each_mistake_makes_some_program_disagree(mistake, monkeypatch):
    module, attribute, change = MUTATIONS[mistake]
    monkeypatch.setattr(module, attribute, change(getattr(module, attribute)))
    assert not all(agrees(name) for name in PROGRAMS), f"{attribute}: {mistake}: not noticed by any program"


def test_blocks_in_another_order_show_in_a_sample(monkeypatch):
    """All blocks together hide their order; two of six do not."""
    program = gpu_matmul(130, 100, 8)  # 3 x 2 blocks in groups of 2: blocks 0 and 1 are one column
    arrays, sample = small_integers(program), {"matmul": [0, 1]}
    first_column = np.zeros((130, 100), dtype=bool)
    first_column[:128, :64] = True
    assert np.array_equal(execute(program, arrays, TURING, sample).written["C"], first_column)
    original = blocks.swizzled
    monkeypatch.setattr(blocks, "swizzled", lambda number, rows, columns, width: original(number, rows, columns, 1))
    assert not np.array_equal(execute(program, arrays, TURING, sample).written["C"], first_column)
