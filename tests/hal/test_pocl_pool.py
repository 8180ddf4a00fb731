"""Work-groups shared with the threads of the pool: each is run once, in order of launches, whoever calls and waits."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.hal.runtimes import opencl_runtime, pocl_pool
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.runtimes.pocl_pool import usable_cores
from rollergen.targets import resolve
from tests.threads import in_threads

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
GROUPS, CALLS = 100, 300
TEXT = """
kernel void count(global int *counts) { counts[get_group_id(0)] += 1; }

kernel void add(global const int *counts, global int *sums)
{
    int sum = 0;
    for (int i = 0; i < 100; ++i) sum += counts[i];
    sums[get_group_id(0)] = sum;
}

kernel void turn(global int *next, global int *turns) { turns[get_group_id(0)] = next[0]++; }

/* Each of two groups waits for the other one, so many looks long. */
kernel void meet(global volatile int *come, global int *met)
{
    atomic_inc(come);
    for (int look = 0; look < come[1] && come[0] < 2; ++look);
    met[get_group_id(0)] = come[0] > 1;
}
"""


@pytest.fixture(scope="module")
def runtime():
    runtime = OpenCLRuntime()
    if runtime.pool is None:
        pytest.skip("no pool on this machine")
    return runtime


@pytest.fixture(scope="module")
def pool(runtime):
    """More threads than most machines that run tests have cores: some are waited for."""
    shared = runtime.pool
    code = [ctypes.cast(function, ctypes.c_void_p).value for function in (shared._run, shared._serve)]
    return pocl_pool.Pool(*code, threads=3)


@pytest.fixture(scope="module")
def module(runtime):
    """Has run through the queue once."""
    module = runtime.compile(TEXT, alone=(True,))
    for entry, arrays in (("count", 1), ("add", 2), ("turn", 2), ("meet", 2)):
        kernel = module.kernel(entry)
        runtime.set_arguments(kernel, [runtime.wrap(np.zeros(GROUPS, np.int32)) for _ in range(arrays)])
        runtime.launch(kernel, 1, 1, alone=True)
    runtime.finish()
    return module


def launch(module, entry, groups, *arrays, alone=False):
    one = module.work_groups(entry, groups, len(arrays), alone)
    for position, array in enumerate(arrays):
        one.addresses[position] = array.ctypes.data
    return one


def counting(module, pool, alone=(False, False)):
    """(a job that adds 1 to each count and adds these up for each sum, counts, sums)."""
    counts, sums = np.zeros(GROUPS, np.int32), np.zeros(7, np.int32)
    first, second = alone
    launches = [
        launch(module, "count", GROUPS, counts, alone=first),
        launch(module, "add", 7, counts, sums, alone=second),
    ]
    return pool.job(launches), counts, sums


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("groups", [1, 7, GROUPS])
def test_groups_take_their_turns_from_either_end(module, pool, groups, backwards):
    following, turns = np.zeros(1, np.int32), np.full(GROUPS, -1, np.int32)
    one = launch(module, "turn", groups, following, turns, alone=True)._replace(backwards=backwards)
    pool.job([one])()
    order = np.arange(groups)
    np.testing.assert_array_equal(turns[:groups], order[::-1] if backwards else order)
    assert (turns[groups:] == -1).all()


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 15, 16, 17, 33, GROUPS])
def test_each_group_of_a_launch_that_is_shared_runs_once_from_either_end(module, pool, groups, backwards):
    counts = np.zeros(GROUPS, np.int32)
    run = pool.job([launch(module, "count", groups, counts)._replace(backwards=backwards)])
    for call in range(1, CALLS):
        run()
        assert (counts[:groups] == call).all() and not counts[groups:].any()


@pytest.mark.parametrize("alone", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("gap", [0.0, 0.0003, 0.002])
def test_each_group_runs_once_and_after_the_launch_before(module, pool, alone, gap):
    run, counts, sums = counting(module, pool, alone)
    for call in range(1, (20 if gap else CALLS) + 1):
        time.sleep(gap)
        run()
        assert (counts == call).all() and (sums == GROUPS * call).all()


@pytest.mark.parametrize("alone", [(False, False), (True, True)])
def test_a_timed_job_does_the_same_and_tells_the_seconds_of_each_launch(module, pool, alone):
    counts, sums, few = np.zeros(GROUPS, np.int32), np.zeros(GROUPS, np.int32), np.zeros(GROUPS, np.int32)
    given = ((GROUPS, counts), (1, few), (GROUPS, counts, sums))
    launches = [
        launch(module, entry, groups, *arrays, alone=one)
        for (groups, *arrays), entry, one in zip(given, ("count", "count", "add"), (*alone, alone[0]), strict=True)
    ]
    run, found = pool.timed(launches), []
    for call in range(1, 50):
        start = time.perf_counter()
        found.append(run()())
        assert 0 < sum(found[-1]) <= time.perf_counter() - start
        assert (counts == call).all() and (sums == GROUPS * call).all() and few[0] == call
        assert len(found[-1]) == len(launches) and min(found[-1]) >= 0


def wait_until_asleep(pool):
    """All threads sleep, however late a busy machine lets them come to it."""
    end = time.monotonic() + 60
    while pool._state.sleepers < pool._threads:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_timed_job_has_the_help_of_threads_that_slept(module, pool):
    pool.job([launch(module, "count", 2, np.zeros(GROUPS, np.int32))])()  # by which they are begun
    wait_until_asleep(pool)
    come, met = np.array([0, 1 << 30], np.int32), np.zeros(2, np.int32)
    pool.timed([launch(module, "meet", 2, come, met)])()
    assert met.all()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_threads_that_are_woken_keep_off_the_callers_core(module, pool):
    """Linux may wake them there, and leave them: each then has half of a core."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core")
    counts = np.zeros(GROUPS, np.int32)
    run = pool.job([launch(module, "count", GROUPS, counts)])
    try:
        for core in sorted(cores)[:2] * 2:
            os.sched_setaffinity(0, {core})
            wait_until_asleep(pool)
            before = counts.copy()
            pool._state.owed = pocl_pool._WAKE_TICKS + 1  # so that this job wakes them
            run()
            assert np.array_equal(counts, before + 1)
            assert [os.sched_getaffinity(one) for one in pool._numbers] == [cores - {core}] * len(pool._numbers)
    finally:
        os.sched_setaffinity(0, cores)


