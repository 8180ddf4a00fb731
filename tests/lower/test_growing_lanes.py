"""Pictures that grow by no whole number: lanes are chosen from one masked vector, at places that are computed."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.program.lane_windows import growing_place
from rollergen.program.model import predict
from tests.forgetting import forget
from tests.lower.devices import AVX512
from tests.lower.harness import execute, random_inputs
from tests.lower.reference import run_program

LANE = Index.axis("lane")
CHOSEN = "_chosen(load_lanes"


def bilinear(shape, size, **more):
    return rg.ops.interpolate(rg.tensor("X", shape), size, mode="bilinear", name="Y", **more)


def nearest(shape, size):
    return rg.ops.interpolate(rg.tensor("X", shape), size, mode="nearest", name="Y")


GROWN = {
    "by no whole number": bilinear((1, 3, 9, 11), (20, 53)),
    "a little": bilinear((2, 2, 8, 63), (9, 65)),
    "to the corners": bilinear((1, 2, 7, 13), (17, 100), align_corners=True),
    "a lot": bilinear((1, 1, 2, 3), (5, 130)),
    "by two, in rows of two vectors": bilinear((1, 3, 8, 16), (16, 32)),
    "by three, with a part": bilinear((1, 2, 5, 19), (10, 57)),
    "rows alone": bilinear((1, 3, 10, 11), (10, 53)),
    "rows alone, fewer in the last block": bilinear((1, 7, 11, 65), (11, 513)),
    "nearest, rows alone": nearest((1, 3, 10, 17), (10, 49)),
    "nearest": nearest((1, 3, 6, 17), (11, 49)),
    "vectors and a part, in blocks": nearest((1, 2, 5, 37), (5, 330)),
}


def program_of(tensor):
    (best,) = construct(canonicalize(tensor), AVX512, top_k=1)
    return best.program


@pytest.mark.parametrize("name", GROWN)
def test_lanes_are_chosen_from_a_vector_and_nothing_else_is_read(name):
    program = program_of(GROWN[name])
    source = emit(program, AVX512)
    assert CHOSEN in source.text
    for seed in range(2):
        inputs = random_inputs(program, seed)
        found = execute(source, program, inputs)
        assert all(buffer.zones_intact() for buffer in found.values())
        want = run_program(program, inputs)["Y"]
        np.testing.assert_allclose(found["Y"].array.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_pictures_of_any_size_grow_right(seed):
    random = np.random.default_rng(seed)
    rows, columns = (int(n) for n in random.integers(1, 40, 2))
    size = rows + int(random.integers(30)), columns + int(random.integers(90))
    shape, corners = (1, int(random.integers(1, 4)), rows, columns), bool(random.integers(2))
    program = program_of(bilinear(shape, size, align_corners=corners) if seed % 3 else nearest(shape, size))
    inputs = random_inputs(program, seed)
    found = execute(emit(program, AVX512), program, inputs)
    assert all(buffer.zones_intact() for buffer in found.values())
    want = run_program(program, inputs)["Y"]
    np.testing.assert_allclose(found["Y"].array.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def test_places_lie_in_order_within_a_vector_wherever_it_begins():
    random = np.random.default_rng(5)
    found = 0
    for _ in range(300):
        up, down, shift = (int(random.integers(*of)) for of in ((1, 40), (1, 60), (-40, 40)))
        width = int(random.choice([8, 16]))
        at = LANE + Index.axis("n") * width
        grown = (at * up + shift) // down
        place = growing_place(Index.axis("i") * 7 + grown, [grown - 1], "lane", width)
        assert (place is not None) == (up < down)  # of as many the quotient is the lane
        for begin in range(0, 5 * width, width) if place is not None else ():
            places = [(up * (begin + lane) + shift) // down for lane in range(width)]
            assert places == sorted(places) and places[-1] - places[0] < width
        found += place is not None
    assert 100 < found < 250


@pytest.mark.parametrize("index", [LANE % 5, LANE // 3 + LANE, (LANE // 3) * 2, (LANE * 5) // 3, (LANE % 7) // 3])
def test_what_moves_otherwise_is_not_read_so(index):
    assert growing_place(index, (), "lane", 16) is None
    assert growing_place(LANE // 3, [index], "lane", 16) is None


def test_the_model_prices_a_vector_where_one_is_read(monkeypatch):
    """By element, a picture of 65 to 513 takes five times as long."""
    program = program_of(bilinear((1, 8, 65, 65), (513, 513)))
    near = predict(program, AVX512).seconds
    from rollergen.program.model import access, lanes

    for module in (access, lanes):
        monkeypatch.setattr(module, "near_lanes", lambda *_: False)
    forget(access, lanes)
    again = program_of(bilinear((1, 8, 65, 65), (513, 513)))
    assert near < 0.5 * predict(again, AVX512).seconds
