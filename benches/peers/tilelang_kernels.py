"""A matrix product in TileLang.  Importing this needs TileLang (whose TVM and the package apache-tvm exclude each
other in one process)."""

from typing import Any

import tilelang
import tilelang.language as T

CONFIGURATIONS = [
    {"tile_m": m, "tile_n": n, "tile_k": k, "stages": stages, "threads": threads}
    for m, n, k, stages, threads in (
        (64, 64, 32, 2, 128), (128, 128, 32, 3, 256), (128, 64, 32, 3, 128), (64, 128, 32, 3, 128),
        (32, 64, 32, 3, 128), (16, 64, 64, 3, 128),
    )
]  # fmt: skip


def matmul(
    m: int, n: int, k: int, dtype: str, tile_m: int, tile_n: int, tile_k: int, stages: int, threads: int
) -> Any:
    """The program of ``C[m, n] = A[m, k] @ B[k, n]``, sums in float32, of int8 in int32.  Narrow dtypes on tensor cores
    (`T.gemm`); of float32 those would make TF32, so it is multiplied and added in registers."""
    wide, made = ("int32", "int32") if dtype == "int8" else ("float32", dtype)

    @T.prim_func
    def product(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), made)):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=threads) as (column, row):
            a = T.alloc_shared((tile_m, tile_k), dtype)
            b = T.alloc_shared((tile_k, tile_n), dtype)
            total = T.alloc_fragment((tile_m, tile_n), wide)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=stages):
                T.copy(A[row * tile_m, step * tile_k], a)
                T.copy(B[step * tile_k, column * tile_n], b)
                if dtype != "float32":
                    T.gemm(a, b, total)
                else:
                    for inner in T.serial(tile_k):
                        for i, j in T.Parallel(tile_m, tile_n):
                            total[i, j] += a[i, inner] * b[inner, j]
            T.copy(total, C[row * tile_m, column * tile_n])

    return product


tuned_matmul = tilelang.autotune(configs=CONFIGURATIONS, warmup=3, rep=20)(tilelang.jit(matmul))
"""``(m, n, k, dtype)`` to a kernel of (A, B, C), the fastest of the configurations on the GPU that is present."""