def test_of_several_callers_one_has_the_threads_and_all_are_right(module, pool):
    def work(number):
        run, counts, sums = counting(module, pool)
        for _ in range(CALLS):
            run()
        return (counts == CALLS).all() and (sums == GROUPS * CALLS).all()

    assert all(in_threads(work))


def _in_a_child(run, counts, answers):
    run()
    answers.put((counts == 2).all())


def test_a_forked_process_works_alone(module, pool):
    run, counts, _ = counting(module, pool)
    run()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(run, counts, answers))
    child.start()
    assert answers.get(timeout=60)
    child.join()
    run()
    assert (counts == 2).all()


def test_threads_without_a_job_sleep(module, pool):
    run, counts, _ = counting(module, pool)
    for _ in range(CALLS):
        run()
    wait_until_asleep(pool)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05
    run()
    assert (counts == CALLS + 1).all()


SHARED = {
    "sum": lambda: rg.ops.sum(rg.tensor("X", (257, 300)), dim=1),
    "row chain": lambda: rg.ops.softmax(rg.tensor("X", (130, 65)), dim=-1),
    "packed product": lambda: rg.ops.matmul(rg.tensor("A", (190, 130)), rg.tensor("B", (130, 170))),
    "two launches": lambda: rg.ops.matmul(rg.ops.softmax(rg.tensor("X", (96, 64)), dim=-1), rg.tensor("B", (64, 80))),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_kernels_give_the_same_bits_as_queued_ones(runtime, name, monkeypatch):
    device = replace(resolve("cpu"), units=4, wake_us=0.0)
    build = lambda: rg.build(SHARED[name](), device, top_k=1, profile=False, cache=False)
    kernel, rng = build(), np.random.default_rng(0)
    arrays = [rng.random(one.shape, dtype=np.float32) for one in kernel.signature.inputs]
    queued = kernel(*arrays)
    assert kernel._local.mine.launches.by_address
    assert any(one.blocks > 1 and not one.alone for one in kernel.launches)
    for _ in range(50):
        assert np.array_equal(kernel(*arrays), queued)
    monkeypatch.setattr(opencl_runtime, "pool_of", lambda runtime: None)
    other = build()
    other(*arrays)
    assert not other._local.mine.launches.by_address
    assert np.array_equal(other(*arrays), queued)


ON_ONE_CORE = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy as np, rollergen as rg
kernel = rg.build(rg.ops.exp(rg.tensor("X", (64, 64))), "cpu", top_k=1, profile=False, cache=False)
x = np.ones((64, 64), np.float32)
assert np.allclose(kernel(x), np.exp(x)) and np.allclose(kernel(2 * x), np.exp(2 * x))
print(kernel.launches[0].alone, kernel._local.mine.launches.by_address)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to a core")
def test_on_one_core_every_launch_is_the_callers():
    env = {name: value for name, value in os.environ.items() if name != "POCL_DEVICES"}  # chosen here for more cores
    done = subprocess.run([sys.executable, "-c", ON_ONE_CORE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


AT_EXIT = """
import numpy as np, rollergen as rg
from dataclasses import replace
from rollergen.targets import resolve
device = replace(resolve("cpu"), units=4, wake_us=0.0)
kernel = rg.build(rg.ops.exp(rg.tensor("X", (640, 64))), device, top_k=1, profile=False, cache=False)
x = np.ones((640, 64), np.float32)
for _ in range(100):
    kernel(x)
print(len(kernel.launches))
"""


def test_a_process_ends_while_threads_look_out_for_jobs():
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1"] and not done.stderr


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 1000),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1000),
        ({"cpu.max": "max 100000", "a.slice/cpu.max": "300000 100000", "a.slice/b.service/cpu.max": "max 100000"}, 3),
        ({"unified/a.slice/cpu.max": "300000 100000", "unified/a.slice/b.service/cpu.max": "200000 100000"}, 2),
        ({"cpu/q/cpu.cfs_quota_us": "100000\n", "cpu/q/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu,cpuacct/q/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/q/cpu.cfs_period_us": "100000\n"}, 4),
        ({"another.slice/cpu.max": "100000 100000", "cpuset/q/cpu.max": "100000 100000"}, 1000),
        ({}, 1000),
    ],
)
def test_no_more_cores_are_used_than_the_control_group_may(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(1000), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text("3:cpuset:/q\n1:cpu,cpuacct:/q\n0::/a.slice/b.service\n")
    assert usable_cores(tmp_path, tmp_path / "own") == cores
