"""The gate lets right results through and names what is wrong with the others."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Const, Load
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.gate.reference import Reference
from rollergen.targets import resolve
from tests import programs

M, N, K = 70, 100, 37
PROGRAM = programs.gpu_matmul(M, N, K)


def oracle(arrays, output, points):
    rows, columns = points
    a, b = arrays["A"].astype(np.float64), arrays["B"].astype(np.float64)
    return np.einsum("pk,kp->p", a[rows], b[:, columns])


def matmul(arrays):
    with np.errstate(invalid="ignore"):
        np.matmul(arrays["A"], arrays["B"], out=arrays["C"])


def verdict(damage):
    def run(arrays):
        matmul(arrays)
        damage(arrays)

    return Gate(PROGRAM, oracle).check(PROGRAM, run)


def beyond(array, offset):
    """The element `offset` past the end of an array (its guard zone)."""
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[-1:], (offset + 1,), (array.itemsize,))


def before(array, offset):
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[:1], (offset + 1,), (-array.itemsize,))


def test_a_right_result_passes_and_says_how_much_was_compared():
    result = verdict(lambda arrays: None)
    assert result.passed, result.problems
    sampled = 192 + 192 + 3 * 3  # edges, anywhere, corners
    assert result.compared >= 5 * sampled + 96 + 1024  # ordinary and hostile trials; equal values; at least one tile


def write(name, make, offset, value):
    def damage(arrays):
        make(arrays[name], offset)[offset] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (write("C", beyond, 1, 3.0), "C: 4 bytes written after the last element, the nearest 0 bytes away"),
        (write("C", before, 64, 3.0), "C: 4 bytes written before the first element, the nearest 252 bytes away"),
        (write("A", beyond, 2, 0.0), "A: 4 bytes written after the last element, the nearest 4 bytes away"),
        (lambda arrays: arrays["B"].__setitem__((3, 4), 7.5), "input B was changed"),
    ],
)
def test_writing_outside_the_outputs_is_found(damage, text):
    assert any(text in problem for problem in verdict(damage).problems)


@pytest.mark.parametrize("at", [(0, 0), (69, 99), (63, 99), (64, 64), (0, 99), (69, 0), (69, 63)])
def test_a_wrong_element_at_an_edge_of_the_tiles_is_found(at):
    def damage(arrays):
        arrays["C"][at] += 1.0

    text = "; ".join(verdict(damage).problems)
    assert f"C[{at[0]}, {at[1]}]" in text and "expected" in text


def test_an_element_that_keeps_its_poison_is_reported_as_unwritten():
    def run(arrays):
        kept = arrays["C"][33, 44]
        matmul(arrays)
        arrays["C"][33, 44] = kept

    problems = Gate(PROGRAM, oracle).check(PROGRAM, run).problems
    assert "1 of 7000 elements of C were never written, such as C[33, 44]" in problems


def test_an_error_of_one_unit_in_the_last_place_fails_only_on_whole_numbers():
    def damage(arrays):
        arrays["C"][...] = np.nextafter(arrays["C"], np.float32(np.inf))

    problems = verdict(damage).problems
    assert problems and all(problem.startswith("whole-number inputs") for problem in problems)


def test_a_dropped_term_fails_on_random_inputs():
    def damage(arrays):
        arrays["C"] -= np.outer(arrays["A"][:, -1], arrays["B"][-1])

    assert any(problem.startswith("random inputs") for problem in verdict(damage).problems)


def test_an_element_no_sample_meets_is_found_by_disagreeing_with_an_accepted_result():
    gate = Gate(PROGRAM, oracle)
    assert gate.check(PROGRAM, matmul).passed
    missed = 0
    for at in [(20, 30), (21, 31), (22, 57), (41, 77)]:

        def run(arrays, at=at):
            matmul(arrays)
            arrays["C"][at] += 1.0

        text = "; ".join(gate.check(PROGRAM, run).problems)
        missed += f"C[{at[0]}, {at[1]}]" not in text
    assert missed == 0


def test_inputs_damaged_by_one_candidate_are_whole_again_for_the_next():
    gate = Gate(PROGRAM, oracle)

    def spoil(arrays):
        matmul(arrays)
        arrays["A"][...] = 0
        beyond(arrays["B"], 1)[1] = 0

    assert not gate.check(PROGRAM, spoil).passed
    assert gate.check(PROGRAM, matmul).passed


def test_the_same_seed_gives_the_same_inputs():
    first, second = Gate(PROGRAM, oracle, seed=3).inputs, Gate(PROGRAM, oracle, seed=3).inputs
    assert np.array_equal(first["A"], second["A"]) and np.array_equal(first["B"], second["B"])


@pytest.mark.parametrize("name", list(programs.ALL))
def test_every_point_compared_lies_inside_the_output_and_covers_its_ends(name):
    from rollergen.gate.points import sample_points

    program = programs.ALL[name]
    for buffer in program.outputs:
        points = sample_points(program, 0)[buffer.name]
        assert len(points) == len(buffer.shape)
        for axis, extent in zip(points, buffer.shape, strict=True):
            assert axis.min() == 0 and axis.max() == extent - 1


def saturated(skipped=False):
    """Whether the gate passes a kernel whose int8 results equal the poison of both trials."""
    x = Load(Buffer("X", (64,)), (Index.axis("i"),))
    limits = x
    for op, number in (("mul", 1e9), ("max", -128.0), ("min", 127.0)):
        limits = Binary(op, limits, Const(number, "float32"), "float32")
    output = Buffer("Y", (64,), "int8", "output")
    op = TensorOp(output, (Axis("i", 64),), (Index.axis("i"),), Cast(limits, "int8"))
    stage = replace(programs.relu(64).stages[0], op=op)
    program = replace(programs.relu(64), inputs=(x.buffer,), outputs=(output,), stages=(stage,))

    def wanted(arrays, output, points):
        return np.clip(arrays["X"].astype(np.float64)[points] * 1e9, -128, 127)

    def run(arrays):
        if not skipped:
            arrays["Y"][...] = np.clip(arrays["X"].astype(np.float64) * 1e9, -128, 127).astype(np.int8)

    return Gate(program, wanted).check(program, run)


def test_right_results_that_equal_the_poison_count_as_written():
    assert saturated().passed


def test_saturated_results_that_were_never_written_are_reported():
    assert any("never written" in text for text in saturated(skipped=True).problems)


def test_single_sums_that_could_cancel_are_not_refused_for_their_rounding():
    for seed in range(3, 9):
        a, b = rg.tensor("A", (seed, 4, 5)), rg.tensor("B", (4, 5, seed))
        kernel = rg.build(rg.einsum("ijk,jki->", a, b), "cpu", top_k=1)
        assert all(candidate.wall_s is not None for candidate in kernel.candidates)


def test_a_result_that_differs_between_runs_is_refused_even_within_the_tolerance():
    runs = []

    def run(arrays):
        matmul(arrays)
        runs.append(1)
        if len(runs) % 2 == 0:
            arrays["C"][5, 6] = np.nextafter(arrays["C"][5, 6], np.float32(np.inf))

    problems = Gate(PROGRAM, oracle).check(PROGRAM, run).problems
    assert any("two runs on the same inputs differ in 1 of 7000 elements of C, such as C[5, 6]" in p for p in problems)


def test_the_chosen_candidate_alone_is_held_to_giving_the_same_bits_twice():
    runs = []

    def run(arrays):
        matmul(arrays)
        runs.append(1)
        value = arrays["C"][5, 6]
        if len(runs) % 2 == 0 and value != np.floor(value):
            arrays["C"][5, 6] = np.nextafter(value, np.float32(np.inf))

    gate = Gate(PROGRAM, oracle)
    assert gate.check(PROGRAM, run, sparing=True).passed and len(runs) == 2
    problems = gate.confirm(PROGRAM, run).problems
    assert "two runs on the same inputs differ in 1 of 7000 elements of C, such as C[5, 6]" in problems
    assert gate.confirm(PROGRAM, matmul).passed


def test_a_result_that_depends_on_what_lay_in_the_output_before_is_refused():
    def run(arrays):
        was = arrays["C"][5, 6].copy()
        matmul(arrays)
        if np.signbit(was):
            arrays["C"][5, 6] = np.nextafter(arrays["C"][5, 6], np.float32(np.inf))

    problems = Gate(PROGRAM, oracle).check(PROGRAM, run).problems
    assert any("two runs on the same inputs differ" in p for p in problems)


INTERIOR = (20, 30)


def wrong_inside(arrays):
    matmul(arrays)
    arrays["C"][INTERIOR] += 1.0


def unseen(monkeypatch):
    """Gates whose samples and tiles miss `INTERIOR`."""
    monkeypatch.setattr(Reference, "examine", lambda self, seconds, *, sample: "")
    return Gate(PROGRAM, oracle)


def test_a_candidate_that_a_later_right_one_disagrees_with_is_revoked(monkeypatch):
    gate = unseen(monkeypatch)
    assert gate.check(PROGRAM, wrong_inside, number=4).passed
    assert gate.check(PROGRAM, matmul, number=5).passed
    (number, text), *others = gate.revoked().items()
    assert number == 4 and not others
    assert "C[20, 30]" in text and text.endswith("a later candidate is right there")
    assert not gate.check(PROGRAM, wrong_inside, number=6).passed


def test_a_candidate_that_stays_alone_is_compared_with_the_oracle_on_whole_tiles():
    gate = Gate(PROGRAM, oracle)
    assert not gate.check(PROGRAM, wrong_inside).passed  # few elements: all of them
    assert gate.check(PROGRAM, matmul).passed and gate.revoked() == {}


def test_launches_marked_once_must_not_see_what_changes_between_calls():
    packed = {}

    def run(arrays):
        packed["B"] = arrays["B"].copy()
        again(arrays)

    def again(arrays):
        matmul({**arrays, "B": packed["B"]})

    assert Gate(PROGRAM, oracle).check(PROGRAM, run).passed
    problems = Gate(PROGRAM, oracle).check(PROGRAM, run, again).problems
    assert problems and problems[0].startswith("other inputs after the launches marked once")


@pytest.mark.parametrize("offset", [1, 900])
def test_what_is_read_behind_an_input_shows_in_a_maximum_that_ignores_nan(offset):
    expression = rg.ops.amax(rg.tensor("X", (40, 70)), 1, name="Y")
    program = construct(canonicalize(expression), resolve("cpu"), top_k=1)[0].program

    def run(arrays):
        arrays[program.outputs[0].name][...] = arrays["X"].max(1)
        if offset == 900:
            behind = beyond(arrays["X"], offset)[offset]
            arrays[program.outputs[0].name][-1:] = np.fmax(arrays["X"][-1:].max(1), behind)

    problems = Gate(program, expression_oracle((expression,), program.outputs)).check(program, run).problems
    assert bool(problems) == (offset == 900), problems
