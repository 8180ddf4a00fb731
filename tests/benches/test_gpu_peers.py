"""The kernels in Triton and TileLang that ours are compared with, as far as they go without a GPU: Triton's own
interpreter runs them on the CPU, and both compilers make code for a GPU that is not there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benches.peers import with_tilelang, with_triton, with_tvm
from benches.peers.interface import NotOfferedError
from rollergen.expr.stages import cut
from tests.benches.test_peers import EACH

ROOT = Path(__file__).resolve().parents[2]
SHARED = 99 << 10
"""Bytes of shared memory that a program may have on the least of the GPUs since sm_80."""


def alone(script, **environment):
    """What the script prints, in a process of its own: the interpreter is chosen, and a TVM, for a whole process."""
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(*modules):
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"{' and '.join(lacking)} not installed")


def interpreted():
    """Each operation that Triton has, by the first configuration of its kernel, held to its definition."""
    import torch

    from benches.peers import triton_kernels

    for case in EACH:
        name, shape, settings = case.operation.name, case.operation.shape, case.operation.settings
        tensor = case.make()
        rng = np.random.default_rng(0)
        arrays = [rng.random(one.shape, dtype=np.float32) - 0.5 for one in cut(tensor, None).inputs]
        out = torch.full(shape, float("nan"))
        try:
            made = with_triton.launch(name, [torch.from_numpy(one) for one in arrays], out, settings)
        except NotOfferedError:
            continue
        chosen = triton_kernels.CONFIGURATIONS[made.kernel][0].kwargs
        triton_kernels.KERNELS[made.kernel][made.grid(chosen)](*made.arguments, **made.constants, **chosen)
        np.testing.assert_allclose(out.numpy(), tensor.evaluate(*arrays), rtol=1e-5, atol=1e-5)
        print(name)


def interpreted_norms():
    import torch

    from benches.peers import triton_kernels

    rng = torch.Generator().manual_seed(0)
    x, w, b = (torch.rand(shape, generator=rng) - 0.5 for shape in ((7, 100), (100,), (100,)))
    f = torch.nn.functional
    wanted = {
        "layer_norm": ((x, w, b), f.layer_norm(x, (100,), w, b)), "rms_norm": ((x, w), f.rms_norm(x, (100,), w, 1e-6)),
    }  # fmt: skip
    for name, (tensors, want) in wanted.items():
        out = torch.full_like(x, float("nan"))
        made = with_triton.launch(name, tensors, out, {"normalized_shape": (100,)})
        triton_kernels.KERNELS[made.kernel][made.grid({})](*made.arguments, **made.constants)
        np.testing.assert_allclose(out.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def interpreted_int8():
    import torch

    from benches.peers import triton_kernels

    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((33, 70), (70, 65)))
    out = torch.full((33, 65), -1, dtype=torch.int32)
    made, chosen = with_triton.launch("matmul", (a, b), out, {}), triton_kernels.CONFIGURATIONS["matmul"][0].kwargs
    triton_kernels.KERNELS["matmul"][made.grid(chosen)](*made.arguments, **made.constants, **chosen)
    assert torch.equal(out, a.int() @ b.int())


@needs("triton", "torch")
@pytest.mark.parametrize("what", ["interpreted_norms", "interpreted_int8"])
def test_triton_norms_and_products_of_integers_compute_what_torch_does(what):
    alone(f"from tests.benches.test_gpu_peers import {what}; {what}()", TRITON_INTERPRET="1")


@needs("triton", "torch")
def test_triton_kernels_compute_the_definition():
    script = "from tests.benches.test_gpu_peers import interpreted; interpreted()"
    done = set(alone(script, TRITON_INTERPRET="1").split())
    assert done == {"matmul", "softmax", "relu", "gelu", "silu", "sigmoid", "tanh", "add", "sum", "mean", "max"}


def compiled(name, dtype, constants):
    """By the first configuration, for an A100."""
    import triton
    from triton.backends.compiler import GPUTarget

    from benches.peers.triton_kernels import CONFIGURATIONS, KERNELS

    kernel, chosen = KERNELS[name], CONFIGURATIONS[name][0]
    known = {**constants, **chosen.kwargs}
    types = {"scale": "fp32", "eps": "fp32"} | {"weight": f"*{dtype}", "bias": f"*{dtype}"} | dict.fromkeys("abcxyz", f"*{dtype}")
    types["c"] = "*i32" if dtype == "i8" else types["c"]
    signature = {one: "constexpr" if one in known else types.get(one, "i32") for one in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=known)
    options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)


@pytest.mark.parametrize(
    ("name", "dtype", "constants"),
    [
        ("matmul", "fp32", {}), ("matmul", "fp16", {}), ("matmul", "bf16", {}), ("matmul", "i8", {}), ("softmax", "fp32", {"TILE": 1024}),
        ("norm", "bf16", {"TILE": 1024, "CENTRED": True}),
        ("unary", "fp32", {"NAME": "gelu"}), ("add", "fp32", {}), ("reduce_rows", "fp32", {"IS_MAX": False}),
        ("reduce_columns", "fp16", {"IS_MAX": True}),
    ],
)  # fmt: skip
def test_triton_kernels_compile_for_a_gpu_and_keep_their_precision(name, dtype, constants):
    pytest.importorskip("triton")
    made = compiled(name, dtype, constants)
    assert made.asm["cubin"][:4] == b"\x7fELF" and made.metadata.shared <= SHARED
    assert "tf32" not in made.asm["ptx"]
    assert ("mma.sync" in made.asm["ptx"]) == (name == "matmul" and dtype != "fp32")


LOWERED = """
import tilelang
from benches.peers.tilelang_kernels import CONFIGURATIONS, matmul
from tilelang import tvm
with tvm.target.Target({"kind": "cuda", "arch": "sm_80"}) as target:
    for dtype in ("float32", "float16"):
        source = tilelang.lower(matmul(300, 200, 100, dtype, **CONFIGURATIONS[0]), target=target).kernel_source
        print(dtype, "__global__ void product_kernel" in source, "mma" in source)
