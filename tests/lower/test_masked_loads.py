"""Windows of several lines: what guards cut is read at once where the processor can, with no other place touched."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.lower import access, phases, vectors
from rollergen.lower.expressions import Inside
from tests.forgetting import forget
from tests.lower.devices import AVX512
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

GUARD = "#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)"


def depthwise(shape, taps, stride=1, padding=1, dtype="float32"):
    X, W = rg.tensor("X", shape, dtype), rg.tensor("W", (shape[1], 1, *taps), dtype)
    return rg.ops.conv2d(X, W, stride=stride, padding=padding, groups=shape[1], name="Y")


WINDOWS = {
    "lines of two vectors and a part": depthwise((1, 3, 13, 35), (3, 3)),
    "lines shorter than a vector": depthwise((2, 3, 7, 7), (3, 3)),
    "every other element": depthwise((1, 2, 15, 57), (3, 3), stride=2),
    "every other element, without padding": rg.ops.max_pool2d(rg.tensor("X", (1, 2, 14, 46)), 2, 2, name="Y"),
    "a window higher than wide": depthwise((1, 2, 11, 21), (5, 3), padding=(2, 1)),
    "lines of several panels": depthwise((1, 2, 21, 203), (3, 3)),
    "every other element of several panels": depthwise((1, 2, 11, 391), (3, 3), stride=2),
    "a tile inside": depthwise((1, 2, 30, 20), (5, 5), padding=2),
    "maxima": rg.ops.max_pool2d(rg.tensor("X", (1, 3, 12, 19)), 3, 1, 1, name="Y"),
    "means of what is inside": rg.ops.avg_pool2d(rg.tensor("X", (1, 3, 9, 33)), 3, 2, 1, count_include_pad=False, name="Y"),
    "halves": depthwise((1, 2, 9, 37), (3, 3), dtype="float16"),
    "maxima of halves": rg.ops.max_pool2d(rg.tensor("X", (1, 2, 13, 39), "float16"), 3, 2, 1, name="Y"),
    "lines within half a vector of doubles": depthwise((1, 2, 9, 5), (3, 3), dtype="float64"),
    "doubles": depthwise((1, 2, 9, 19), (3, 3), dtype="float64"),
}


def lines_of(tensor):
    """The first program of several lines a tile."""
    ranked = construct(canonicalize(tensor), AVX512, top_k=10)
    return next(one.program for one in ranked if one.variants == ("direct, lines",))


def difference(program, way="at once"):
    source = emit(program, AVX512)
    assert GUARD in source.text
    if way == "lane by lane":
        source = replace(source, text=source.text.replace(GUARD, "#if 0"))
    inputs = random_inputs(program, seed=3)
    found, (output,) = execute(source, program, inputs), program.outputs
    assert all(buffer.zones_intact() for buffer in found.values())
    expected = run_program(program, inputs)[output.name]
    return float(np.abs(found[output.name].array.reshape(expected.shape) - expected).max())


@pytest.mark.parametrize("way", ["at once", "lane by lane"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.every(11)
def test_windows_of_several_lines_are_right_and_read_nothing_outside(window, way):
    assert difference(lines_of(WINDOWS[window]), way) < 1e-5


def test_tiles_whose_windows_lie_inside_test_no_lines():
    text = emit(lines_of(WINDOWS["a tile inside"]), AVX512).text
    reads = [line for line in text.splitlines() if "const float16 x = load_lanes16(X_at" in line]
    assert len(reads) > 1 and "oy" not in reads[0].split("(float16)(0.0f)")[1] and "oy0" in reads[-1].split("(float16)(0.0f)")[1]


def test_such_kernels_have_no_path_for_single_elements():
    text = emit(lines_of(WINDOWS["lines of two vectors and a part"]), AVX512).text
    assert text.count("load_lanes16(") > 1 and "x_lanes" not in text


def test_processors_of_narrower_vectors_have_no_such_programs():
    dialect = (("kernel_attribute", "__attribute__((min_vector_width(256)))"),)
    narrow = replace(AVX512, targets=(replace(AVX512.targets[0], dialect=dialect),))
    ranked = construct(canonicalize(WINDOWS["maxima"]), narrow, top_k=10)
    assert all("lines" not in variant or variant == "padded lines" for one in ranked for variant in one.variants)


def without_their_lower_bound(old):
    return lambda ranges, offset, tests, *rest: old(ranges, offset, [replace(t, low=None) for t in tests], *rest)


def without_their_upper_bound(old):
    return lambda ranges, offset, tests, *rest: old(ranges, offset, [replace(t, high=None) for t in tests], *rest)


def of_the_first_vector(old):
    """Both vectors of every other element under the mask of the first one."""
    def masks(*given):
        found = old(*given)
        return found and (found[0],) * len(found)

    return masks


def test_a_tile_taken_to_lie_inside_where_it_does_not_is_noticed(monkeypatch):
    program = lines_of(WINDOWS["a tile inside"])
    with monkeypatch.context() as patches:
        patches.setattr(phases, "_window_tests", lambda context, place: [
            (bound, Inside(Index(), None, 1)) for load in context.nest.op.loads() for bound in load.guard
        ])
        forget()
        found = difference(program)
    forget()
    assert not found < 1e-5


@pytest.mark.parametrize("fault", [without_their_lower_bound, without_their_upper_bound, of_the_first_vector])
def test_a_seeded_fault_of_the_masks_is_noticed(fault, monkeypatch):
    program = lines_of(WINDOWS["every other element"])
    with monkeypatch.context() as patches:
        patches.setattr(access, "read_masks", fault(vectors.read_masks))
        forget()
        found = difference(program)
    forget()
    assert not found < 1e-5
