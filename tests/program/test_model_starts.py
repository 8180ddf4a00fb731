"""Where the data of tensors lie when a kernel starts: in memory, or in a cache in which a kernel before has left them."""

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError
from rollergen.hal.load import load_device
from rollergen.program.model.prediction import predict_stage
from tests.program.hand_devices import AVX512

T = rg.tensor
COUNT = 1 << 20


def added(device, count=COUNT):
    return rg.construct(rg.ops.relu(T("X", (count,)) + T("Z", (count,))), device, 1)[0]


def bytes_from(prediction, layer, stage=-1):
    return dict(prediction.stages[stage].traffic_bytes)[layer]


@pytest.mark.parametrize(("device", "cache"), [("a100", "l2"), ("mi300x", "l3")])
def test_on_a_gpu_all_starts_in_memory_unless_it_is_said(device, cache):
    made = added(device)
    cold = rg.predict(made, device)
    assert rg.predict(made, device, starts_in={"X": "dram", "Z": "dram"}).seconds == cold.seconds
    one = rg.predict(made, device, starts_in={"X": cache})
    assert rg.predict(made, device, starts_in={"X": cache, "Z": "dram"}).seconds == one.seconds
    both = rg.predict(made, device, starts_in={"X": cache, "Z": cache})
    assert both.seconds < one.seconds < cold.seconds
    assert bytes_from(cold, "dram") - bytes_from(one, "dram") == 4 * COUNT
    assert bytes_from(both, "dram") == 4 * COUNT  # what is stored


def test_what_does_not_fit_the_cache_comes_from_memory():
    count = 1 << 26  # 256 MB, of 40 MB
    made = added("a100", count)
    cold, held = rg.predict(made, "a100"), rg.predict(made, "a100", starts_in={"X": "l2"})
    missed = bytes_from(cold, "dram") - bytes_from(held, "dram")
    assert 0 <= missed < 0.2 * 4 * count


def test_the_last_cache_keeps_what_its_own_figures_say():
    """Of an RTX 4090 all lines survive up to a fill of 0.8, none from 1.7 on: half of them at 1.25."""
    count = int(1.25 * load_device("rtx4090").caches[-1].capacity_bytes) // 4
    made = added("rtx4090", count)
    cold, held = rg.predict(made, "rtx4090"), rg.predict(made, "rtx4090", starts_in={"X": "l2"})
    assert bytes_from(cold, "dram") - bytes_from(held, "dram") == pytest.approx(4 * count / 2, rel=0.01)


@pytest.mark.parametrize("count", [1 << 8, 1 << 20])
def test_it_holds_whether_blocks_run_on_the_calling_thread_alone_or_not(count):
    device = replace(AVX512, units=4, wake_us=60.0)
    (stage,) = added(device, count).stages
    warm, cold = (
        [predict_stage(stage, device, alone, dict.fromkeys(("X", "Z"), layer)).seconds for alone in (True, False, None)]
        for layer in ("l3", "dram")
    )
    assert cold[0] > warm[0] and cold[1] > warm[1]
    assert (warm[2], cold[2]) == (min(warm[:2]), min(cold[:2]))


def test_on_a_cpu_what_the_last_call_left_is_there_unless_it_is_said_to_be_cold():
    made = added(AVX512, 1 << 16)
    warm = rg.predict(made, AVX512)
    cold = rg.predict(made, AVX512, starts_in={"X": "dram", "Z": "dram", "out": "dram"})
    assert cold.seconds > 2 * warm.seconds
    assert warm.seconds < rg.predict(made, AVX512, starts_in={"X": "l3"}).seconds < cold.seconds
    assert rg.predict(made, AVX512, starts_in={"X": "l2", "Z": "l2"}).seconds == pytest.approx(warm.seconds, rel=0.2)


@pytest.mark.parametrize(
    ("starts_in", "text"),
    [
        ({"Q": "l2"}, r"starts_in names 'Q'; expected tensors of the program: X, Z, out"),
        ({"X": "l7"}, r"starts_in\['X'\] is 'l7'; expected one of l2, dram"),
        ({"X": "l1"}, r"starts_in\['X'\] is 'l1'; expected one of l2, dram"),  # each unit has its own
        ("l2", "starts_in is 'l2'; expected layers by the names of tensors: {'X': 'l2'}"),
        ([], r"starts_in is \[\]; expected layers by the names of tensors"),
    ],
)
def test_tensors_and_layers_that_are_none_are_refused(starts_in, text):
    with pytest.raises(ArgumentError, match=text):
        rg.predict(added("a100"), "a100", starts_in=starts_in)


def test_a_scalar_lies_in_no_layer():
    at, x = rg.scalar("at", "int32", 0, 8), T("X", (1024, 64))
    made = rg.construct(rg.compute((64, 64), lambda i, j: x[i + at, j] * 2.0), "a100", 1)[0]
    with pytest.raises(ArgumentError, match="starts_in names 'at'; expected tensors of the program: X, out"):
        rg.predict(made, "a100", starts_in={"at": "l2"})


@pytest.mark.parametrize("count", [1 << 16, 1 << 20, 1 << 24])
@pytest.mark.parametrize(("device", "layers"), [("mi300x", ("l2", "l3", "dram")), (AVX512, ("l1", "l2", "l3", "dram"))])
def test_what_does_not_fit_a_cache_lies_in_the_next_one(device, layers, count):
    made = added(device, count)
    seconds = [rg.predict(made, device, starts_in=dict.fromkeys(("X", "Z"), layer)).seconds for layer in layers]
    assert seconds == sorted(seconds) and seconds[0] < seconds[-1]


def test_stores_past_the_caches_find_nothing_in_them():
    made = added(AVX512, 1 << 22)
    assert made.stages[0].store.streaming
    for starts_in in ({"out": "l3"}, {"X": "l3", "Z": "l3"}):  # as where nothing is said: this spec's caches are warm
        assert rg.predict(made, AVX512, starts_in=starts_in).seconds == rg.predict(made, AVX512).seconds


def test_what_is_said_of_a_temporary_holds_for_it():
    made = rg.construct(rg.ops.matmul(T("A", (2049, 2049), "float16"), T("B", (2049, 2049), "float16")), "a100", 1)[0]
    stage = made.stages[0]
    stored = stage.op.output
    assert stored.kind == "temporary"  # rows of A or B, which the cache keeps for the product
    size = stored.elements * 2
    unsaid, said = (
        bytes_from(rg.predict(made, "a100", starts_in=starts), "dram", 0)
        for starts in ({made.inputs[0].name: "dram"}, {stored.name: "dram"})
    )
    assert size <= said - unsaid < 1.2 * size


def test_chains_have_no_such_state():
    tensors = [T(name, (4, 128, 64)) for name in ("Q", "K", "V")]
    made = rg.construct(rg.ops.scaled_dot_product_attention(*tensors), AVX512, 1)[0]
    assert any(stage.inner is not None for stage in made.stages)
    with pytest.raises(ArgumentError, match="expected none for programs of supersteps and for chains"):
        rg.predict(made, AVX512, starts_in={"Q": "dram"})