"""


@needs("tilelang", "torch")
def test_the_tilelang_product_becomes_cuda_and_keeps_its_precision():
    lines = alone(LOWERED).splitlines()
    assert "float32 True False" in lines and "float16 True True" in lines


def test_triton_refuses_what_no_kernel_is_written_for():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 5, 6)
    asked = {
        "log_softmax": ({"dim": -1}, "Triton has no log_softmax here"),
        "layer_norm": ({"normalized_shape": (6,)}, "layer_norm of 1 arrays over 1 axes; here Triton has that of the last"),
        "softmax": ({"dim": 0}, r"softmax over axis 0 of \(4, 5, 6\)"),
        "sum": ({"dim": (0, 2)}, r"sum over axes \[0, 2\]; here Triton has those that are adjacent"),
    }
    for name, (settings, reason) in asked.items():
        with pytest.raises(NotOfferedError, match=reason):
            with_triton.launch(name, [x], x, settings)
    with pytest.raises(NotOfferedError, match="rows of 65537; here Triton has those of at most 65536"):
        with_triton.launch("softmax", [torch.zeros(1, 65537)], torch.zeros(1, 65537), {"dim": -1})
    with pytest.raises(NotOfferedError, match="TileLang has no relu here"):
        with_tilelang.enqueued("relu", [x], x, {})


def test_without_a_gpu_the_reason_is_stated(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for module, name in ((with_triton, "triton"), (with_tilelang, "tilelang")):
        reason = module.absent()
        if importlib.util.find_spec(name) is None:
            assert reason.startswith(f"{name} cannot be imported")
        else:
            assert reason == f"torch {torch.__version__} finds no CUDA device"


def test_the_two_tvms_exclude_each_other(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "tvm", object())
    monkeypatch.delitem(sys.modules, "tilelang", raising=False)
    assert with_tilelang.absent() == "apache-tvm is in this process, and TileLang brings a TVM of its own"
    monkeypatch.setitem(sys.modules, "tilelang", object())
    assert with_tvm.absent() == "TileLang is in this process, whose TVM is another"
