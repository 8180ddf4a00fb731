"""Small launches stay in the calling thread: the shorter of two ways, in model, text and explanation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.hal.errors import SpecError
from rollergen.hal.load import device_to_json, load_device, parse_device
from rollergen.program.check import check
from rollergen.program.model import least_seconds, predict, predict_stage, price_batch, with_launches
from rollergen.program.model.launching import MOST_WAKES, Way, calling_thread, merged
from rollergen.program.model.nest import Waves
from rollergen.program.rprogram import Loop, StageLaunch
from rollergen.program.serial import from_text, to_text
from tests.program.batches import batch, random_stages
from tests.program.hand_devices import AVX512
from tests.programs import ALL, relu

WAKE_US = 60.0
CORES = replace(AVX512, units=4, wake_us=WAKE_US)
ONE = replace(AVX512, units=1)
AWAKE = replace(AVX512, units=4, launch_us=AVX512.launch_us + WAKE_US)
"""Cores that are woken for each launch, whatever its size."""
ELSEWHERE = replace(load_device("cpu"), name="elsewhere", units=4, wake_us=WAKE_US)
STAGES = random_stages(40, seed=3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1 << 22))
def test_a_launch_takes_the_shorter_of_both_ways(size):
    stage = relu(size).stages[0]
    found, alone, woken = (predict_stage(stage, device) for device in (CORES, ONE, AWAKE))
    if alone.seconds < min(woken.seconds, MOST_WAKES * WAKE_US * 1e-6):
        assert found.alone and found.seconds == alone.seconds
    else:
        assert not found.alone and found.seconds == woken.seconds


def test_small_work_is_done_alone_and_large_work_is_not():
    few, many = (predict_stage(relu(size).stages[0], CORES) for size in (1 << 12, 1 << 24))
    assert few.alone and not many.alone
    short, long = (next(x.seconds for x in one.limiters if x.name == "launch") for one in (few, many))
    assert short == AVX512.launch_us * 1e-6 and long == pytest.approx((AVX512.launch_us + WAKE_US) * 1e-6)


def test_long_work_leaves_the_calling_thread_even_where_one_block_is_all():
    stage = relu(1 << 24).stages[0]
    whole = replace(stage, loops=(replace(stage.loops[0], extent=1), *stage.loops[1:]))
    slow = replace(CORES, clock_mhz=0.001)
    assert predict_stage(whole, CORES).blocks == 1 and not predict_stage(whole, slow).alone


@pytest.mark.parametrize("name", ["relu", "cpu", "softmax"])
def test_a_batch_goes_each_its_own_way(name):
    stages = STAGES[name]
    together, each = predict_stage(batch(stages), CORES), [predict_stage(stage, CORES) for stage in stages]
    assert np.array_equal(np.broadcast_to(together.alone, len(each)), [one.alone for one in each])
    np.testing.assert_allclose(np.broadcast_to(together.seconds, len(each)), [one.seconds for one in each], rtol=1e-9)
    for limiter in together.limiters:
        own = [next((x.seconds for x in one.limiters if x.name == limiter.name), 0.0) for one in each]
        np.testing.assert_allclose(np.broadcast_to(limiter.seconds, len(each)), own, rtol=1e-9)
    np.testing.assert_allclose(np.broadcast_to(together.waves, len(each)), [one.waves for one in each])


def test_at_the_longest_time_of_the_calling_thread_a_batch_goes_as_each_does():
    """One of blocks that are alone takes a little longer than that if others are woken, and a little less if not."""
    _, serial, lane = (stage := relu(1 << 20).stages[0]).loops
    trips = [1 << power for power in range(4, 16)]
    blocks = [
        replace(stage, loops=(Loop("i", 1, 16 * n, "grid"), replace(serial, extent=n), lane)) for n in trips
    ]  # fmt: skip
    for block in blocks[4:]:
        device = replace(CORES, wake_us=predict_stage(block, ONE).seconds * 1e6 * 1.02 / MOST_WAKES)
        assert predict_stage(block, device).alone
        each = [predict_stage(one, device) for one in blocks]
        together = predict_stage(batch(blocks), device)
        assert np.array_equal(np.broadcast_to(together.alone, len(each)), [one.alone for one in each])
        np.testing.assert_allclose(together.seconds, [one.seconds for one in each], rtol=1e-9)


def test_the_batches_hold_both_ways():
    mixed = replace(CORES, wake_us=8.0)
    alone = np.broadcast_to(predict_stage(batch(STAGES["cpu"]), mixed).alone, len(STAGES["cpu"]))
    assert {bool(predict_stage(stage, mixed).alone) for stage in STAGES["cpu"]} == set(alone.tolist())


@pytest.mark.parametrize("wake_us", [8.0, WAKE_US])
@pytest.mark.parametrize("name", ["relu", "cpu", "softmax"])
def test_what_nobody_asks_for_is_all_that_a_limit_changes(name, wake_us):
    stages, device = STAGES[name], replace(CORES, wake_us=wake_us)
    each = np.array([predict_stage(stage, device).seconds for stage in stages])
    for limit in np.quantile(each, [0.1, 0.5, 0.9]):
        limited = np.broadcast_to(price_batch(batch(stages), device, limit).seconds, len(each))
        np.testing.assert_allclose(limited[each < limit], each[each < limit], rtol=1e-9)
        assert (limited[each >= limit] >= limit * (1 - 1e-9)).all()


@pytest.mark.parametrize("wake_us", [0.0, 8.0, WAKE_US])
@pytest.mark.parametrize("name", ["relu", "cpu", "softmax"])
def test_what_a_launch_takes_at_least_is_no_more_than_it_takes(name, wake_us):
    device = replace(CORES, wake_us=wake_us)
    for stage in STAGES[name]:
        seconds = predict_stage(stage, device).seconds
        assert least_seconds(stage, device) <= seconds * (1 + 1e-12)


@pytest.mark.parametrize("alone", [True, False])
def test_a_single_program_has_the_limiters_of_its_way_alone(alone):
    waves = Waves(1, 1, 1, {0: 1}, {0: 1.0}, 1)
    one = Way(1.0, 1.0, waves, (("issue", 5.0, "overlaps"),), ())
    woken = Way(2.0, 2.0, waves, (("dram", 7.0, "overlaps"),), ())
    chosen = merged(alone, one, woken)
    assert chosen.seconds == (one if alone else woken).seconds
    assert [limit for limit in chosen.limiters if limit[1]] == list((one if alone else woken).limiters)


@pytest.mark.parametrize("size", [1 << 10, 1 << 24])
def test_one_unit_wakes_nobody_whatever_its_spec_says(size):
    stage = relu(size).stages[0]
    stated, cut = replace(ONE, wake_us=WAKE_US), replace(CORES, units=1)
    assert {predict_stage(stage, device).seconds for device in (ONE, stated, cut)} == {predict_stage(stage, ONE).seconds}


@pytest.mark.parametrize("device", [AVX512, replace(AVX512, units=1, wake_us=WAKE_US), replace(AVX512, units=4)])
def test_where_nobody_has_to_be_woken_nothing_is_alone(device):
    assert not predict_stage(relu(1 << 10).stages[0], device).alone
    assert not any(launch.alone for launch in emit(relu(1 << 10), device).launches)


def test_a_launch_and_its_explanation_say_what_the_model_says():
    for size in (1 << 10, 1 << 24):
        program = with_launches(relu(size), CORES)
        expected = predict_stage(program.stages[0], CORES).alone
        assert [launch.alone for launch in emit(program, CORES).launches] == [expected]
        kernel = rg.build(rg.ops.relu(rg.tensor("X", (size,))), ELSEWHERE, cache=False)
        assert kernel.launches[0].alone == expected
        assert ("the calling thread runs them all" in kernel.explain()) == expected


@pytest.mark.parametrize("size", [1 << 10, 1 << 24])
@pytest.mark.parametrize("alone", [True, False])
def test_a_program_says_how_it_is_launched_whatever_the_model_prefers(size, alone):
    program = replace(relu(size), launches=(StageLaunch(alone=alone),))
    check(program, CORES)
    assert [launch.alone for launch in emit(program, CORES).launches] == [alone]
    (stage,) = predict(program, CORES).stages
    assert stage.alone == alone
    assert stage.seconds == predict_stage(program.stages[0], ONE if alone else AWAKE).seconds


def test_a_program_says_how_many_blocks_share_a_unit():
    device, program = load_device("v100"), ALL["gpu_matmul"]
    threads = program.stages[0].threads
    bounds = lambda one: emit(one, device, "cuda").text.partition("__launch_bounds__(")[2].partition(")")[0]
    assert bounds(program) == str(threads)
    said = with_launches(program, device)
    assert bounds(said) == f"{threads}, {said.launches[0].resident_blocks}" and said.launches[0].resident_blocks > 0
    assert with_launches(program, load_device("mi50")).launches[0].resident_blocks == 0  # OpenCL C cannot say


def test_what_is_asked_of_launches_is_kept():
    program = replace(ALL["gpu_matmul"], launches=(StageLaunch(resident_blocks=3),))
    assert from_text(to_text(program)) == program != ALL["gpu_matmul"]


@pytest.mark.parametrize(
    ("launches", "message"),
    [
        ((StageLaunch(), StageLaunch()), "launches are 2; expected 1, one for each stage, or none"),
        ((StageLaunch(alone=True),), r"is launched alone with \d+ threads a block; expected 1"),
        ((StageLaunch(resident_blocks=999),), r"has 999 resident blocks; expected at most \d+ on a unit"),
    ],
)
def test_launches_that_cannot_be_are_refused(launches, message):
    program = ALL["gpu_matmul"]
    with pytest.raises(ProgramError, match=message):
        check(replace(program, launches=launches), load_device("v100"))


def test_the_text_does_not_depend_on_who_runs_it():
    program = relu(1 << 10)
    assert emit(program, CORES).text == emit(program, replace(CORES, wake_us=0.0)).text


def test_a_spec_keeps_its_wake_and_refuses_it_for_threads_beside_each_other():
    assert parse_device(json.dumps(device_to_json(CORES)).encode(), "cores") == CORES
    document = device_to_json(load_device("v100"))
    document["wake_us"] = {"value": 5, "kind": "assumed", "source": "assumed"}
    with pytest.raises(SpecError, match=r"wake_us is 5; expected 0 or nothing, but on cores whose instructions have lanes"):
        parse_device(json.dumps(document).encode(), "v100")


def test_the_calling_thread_is_one_unit_of_the_same_kind():
    assert calling_thread(CORES) == replace(CORES, units=1, wake_us=0.0)
    assert calling_thread(ONE) is ONE

