"""Features of programs: a batch's rows are each program's own, and figures agree with walking the loops."""

import json
import lzma
from itertools import product
from math import log2, prod
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.features import VERSION, features, matrix, names, vector
from rollergen.features.batch import batch_of
from rollergen.features.relations import THRESHOLDS
from rollergen.program.model import predict
from rollergen.program.serial import from_json

X = rg.tensor("X", (1, 4, 10, 10))
EXPRS = {
    "matmul": rg.ops.matmul(rg.tensor("A", (12, 20)), rg.tensor("B", (20, 40))),
    "convolution": rg.ops.conv2d(X, rg.tensor("W", (8, 4, 3, 3))),
    "sum": rg.ops.sum(rg.tensor("S", (6, 50)), axis=1),
    "transpose": rg.ops.t(rg.tensor("T", (9, 13))),
    "softmax": rg.ops.softmax(rg.tensor("R", (6, 21))),
}


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_a_row_of_a_mixed_batch_is_what_the_program_has_alone(device):
    target = rg.load_device(device)
    programs = [p for expr in EXPRS.values() for p in rg.construct(expr, target, 5)]
    together = matrix(programs, target)
    assert together.shape == (len(programs), len(names()))
    assert np.array_equal(together, np.array([vector(p, target) for p in programs]))
    assert np.array_equal(together[::-1], matrix(programs[::-1], target))


def test_no_programs_have_no_rows():
    assert matrix([], rg.load_device("cpu")).shape == (0, len(names()))


def value(index, point):
    return index.const + sum(point[atom] * weight for atom, weight in index.terms)


def walked(load, stage, loops):
    """The distinct elements that some loops mean, the others at their first iteration."""
    seen = set()
    for at in product(*(range(loop.extent) for loop in loops)):
        point = {axis.name: 0 for axis in stage.op.axes}
        for loop, step in zip(loops, at, strict=True):
            point[loop.axis] += step * loop.stride
        seen.add(tuple(value(index, point) for index in load.indices))
    return seen


@pytest.mark.parametrize("name", ["matmul", "convolution", "sum", "transpose"])
def test_regions_are_those_that_walking_the_loops_finds(name):
    target = rg.load_device("cortex-a53")
    programs = rg.construct(EXPRS[name], target, 10)
    batch = batch_of(programs, target, [predict(p, target) for p in programs])
    compared = 0
    for row, (stage, table) in enumerate(zip(batch.stages, batch.tables, strict=True)):
        loops = [loop for loop in stage.loops if loop.extent > 1]
        first = len(batch.extent) - len(loops)
        assert batch.extent[first:, row].tolist() == [loop.extent for loop in loops]
        for operand, load in enumerate(stage.op.loads()[number] for number in table.loads if number >= 0):
            if any(weight != 1 or not isinstance(axis, str) for index in load.indices for axis, weight in index.terms):
                continue
            for at in range(len(loops)):
                if prod(loop.extent for loop in loops[at:]) > 20000:
                    continue
                seen = walked(load, stage, loops[at:])
                within = all(e < extent for one in seen for e, extent in zip(one, load.buffer.shape, strict=True))
                if within:
                    assert batch.unique[operand, first + at, row] == len(seen)
                compared += within
    assert compared >= 8


def test_relations_and_reuse_of_a_matmul_by_hand():
    target = rg.load_device("cpu")
    expr = rg.ops.matmul(rg.tensor("A", (64, 64)), rg.tensor("B", (64, 64)))
    for program in rg.construct(expr, target, 8):
        batch = batch_of([program], target, [predict(program, target)])
        stage, table = batch.stages[0], batch.tables[0]
        load = stage.op.loads()[table.loads[0]]
        loops = [loop for loop in stage.loops if loop.extent > 1]
        found = features(program, target)
        pairs = []
        for at in range(len(loops)):
            own = [loop.axis in load.axes() for loop in loops[at:]]
            extents = [loop.extent for loop in loops[at:]]
            count = prod(e for e, mine in zip(extents, own, strict=True) if mine)
            pairs.append((count, prod(extents) // count, prod(loop.extent for loop in loops[: at + 1])))
        for threshold in THRESHOLDS:
            below = [pair for pair in pairs if pair[0] <= threshold]
            for what, place in (("reuse", 1), ("topdown", 2)):
                expected = log2(1 + max((pair[place] for pair in below), default=0))
                assert found[f"F.in0 {what} of count {threshold}"] == pytest.approx(expected)
        inner = 0
        while loops[-1 - inner].axis in load.axes():
            inner += 1
        uses = 1
        for loop in reversed(loops[: len(loops) - inner]):
            if loop.axis in load.axes():
                break
            uses *= loop.extent
        assert found["E.in0 reuse count"] == pytest.approx(log2(1 + uses))
        distance = prod(loop.extent for loop in loops[len(loops) - inner :])
        assert found["E.in0 reuse distance"] == pytest.approx(log2(1 + distance))


def test_limiters_sum_over_the_stages_of_a_call():
    target = rg.load_device("cpu")
    for program in rg.construct(EXPRS["matmul"], target, 4):
        said = predict(program, target)
        own = [x for stage in said.stages if not stage.once for x in stage.limiters if x.name == "multiply-adds"]
        found = features(program, target, said)
        total = sum(float(x.seconds) for x in own)
        assert found["H.multiply-adds"] == pytest.approx(log2(1 + 1e9 * total))
        assert found["H.multiply-adds share"] == pytest.approx(total / float(said.seconds))


KEPT = Path(__file__).parent / "features_of_version_3.json.xz"
"""Programs with their features, but for what follows from predictions or from figures of the device."""
_OF_PREDICTIONS = {"C.waves", "C.tail", "G.registers wanted", "G.registers spilled", "G.occupancy"}


def _is_kept(name):
    return name[0] in "ACEFG" and name not in _OF_PREDICTIONS


def test_features_are_what_models_of_their_version_were_trained_on():
    """Whoever changes what a feature means counts the version, and keeps programs anew."""
    kept = json.loads(lzma.decompress(KEPT.read_bytes()))
    columns = [n for n, name in enumerate(names()) if _is_kept(name)]
    assert kept["version"] == VERSION and kept["names"] == [names()[n] for n in columns]
    for device, lines in kept["programs"].items():
        found = matrix([from_json(one["program"]) for one in lines], rg.load_device(device))
        expected = np.array([one["features"] for one in lines])
        np.testing.assert_allclose(found[:, columns], expected, rtol=1e-12, atol=0)
