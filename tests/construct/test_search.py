"""Strategies of construction side by side: all aligned tiles, grown ones, and a ranking of the user's own."""

import math

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.grow import grown_threads
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import grid
from rollergen.construct.serial_structures import structures
from rollergen.construct.thread_space import staged_loads
from rollergen.construct.variants import variants
from rollergen.errors import ArgumentError, ConstructionError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.space.contraction import thread_tiles
from rollergen.space.rules import aligned_points, aligned_tiles
from rollergen.tile.rules import AlignmentRules
from tests.program.hand_devices import AVX512

RULES = AlignmentRules()
t = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(t("A", (500, 300)), t("B", (300, 700))),
    "few rows": lambda: rg.ops.matmul(t("A", (3, 1200)), t("B", (1200, 320))),
    "convolution": lambda: rg.ops.conv2d(t("X", (2, 24, 28, 28)), t("W", (40, 24, 3, 3)), padding=1),
    "depthwise": lambda: rg.ops.depthwise_conv2d(t("X", (4, 48, 30, 30)), t("W", (48, 1, 3, 3)), padding=1),
}
DEVICES = ("v100", "mi50", "mali-g71", "cortex-a53")


def first(name, device, **options):
    return construct(canonicalize(EXPRESSIONS[name]()), load_device(device), rg.BuildOptions(**options), 10)[0]


def rows_of(points):
    return set(map(tuple, points.columns.T.tolist()))


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_no_grown_program_is_ahead_of_the_first_choice(name, device):
    grown, best = first(name, device, search="grow"), first(name, device)
    check(grown.program, load_device(device))
    assert best.seconds <= 1.005 * grown.seconds


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_grown_tiles_are_few_and_among_all_aligned_ones(name):
    device = load_device("v100")
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    variant = next(variants(op, device))
    space = thread_tiles(variant.op, variant.roles, device, RULES, 1, staged_loads(variant.op, variant.roles))
    points = grown_threads(space, variant, 1)
    every, grown = aligned_tiles(space, Ledger(), points), aligned_points(space, points, Ledger())
    assert 0 < len(grown) < len(every) / 4
    within = aligned_points(space, every, Ledger())
    assert rows_of(within) == rows_of(every) and rows_of(grown) & rows_of(every)


def test_of_a_cpus_structures_growth_leaves_tiles_in_some():
    device = load_device("cortex-a53")
    (op,) = canonicalize(EXPRESSIONS["matmul"]()).tensor_ops
    variant = next(variants(op, device))
    grown = [rows_of(grid(one, device, RULES, Ledger(), "grow")) for one in structures(variant, device, RULES)]
    every = [rows_of(grid(one, device, RULES, Ledger())) for one in structures(variant, device, RULES)]
    assert any(grown) and all(few <= many for few, many in zip(grown, every, strict=True))


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 7])
def test_tiles_grow_where_columns_are_fewer_than_a_vector(columns):
    """Such have narrower vectors; growth began with whole ones, and left no tile."""
    product = rg.ops.matmul(t("A", (5, 33)), t("B", (33, columns)))
    (grown,) = construct(canonicalize(product), AVX512, rg.BuildOptions(search="grow"), 1)
    check(grown.program, AVX512)


def test_both_strategies_keep_a_ledger():
    device = load_device("v100")
    (op,) = canonicalize(EXPRESSIONS["matmul"]()).tensor_ops
    few, many = (choice(op, device, RULES, 10, None, search).account for search in ("grow", "all"))
    assert 0 < few.considered < many.considered


def seconds_within(name, device, epsilon):
    """Infinite where there is no program."""
    try:
        return first(name, device, epsilon=epsilon).seconds
    except ConstructionError:
        return math.inf


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.every(13)
def test_a_larger_permission_to_pad_never_gives_a_slower_program(name, device):
    seconds = [seconds_within(name, device, epsilon) for epsilon in (0.0, 0.05, 0.2, 0.5, 1.0, None)]
    assert seconds == sorted(seconds, reverse=True) and math.isfinite(seconds[-1])


