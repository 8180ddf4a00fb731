"""A kernel: called, timed, interpreted, explained."""

import gc
import json
import re
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest

from rollergen.errors import ArgumentError, DeviceError
from rollergen.explain.explanation import explanation, runner_up
from rollergen.explain.text import _blocks_text
from rollergen.gate import memory
from rollergen.kernel import Kernel
from rollergen.measure.profiler import propose
from rollergen.runtime.executor import is_present
from rollergen.targets import resolve
from tests import programs
from tests.threads import in_threads

M, N, K = 70, 100, 37


def made(program, *others, device=None):
    target = resolve(device or program.device)
    candidates = propose((program, *others), target)
    return Kernel(target, candidates, candidates[0], ("somewhere: for a reason",))


@pytest.fixture(scope="module")
def matmul():
    return made(programs.cpu_matmul(M, N, K), programs.cpu_matmul(M, N, K, pack=False, guard="mask"))


@pytest.fixture(scope="module")
def absent():
    return made(programs.gpu_matmul(M, N, K))


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((M, K), dtype=np.float32), rng.random((K, N), dtype=np.float32)


def near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.in_place  # a device with memory of its own prepares no calls with arrays of the host
def test_calls_by_name_are_prepared_like_those_by_position(matmul, monkeypatch):
    a, b = arrays()
    matmul(b, a)
    monkeypatch.setattr(Kernel, "_called", lambda *_: pytest.fail("the call was not prepared"))
    near(matmul(B=b, A=a), a @ b)
    near(matmul(b, A=a), a @ b)


def test_a_call_returns_a_new_array(matmul):
    a, b = arrays()
    first, second = matmul(A=a, B=b), matmul(b, a)
    near(first, a @ b)
    assert first is not second and np.array_equal(first, second)


def test_out_is_written_and_returned(matmul):
    a, b = arrays()
    out = np.full((M, N), np.nan, np.float32)
    assert matmul(A=a, B=b, out=out) is out
    near(out, a @ b)


def test_strided_inputs_are_copied(matmul):
    a, b = arrays()
    near(matmul(A=np.asfortranarray(a), B=np.ascontiguousarray(b.T).T), a @ b)


@pytest.fixture
def eager_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_may_call_the_same_kernel_at_once(matmul, eager_switching):
    wrong = []

    def work(seed):
        a, b = arrays(seed)
        for _ in range(20):
            if not np.allclose(matmul(A=a, B=b), a @ b, rtol=1e-5):
                wrong.append(seed)

    in_threads(work)
    assert not wrong


