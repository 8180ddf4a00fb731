"""Lines of a tensor that several outputs of a tile read: which programs share them, and how many reads are left."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import grid
from rollergen.construct.serial_structures import structures
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model import predict_stage
from rollergen.program.model.access import _met_share
from rollergen.program.windows import shares_lines
from rollergen.tile.rules import AlignmentRules
from tests.lower.devices import AVX512


@pytest.mark.parametrize("step, shift", [(1, 1), (2, 1), (1, 2), (3, 1), (48, 16), (16, 48), (35, 35), (70, 35), (5, 7), (1, 9)])
def test_what_shifted_points_meet_is_counted_as_it_is(step, shift):
    """Points and taps of a window: their distinct sums, one for each read that compilers leave."""
    for points in range(1, 9):
        for taps in range(1, 8):
            distinct = {p * step + t * shift for p in range(points) for t in range(taps)}
            exact = shift % step == 0 or step % shift == 0
            share = _met_share(points, step, taps, shift)
            assert share * points * taps == pytest.approx(len(distinct)) if exact else share == 1


def depthwise(stride=1):
    X, W = rg.tensor("X", (1, 8, 30, 40)), rg.tensor("W", (8, 1, 3, 3), constant=True)
    return canonicalize(rg.ops.conv2d(X, W, stride=stride, padding=1, groups=8, name="Y"))


def lines_structure(graph):
    (op,) = graph.tensor_ops
    (variant,) = (variant for variant in variants(op, AVX512) if variant.name == "direct, lines")
    (structure,) = structures(variant, AVX512, AlignmentRules())
    return structure


@pytest.mark.parametrize("stride", [1, 2])
def test_a_batch_of_such_tiles_costs_what_each_costs(stride):
    structure = lines_structure(depthwise(stride))
    points = grid(structure, AVX512, AlignmentRules(), Ledger())
    rows, step, pm, pn = (points[name] for name in ("rm", "kc", "pm", "pn"))
    plan = lambda rows, step, pm, pn: ContractionPlan(
        rm=rows, rn=structure.vectors, lanes=structure.lanes, pm=pm, pn=pn, kc=step, order=structure.order
    )
    price = lambda plan: predict_stage(structure.stage(plan, AVX512, AlignmentRules()), AVX512).seconds
    together = np.broadcast_to(price(plan(rows, step, pm, pn)), rows.shape)
    (lines,) = (axis.extent for axis in structure.op.axes if axis.name == structure.variant.roles.m)
    whole = [n for n in range(len(rows)) if lines % rows[n] == 0]  # a batch knows of no tiles that overhang
    apart = [price(plan(*(int(column[n]) for column in (rows, step, pm, pn)))) for n in whole]
    np.testing.assert_allclose(together[whole], apart, rtol=3e-3)  # and counts loops of one iteration
    assert len({int(rows[n]) for n in whole}) > 1


def test_lines_are_shared_where_outputs_and_taps_beside_the_lanes_are_unrolled():
    structure = lines_structure(depthwise())
    stage = structure.stage(ContractionPlan(rm=4, rn=structure.vectors, lanes=16, pm=2, pn=1, kc=3), AVX512, AlignmentRules())
    image, weights = (load.indices for load in stage.op.body_loads())
    assert shares_lines(stage, image) and not shares_lines(stage, weights)
    single = structure.stage(ContractionPlan(rm=1, rn=structure.vectors, lanes=16, pm=8, pn=1, kc=3), AVX512, AlignmentRules())
    assert not shares_lines(single, image)


def test_lines_of_every_other_element_stay_in_registers_until_their_last_tap():
    def registers(stride, rows):
        structure = lines_structure(depthwise(stride))
        plan = ContractionPlan(rm=rows, rn=structure.vectors, lanes=16, pm=1, pn=1, kc=3)
        return predict_stage(structure.stage(plan, AVX512, AlignmentRules()), AVX512).registers

    vectors = {1: 3, 2: 2}
    assert registers(1, 4) - registers(1, 3) == vectors[1]
    assert registers(2, 4) - registers(2, 3) == 2 * vectors[2]


def test_windows_without_reuse_along_other_axes_are_walked_in_lines_first():
    first = construct(depthwise(), AVX512, top_k=1)[0]
    assert first.variants == ("direct, lines",) and len(first.program.stages) == 1