def test_a_ranking_of_ones_own_decides_the_order():
    graph, device = canonicalize(EXPRESSIONS["matmul"]()), load_device("v100")
    asked = []

    def fewest_threads(programs):
        asked.append(len(programs))
        return [program.stages[0].threads for program in programs]

    found = construct(graph, device, rg.BuildOptions(rank=fewest_threads), 4)
    threads = [one.program.stages[0].threads for one in found]
    assert asked == [16] and len(found) == 4 and threads == sorted(threads)
    kernel = rg.build(EXPRESSIONS["matmul"](), "v100", profile=False, options=rg.BuildOptions(rank=fewest_threads))
    assert kernel.program == found[0].program


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (lambda programs: None, r"rank gives None for 1\d programs; expected a number for each"),
        (lambda programs: [1.0], r"rank gives \[1.0\] for 1\d programs; expected a number for each"),
        (lambda programs: ["fast"] * len(programs), "expected a number for each, the lowest for the best"),
        (lambda programs: [float("nan")] * len(programs), "expected numbers that can be compared, no NaN"),
        (lambda programs: dict.fromkeys(range(len(programs)), 1.0), "expected a number for each, the lowest for the"),
        (lambda programs: [np.complex64(1)] * len(programs), "expected a number for each, the lowest for the best"),
        (lambda programs: set(range(len(programs))), "expected a number for each, the lowest for the best"),
    ],
)
def test_a_ranking_that_gives_no_numbers_is_refused(rank, message):
    with pytest.raises(ArgumentError, match=message):
        construct(canonicalize(EXPRESSIONS["matmul"]()), load_device("v100"), rg.BuildOptions(rank=rank), 4)


def test_a_ranking_may_give_integers_beyond_floats():
    graph, device = canonicalize(EXPRESSIONS["matmul"]()), load_device("v100")
    ranked = lambda rank: [one.program for one in construct(graph, device, rg.BuildOptions(rank=rank), 4)]
    assert ranked(lambda programs: [10**400 + n for n in range(len(programs))]) == ranked(lambda ps: range(len(ps)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"search": np.array(["all", "grow"])}, "search is .*; expected 'all' or 'grow'"),
        ({"caches": np.array(["warm", "cold"])}, "caches is .*; expected \"warm\" or \"cold\""),
        ({"winograd": np.array([2, 4])}, "winograd is .*; expected 0, 2 or 4"),
        ({"winograd": 4.0}, r"winograd is 4\.0; expected 0, 2 or 4"),
    ],
)
def test_options_that_only_compare_equal_are_refused(given, message):
    with pytest.raises(ArgumentError, match=message):
        rg.BuildOptions(**given)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"epsilon": 0.1}, r"BuildOptions\(epsilon=0\.1\)"),
        ({"winograd": 4}, r"BuildOptions\(winograd=4\)"),
        ({"tf32": True}, r"BuildOptions\(allow_tf32=True\)"),
        ({"float8": True}, r"BuildOptions\(allow_fast_accumulation=True\)"),
        ({"shapes": rg.CodeShapes(online=False)}, r"BuildOptions\(shapes=CodeShapes\("),
    ],
)
def test_options_within_the_alignment_rules_are_refused_rather_than_ignored(given, own):
    with pytest.raises(ArgumentError, match="alignment has .*; expected " + own):
        rg.BuildOptions(alignment=rg.AlignmentRules(**given))


def test_options_of_the_search_are_refused_by_name():
    with pytest.raises(ArgumentError, match="search is 'genetic'; expected 'all' or 'grow'"):
        rg.BuildOptions(search="genetic")
    with pytest.raises(ArgumentError, match="rank is 3; expected None or a function of programs"):
        rg.BuildOptions(rank=3)


def test_a_ranking_of_ones_own_and_a_verifier_exclude_each_other():
    with pytest.raises(ArgumentError, match=r"options\.rank and verifier are both given; expected one"):
        options = rg.BuildOptions(rank=lambda programs: range(len(programs)))
        rg.build(EXPRESSIONS["matmul"](), "v100", profile=False, options=options, verifier="auto")
