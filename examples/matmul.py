"""A matrix product on this machine's CPU: built, checked, timed, compared with NumPy and explained."""

import time

import numpy as np

import rollergen as rg

A, B = rg.tensor("A", (512, 512)), rg.tensor("B", (512, 512))
k = rg.reduce_axis("k", 512)
C = rg.compute((512, 512), lambda i, j: rg.sum(A[i, k] * B[k, j], axis=k), name="C")

kernel = rg.build(C)
a, b = np.random.default_rng(0).random((2, 512, 512), dtype=np.float32)
c = kernel(a, b)


def median_us(call) -> float:
    times = []
    for _ in range(50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))


print("largest error beside float64:", np.abs(c - a.astype("float64") @ b).max())
ours, numpys = median_us(lambda: kernel(a, b, out=c)), median_us(lambda: np.matmul(a, b, out=c))
print(f"rollergen {ours:.0f} us, NumPy {numpys:.0f} us")
print(kernel.explain())
