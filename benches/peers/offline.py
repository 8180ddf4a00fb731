"""Products of two matrices of half floats as Triton and TileLang write them for sm_90a, compiled without a GPU.

The tile and its steps are given, so that the machine code of kernels can be laid side by side.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benches.peers.interface import missing
from rollergen.hal.compilers.nvrtc import compile_cuda

ARCH = 90
SHORT = {"float16": "fp16", "bfloat16": "bf16"}
"""Triton's names of the dtypes."""
THREADS = 256
"""Of a block's consumers: two warpgroups."""


@dataclass(frozen=True)
class Product:
    """``columns = rows @ inner``: its extents, the extents of a block's tile and of a step, and the factors' dtype."""

    side: int
    tile: tuple[int, int, int]
    dtype: str


@dataclass(frozen=True)
class Offline:
    """Machine code of a kernel, and with what it was made."""

    kernel: str
    made_with: str
    code: bytes


def by_triton(product: Product) -> Iterator[Offline]:
    """By pointers, and by descriptors: of copies that threads make, and that the copy engine makes.

    Each with the most buffers that the shared memory of a block holds.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import get_ptxas
    from triton.compiler import ASTSource

    from benches.peers.triton_kernels import matmul, matmul_by_descriptors

    sizes = ("m", "n", "k")
    ways = (("Triton, pointers", matmul, {"am": "i32", "ak": 1, "bk": "i32", "bn": 1}, 4),
            ("Triton, descriptors", matmul_by_descriptors, {}, 3))  # fmt: skip
    for name, kernel, strides, stages in ways:
        constants = dict(zip(("TILE_M", "TILE_N", "TILE_K"), product.tile, strict=True))
        constants |= {key: value for key, value in strides.items() if isinstance(value, int)}
        types = dict.fromkeys("abc", f"*{SHORT[product.dtype]}") | dict.fromkeys(sizes, "i32") | strides
        signature = types | dict.fromkeys(constants, "constexpr")
        whole = {(at,): [["tt.divisibility", 16]] for at, key in enumerate(signature) if key not in constants}
        made = triton.compile(
            ASTSource(kernel, signature, constants, whole), GPUTarget("cuda", ARCH, 32),
            {"num_warps": THREADS // 32, "num_stages": stages},
        )  # fmt: skip
        yield Offline(name, f"Triton {triton.__version__}, ptxas {get_ptxas(ARCH).version}", made.asm["cubin"])


def by_tilelang(product: Product) -> Iterator[Offline]:
    """By its default: copies by a warpgroup of producers; its text goes through the same NVRTC as ours."""
    import tilelang
    from tilelang import tvm
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

    from benches.peers.tilelang_kernels import matmul

    program = matmul(*3 * (product.side,), product.dtype, *product.tile, stages=3, threads=THREADS)
    with tvm.target.Target({"kind": "cuda", "arch": f"sm_{ARCH}a"}) as target:
        text = tilelang.lower(program, target=target).kernel_source
    folders = (TILELANG_TEMPLATE_PATH, CUTLASS_INCLUDE_DIR, *headers())
    options = ("-default-device", *(f"-I{folder}" for folder in folders))
    made = compile_cuda(f"#include <tl_templates/cuda/nvrtc_std.h>\n{text}", f"sm_{ARCH}a", options)
    yield Offline("TileLang", f"TileLang {tilelang.__version__}, {made.compiler}", made.code)


def headers() -> tuple[Path, Path]:
    """CUDA's headers and CCCL's, of the wheels nvidia-cuda-runtime and nvidia-cuda-cccl (13).

    Raises FileNotFoundError where they are not installed.
    """
    include = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include"
    cccl = include / "cccl"
    if not cccl.is_dir():
        raise FileNotFoundError(f"{cccl} is missing; pip install nvidia-cuda-runtime nvidia-cuda-cccl")
    return include, cccl


COMPILERS: Mapping[str, tuple[Callable[[], str | None], Callable[[Product], Iterator[Offline]]]] = {
    "Triton": (lambda: missing("triton"), by_triton),
    "TileLang": (lambda: missing("tilelang"), by_tilelang),
}
"""(why it is not here or None, its kernels) by name."""
