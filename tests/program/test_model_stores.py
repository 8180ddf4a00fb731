"""What stores cost: rates of plain ones, streams past the caches, lanes under a mask, pieces that the threads of a GPU
send; work done once a row."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Const, Load, Within
from rollergen.hal.load import load_device
from rollergen.hal.spec import Target
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.model.memory import writes_back_later
from rollergen.program.model.prediction import predict_stage
from rollergen.program.model.roofline import roofline_seconds
from rollergen.program.rprogram import Accumulator, Compute, Loop, Stage, Store
from tests.program.batches import cpu_stage
from tests.program.hand_devices import AVX512
from tests.programs import cpu_matmul, relu, softmax

WRITTEN = 16.0  # bytes a clock of plain stores to memory, reading their lines included: what a probe finds
dram = replace(AVX512.layers[-1], bytes_per_clock=20.0, write_bytes_per_clock=WRITTEN)
PROBED = replace(AVX512, layers=(*AVX512.layers[:-1], dram))
MASKING = replace(
    AVX512, targets=(Target("opencl", dialect=(("kernel_attribute", "__attribute__((min_vector_width(512)))"), ("masked_vectors", "512"))),)
)


def limiters(stage, device):
    return {x.name: x.clocks for x in predict_stage(stage, device).limiters}


def plain(elements):
    return replace(relu(elements).stages[0], store=Store())


def test_a_rate_of_writing_is_that_of_plain_stores_with_what_these_read():
    elements = 2**28  # far beyond the outermost cache
    found = limiters(plain(elements), PROBED)["dram bandwidth"]
    assert found == pytest.approx(4 * elements / 20.0 + 4 * elements / WRITTEN, rel=1e-6)


def test_streamed_stores_move_half_the_bytes_and_nothing_hides_them():
    elements = 2**23
    stage = replace(plain(elements), store=Store(streaming=True))
    assert limiters(stage, PROBED)["streamed stores"] == pytest.approx(4 * elements / (2 * WRITTEN), rel=1e-6)
    (streamed,) = [x for x in predict_stage(stage, PROBED).limiters if x.name == "streamed stores"]
    assert streamed.how == "adds"


@pytest.mark.parametrize("elements", [2**20, 2**23, 2**25, 2**27, 2**30])
@pytest.mark.parametrize("streaming", [False, True])
def test_stores_of_any_kind_are_no_faster_than_memory(elements, streaming):
    stage = replace(plain(elements), store=Store(streaming=streaming))
    assert predict_stage(stage, PROBED).seconds >= roofline_seconds(stage, PROBED)


@pytest.mark.parametrize("neighbours", [2, 4, 8])
def test_a_width_sends_what_its_threads_store_one_by_one_in_as_many_pieces(neighbours):
    (op,) = canonicalize(rg.ops.relu(rg.tensor("X", (1 << 24,)))).tensor_ops
    h200, moved = load_device("h200"), {}
    for vector in (1, neighbours):
        stage = elementwise_stage(op, ElementwisePlan(tn=128, vector=vector), h200)
        moved[vector] = dict(predict_stage(replace(stage, copies=(), store=Store()), h200).traffic_bytes)
    read = 4 << 24
    assert moved[1]["l2"] == 2 * read
    assert moved[neighbours]["l2"] == read + read * neighbours
    assert moved[neighbours]["dram"] == moved[1]["dram"]  # the L2 puts them together


def test_a_warm_problem_outgrows_the_outermost_cache_gradually():
    capacity = AVX512.layers[-2].capacity_bytes
    share = lambda fill: limiters(plain(int(fill * capacity / 8)), AVX512).get("dram bandwidth", 0) / fill
    assert share(0.5) == 0
    assert 0 < share(0.9) < share(1.2) < share(2.0)
    assert share(2.6) == pytest.approx(share(5.0), rel=1e-3)


def ragged(pitch, columns):
    """Rows of `pitch` computed, `columns` of them stored: a flattened axis, as images have it."""
    x, y = Buffer("X", (64 * pitch,)), Buffer("Y", (64, columns), kind="output")
    place = Index.axis("p")
    row, column = Index(((FloorDiv(place, pitch), 1),)), Index(((Mod(place, pitch), 1),))
    body = Binary("mul", Load(x, (place,)), Const(2.0, "float32"), "float32")
    axes = (Axis("p", 64 * pitch),)
    op = TensorOp(y, axes, (row, column), body, where=(Within(column, 0, columns),))
    loops = (Loop("p", 4 * pitch, 16, "serial"), Loop("p", 16, 1, "lane"))
    return Stage("cut", op, loops, Compute("vfma", 16), Accumulator(1, "float32"))


def test_lanes_are_stored_under_a_mask_where_the_device_can_and_rows_are_whole_vectors():
    cost = lambda pitch, device: limiters(ragged(pitch, 40), device)["load ports"]
    assert cost(48, MASKING) < 0.5 * cost(48, AVX512)  # one vector of three is cut
    assert cost(41, MASKING) == cost(41, AVX512)  # rows end within vectors


def test_ends_of_tiles_cost_nothing_where_stores_are_masked_and_operands_packed():
    ends = cpu_matmul(500, 1021, 300, pack=False).stages[0]
    masked, alone = (limiters(ends, device)["tiles"] for device in (MASKING, AVX512))
    assert masked == alone  # operands that are not packed are tested for their end all the same
    packed = cpu_matmul(500, 1021, 300).stages[1]
    assert limiters(packed, MASKING)["tiles"] < limiters(packed, AVX512)["tiles"]


def test_what_is_the_same_along_a_row_is_computed_once_a_row():
    rows, columns = 64, 1024
    stage = softmax(rows, columns).stages[0]
    op = stage.op
    half = Binary("div", Const(1.0, "float32"), Const(3.0, "float32"), "float32")
    scaled = replace(op, result=Binary("mul", op.result, half, "float32"))
    varying = replace(op, result=Binary("div", op.result, Const(3.0, "float32"), "float32"))
    clocks = [limiters(replace(stage, op=d), AVX512)["multiply-adds"] for d in (op, scaled, varying)]
    once, every = clocks[1] - clocks[0], clocks[2] - clocks[0]
    vectors = rows * columns / 16
    assert every == pytest.approx(8 * vectors / 2)
    assert once == pytest.approx((vectors + 8 * rows) / 2)


def test_batches_of_streaming_programs_agree_with_each():
    stages = [replace(plain(2**23), store=Store(streaming=True)) for _ in range(2)]
    each = [predict_stage(stage, PROBED).seconds for stage in stages]
    loops = tuple(replace(x, extent=np.array([x.extent] * 2), stride=np.array([x.stride] * 2)) for x in stages[0].loops)
    np.testing.assert_allclose(predict_stage(replace(stages[0], loops=loops), PROBED).seconds, each, rtol=1e-12)


def test_results_beyond_the_caches_are_best_written_along_their_rows():
    """Tiles of 12 x 32 of 64 MB of results: four below each other write 48 rows at once, which no prefetcher follows;
    where tiles follow each other along their rows, they write 12 long ones."""
    known = replace(AVX512, costs=(*AVX512.costs, ("walk_far_rows", 8)))

    def walks(size, panels_m, panels_n):
        base = cpu_matmul(size, size, 64, kc=64).stages[-1]
        stage = cpu_stage(12, 2, 64, panels_m, panels_n, base=base, m=size, n=size, k=64)
        return limiters(stage, known).get("column walks", 0)

    lines = 4096 * 4096 * 4 / 64
    assert walks(4096, panels_m=4, panels_n=1) > 8 * lines  # of the 28 clocks that a line alone takes, two together
    assert 0 < walks(4096, panels_m=1, panels_n=64) < lines / 4  # pieces of 8 KB begin anew
    assert walks(4096, panels_m=1, panels_n=128) == 0  # whole rows lie one behind the other
    assert walks(1024, panels_m=4, panels_n=1) == 0  # 4 MB lie in the caches


@pytest.mark.parametrize("fill", [0.5, 0.9, 1.5])
@pytest.mark.parametrize(("name", "below", "above"), [("a100", 0.6, 1.15), ("rtx4090", 0.8, 1.7)])
def test_a_temporary_is_written_back_once_its_launch_has_filled_the_last_cache(name, below, above, fill):
    """On an A100 all of it survives up to 0.6 times the cache that a launch reads and writes, none from 1.15 on."""
    device = load_device(name)
    elements = int(fill * device.caches[-1].capacity_bytes) // 8 // 4096 * 4096
    made, kept = copied(elements, device)
    bytes_of = lambda stage: dict(predict_stage(stage, device).traffic_bytes)["dram"]
    read = written = bytes_of(made) / 2
    assert read == pytest.approx(4 * elements, rel=0.02)  # and what the last block has more of it
    lost = min(max((fill - below) / (above - below), 0), 1)
    assert bytes_of(kept) == pytest.approx(read + lost * written, rel=1e-3)


@pytest.mark.parametrize("name", ["a100", "rtx4090", "h200"])
def test_the_roofline_of_a_temporary_leaves_out_what_the_last_cache_may_hold(name):
    device = load_device(name)
    elements = device.caches[-1].capacity_bytes // 16 // 4096 * 4096  # half of the cache, read and written
    (stage,) = rg.construct(rg.ops.relu(rg.tensor("X", (elements,))), device, 1)[0].stages
    kept = replace(stage, op=replace(stage.op, output=replace(stage.op.output, kind="temporary")))
    assert roofline_seconds(kept, device) == pytest.approx(roofline_seconds(stage, device) / 2, rel=1e-6)
    assert predict_stage(kept, device).seconds >= roofline_seconds(kept, device)


def test_a_temporary_is_written_at_once_where_no_spec_says_how_lines_survive():
    device = load_device("v100")
    made, kept = copied(2**18, device)
    assert limiters(kept, device) == limiters(made, device)


def test_stores_past_the_caches_are_written_at_once():
    device = load_device("a100")
    _, kept = copied(2**18, device)
    past = replace(kept, store=replace(kept.store, streaming=True))
    assert writes_back_later(kept, device) and not writes_back_later(past, device)


def copied(elements, device):
    """A launch that reads an array and stores as much, as an output and as a temporary."""
    op = canonicalize(rg.ops.relu(rg.tensor("X", (elements,)))).tensor_ops[0]
    made = elementwise_stage(op, ElementwisePlan(), device)
    return made, replace(made, op=replace(op, output=replace(op.output, kind="temporary")))
