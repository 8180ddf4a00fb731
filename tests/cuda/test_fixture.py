"""The host run of CUDA text finds what it is there to find: each fault is seeded into text that is right."""

from __future__ import annotations

import numpy as np
import pytest

from rollergen.emit import Launch, Source
from tests.cuda.host import REVERSE, HostError, compiler, run, seeded

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

REVERSAL = """
extern "C" __global__ void __launch_bounds__(64)
reversal(const float *__restrict__ X, float *__restrict__ Y)
{
    const int thread = threadIdx.x;
    __shared__ __align__(16) float tile[64];
    tile[thread] = X[blockIdx.x*64 + thread];
    __syncthreads();
    Y[blockIdx.x*64 + thread] = tile[63 - thread];
}
"""
VECTORS = """
extern "C" __global__ void __launch_bounds__(32)
copied(const float *__restrict__ X, float *__restrict__ Y)
{
    const int thread = threadIdx.x;
    __shared__ __align__(16) float tile[132];
    *(float4 *)(tile + thread*4) = *(const float4 *)(X + thread*4);
    __syncthreads();
    const float4 value = *(float4 *)(tile + thread*4);
    *(float4 *)(Y + thread*4) = make_float4(value.x, value.y, value.z, value.w);
}
"""
WARP_SUM = """
extern "C" __global__ void __launch_bounds__(64)
warp_sum(const float *__restrict__ X, float *__restrict__ Y)
{
    float sum = X[threadIdx.x];
    for (int by = 16; by > 0; by /= 2) {
        sum = sum + __shfl_xor_sync(0xffffffff, sum, by);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(Y, sum);
    }
}
"""


def source(text: str, entry: str, blocks: int, threads: int) -> Source:
    return Source(text, (Launch(entry, blocks, threads, ("X", "Y")),), "cuda")


def result(text: Source, elements: int, **more) -> np.ndarray:
    arrays = {"X": np.arange(elements, dtype=np.float32), "Y": np.zeros(elements, np.float32)}
    return run(text, arrays, **more).arrays["Y"]


reversal = source(REVERSAL, "reversal", 3, 64)
vectors = source(VECTORS, "copied", 1, 32)


@pytest.mark.parametrize("modes", [0, REVERSE])
def test_threads_and_blocks_run_in_either_order(modes):
    wanted = np.arange(192, dtype=np.float32).reshape(3, 64)[:, ::-1].reshape(-1)
    assert np.array_equal(result(reversal, 192, modes=modes), wanted)


@pytest.mark.parametrize("modes", [0, REVERSE])
def test_a_missing_barrier_reads_what_was_not_yet_written(modes):
    got = result(seeded(reversal, r"__syncthreads\(\);", ""), 192, modes=modes)
    assert np.isnan(got).sum() == 3 * 32  # half of each block's threads come too early


def test_a_barrier_that_some_threads_miss_is_named():
    with pytest.raises(HostError, match=r"reversal: block 0: 10 of 64 threads came to a barrier, 54 ended"):
        result(seeded(reversal, r"__syncthreads\(\);", "if (thread >= 10) return; __syncthreads();"), 192)


def test_threads_at_different_barriers_do_not_meet():
    text = "if (thread < 10) { __syncthreads(); } else { __syncthreads(); }"
    with pytest.raises(HostError, match="10 of 64 threads came to a barrier"):
        result(seeded(reversal, r"__syncthreads\(\);", text), 192)


def test_shared_memory_that_nobody_wrote_is_nan():
    got = result(seeded(reversal, r"    tile\[thread\] = ", "    if (thread != 5) tile[thread] = "), 192)
    assert list(np.flatnonzero(np.isnan(got))) == [58, 122, 186]  # in every block: nothing is left from the last one


def test_vectors_at_multiples_of_their_size_are_read_and_written():
    assert np.array_equal(result(vectors, 128), np.arange(128, dtype=np.float32))


@pytest.mark.parametrize("place", [r"\(tile \+ thread\*4\) = \*", r"\(X \+ thread\*4\)", r"\(Y \+ thread\*4\)"])
def test_a_misaligned_vector_access_ends_the_run(place):
    moved = place.replace("\\", "").replace("4)", "4 + 2)").removesuffix("*")
    with pytest.raises(HostError, match="misaligned"):
        result(seeded(vectors, place, moved + ("*" if place.endswith("*") else "")), 192)


def test_an_index_beyond_a_shared_array_ends_the_run():
    with pytest.raises(HostError, match="out of bounds"):
        result(seeded(reversal, r"tile\[63 - thread\]", "tile[64 - thread]"), 192)


def test_shuffles_and_atomics():
    got = result(source(WARP_SUM, "warp_sum", 1, 64), 64)
    assert got[0] == sum(range(64))


def test_a_shuffle_that_some_lanes_miss_is_named():
    text = seeded(source(WARP_SUM, "warp_sum", 1, 64), r"    for \(", "    if (threadIdx.x == 40) return;\n    for (")
    with pytest.raises(HostError, match="block 0, warp 1: 31 of 32 lanes are at a warp-wide call"):
        result(text, 64)


def test_text_that_does_not_compile_is_refused_with_the_compiler_s_words():
    with pytest.raises(HostError, match="tyle"):
        result(seeded(reversal, "= tile", "= tyle"), 192)