def test_temporaries_are_allocated_once(monkeypatch):
    kernel, allocated = made(programs.cpu_matmul(M, N, K)), []
    allocate = memory.aligned_empty
    monkeypatch.setattr(memory, "aligned_empty", lambda *x: allocated.append(x) or allocate(*x))
    a, b = arrays()
    for _ in range(3):
        kernel(A=a, B=b)
    assert allocated == [((-(-N // 32), K, 32), "float32")]  # B_packed


def test_a_call_keeps_no_array_alive(matmul):
    a, b = arrays()
    watched = [weakref.ref(x) for x in (a, b, matmul(A=a, B=b))]
    del a, b
    gc.collect()
    assert [ref() for ref in watched] == [None, None, None]


def test_a_stream_is_refused_with_advice(matmul):
    with pytest.raises(ArgumentError, match="cpu has no streams for arrays in host memory; a call returns when it is done"):
        matmul(*reversed(arrays()), stream=1)


class TestConstantTensors:
    """B is constant: its packing stage runs once."""

    @pytest.fixture
    def kernel(self):
        program = programs.cpu_matmul(M, N, K)
        inputs = tuple(replace(b, constant=b.name == "B") for b in program.inputs)
        pack, main = program.stages
        return made(replace(program, inputs=inputs, stages=(replace(pack, once=True), main)))

    def test_it_is_packed_at_the_first_call_and_not_again(self, kernel):
        a, b = arrays()
        near(kernel(A=a, B=b), a @ b)
        before = b.copy()
        b += 1
        near(kernel(A=a, B=b), a @ before)

    def test_another_array_is_packed_anew(self, kernel):
        a, b = arrays()
        kernel(A=a, B=b)
        other = b + 1
        near(kernel(other, a), a @ other)
        near(kernel(b, a), a @ b)

    def test_an_array_changed_in_place_is_packed_anew_after_repack(self, kernel):
        a, b = arrays()
        kernel(A=a, B=b)
        b += 1
        kernel.repack()
        near(kernel(A=a, B=b), a @ b)

    def test_a_strided_constant_is_packed_once_too(self, kernel):
        a, b = arrays()
        strided = np.asfortranarray(b)
        near(kernel(A=a, B=strided), a @ b)
        strided += 1
        near(kernel(A=a, B=strided), a @ b)

    def test_every_thread_packs_for_itself(self, kernel):
        a, b = arrays()
        kernel(A=a, B=b)
        (found,) = in_threads(lambda _: kernel(A=a, B=b), 1)
        near(found, a @ b)


def test_a_kernel_for_an_absent_device_says_what_is_missing(absent):
    with pytest.raises(DeviceError, match=r"v100 .* is not present"):
        absent(*arrays())
    assert not is_present(absent.device)


def test_a_kernel_for_an_absent_device_has_source_prediction_explanation_and_interpreter(absent):
    assert "__global__" in absent.source and absent.language == "cuda"
    assert absent.predicted_time > 0 and absent.measured_time is None
    assert "Tesla V100" in absent.explain()
    assert absent.launches[0].threads == 256 and absent.launches[0].blocks == 2 * 2  # 70 / 64 and 100 / 64, rounded up
    a, b = arrays()
    near(absent.interpret(a, b), a @ b)


def test_interpret_and_call_agree_bit_for_bit_on_whole_numbers(matmul):
    a, b = (np.random.default_rng(1).integers(-4, 5, s).astype(np.float32) for s in ((M, K), (K, N)))
    assert np.array_equal(matmul.interpret(A=a, B=b), matmul(A=a, B=b))


def test_benchmark_times_calls_and_states_the_cache(matmul):
    a, b = arrays()
    timing = matmul.benchmark(A=a, B=b, rounds=3)
    assert timing.rounds == 3 and 0 < timing.event_s < 1 and 0 < timing.wall_s < 1
    assert timing.cache.startswith("warm: ")
    with pytest.raises(ArgumentError, match="rounds is 0; expected at least 1"):
        matmul.benchmark(A=a, B=b, rounds=0)


def test_the_explanation_names_tiles_bytes_waves_limiters_cuts_and_the_runner_up(matmul):
    text = matmul.explain()
    for part in (
        "kernel(B: float32[37, 100], A: float32[70, 37]) -> C: float32[70, 100]",
        "cut: somewhere: for a reason",
        "accumulators in registers  i 6 x j 32",
        "<- binds",
        "bytes that leave each layer",
        "store C:",
        "closed forms",
        "Runner-up: tile i 24 x j 64 x k 37",
        "why it lost: ",
        "tail of i: peel",
    ):
        assert part in text, part
    assert re.search(r"^  \d+ blocks? in \d+ waves?$", text, re.MULTILINE)


def test_blocks_are_counted_with_what_fills_a_unit_where_blocks_have_threads():
    stage = {"blocks": 1, "threads": 64, "waves": 1.0, "resident_blocks": 1, "occupancy": 0.031}
    assert _blocks_text(stage) == "1 block of 64 threads in 1 wave, 1 resident, occupancy 3%"
    more = {**stage, "blocks": 90, "waves": 1.125, "resident_blocks": 2}
    assert _blocks_text(more) == "90 blocks of 64 threads in 1.125 waves, 2 resident, occupancy 3%"
    assert _blocks_text({**more, "threads": 1}) == "90 blocks in 1.125 waves"


def test_the_explanation_as_data_is_plain_and_consistent(matmul):
    facts = json.loads(json.dumps(matmul.explain(as_dict=True)))
    assert facts["predicted_seconds"] == pytest.approx(sum(s["seconds"] for s in facts["stages"]))
    for stage in facts["stages"]:
        times = {limiter["name"]: limiter["seconds"] for limiter in stage["limiters"]}
        assert times[stage["binding"]] == max(times.values())
    packing = facts["stages"][0]["accesses"]
    assert {x["tensor"]: x["role"] for x in packing} == {"B": "load", "B_packed": "store"}
    assert packing[1]["bytes"] == -(-N // 32) * K * 32 * 4  # every element once, whole lines
    loss = facts["runner_up"]["limiters"]
    assert all(x["difference"] == pytest.approx(x["runner_up"] - x["chosen"]) for x in loss)
    assert [c["chosen"] for c in facts["candidates"]] == [True, False]


@pytest.fixture
def three(matmul):
    """Candidates measured at 3, 1 and 2 ms, by the model's order."""
    first, second = matmul.candidates
    return [replace(c, rank=i, wall_s=s) for i, (c, s) in enumerate(((first, 3e-3), (second, 1e-3), (first, 2e-3)))]


def test_the_runner_up_is_the_best_other_measured_one(three):
    slow, best, middle = three
    assert runner_up(best, three) is middle
    assert runner_up(middle, three) is best
    assert runner_up(best, [best, slow, replace(middle, problems=("wrong",))]) is slow
    assert runner_up(best, [best]) is None


def test_unmeasured_runners_up_go_by_the_models_order(three):
    slow, best, middle = (replace(c, wall_s=None) for c in three)
    assert runner_up(slow, [slow, best, middle]) is best


def test_why_the_runner_up_lost_is_said_with_both_times(matmul, three):
    best = three[1]
    facts = explanation(best, three, matmul.device)
    assert facts["runner_up"]["why"].startswith("measured 2 ms against 1 ms; ")
    assert facts["measured_seconds"] == 1e-3


def test_a_kernel_shows_itself_in_notebooks(matmul):
    html = matmul._repr_html_()
    assert "<details>" in html and "&lt;" in html and "&lt;kernel(" in html
    limiters = [one for stage in matmul.explain(as_dict=True)["stages"] for one in stage["limiters"]]
    (*bars, roofline) = html.split("<svg")[1:]
    assert html.count("<rect") == len(limiters) and [one.count('fill-opacity="1"') for one in bars] == [1] * len(bars)
    assert roofline.count("<circle") == roofline.count("operations a byte") > 0
    assert "currentColor" in html and "http" not in html and "<script" not in html
    assert repr(matmul).startswith("<kernel(B: float32[37, 100]") and "not measured" in repr(matmul)


def test_constant_stages_are_marked_in_the_explanation():
    program = programs.cpu_matmul(M, N, K)
    pack, main = program.stages
    unpacked = programs.cpu_matmul(M, N, K, pack=False, guard="mask")
    kernel = made(replace(program, stages=(replace(pack, once=True), main)), unpacked, device="cortex-a53")
    assert "(once, at the first call)" in kernel.explain()
    facts = kernel.explain(as_dict=True)
    assert facts["predicted_seconds"] == pytest.approx(facts["stages"][1]["seconds"])
    launches = next(x for x in facts["runner_up"]["limiters"] if x["name"] == "launch")
    assert launches["chosen"] == launches["runner_up"]  # one launch a call each
