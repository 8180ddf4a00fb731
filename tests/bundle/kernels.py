"""Kernels that tests save: small, odd sizes, one of each kind of program."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import rollergen as rg


def matmul():
    return rg.ops.matmul(rg.tensor("A", (70, 37)), rg.tensor("B", (37, 100)), name="C")


def chain():
    """Two products: the first one, both factors of the second, waits in a temporary."""
    product = rg.ops.matmul(rg.tensor("A", (19, 23)), rg.tensor("B", (23, 31)))
    return rg.ops.matmul(product, rg.ops.t(product), name="Y")


def packed_matmul():
    """Large enough for programs that pack the weights."""
    return rg.ops.matmul(rg.tensor("A", (64, 512)), rg.tensor("B", (512, 1024), constant=True), name="C")


def convolution():
    image, residual = rg.tensor("image", (1, 8, 14, 14)), rg.tensor("residual", (1, 16, 14, 14))
    weight, bias = rg.tensor("weight", (16, 8, 3, 3), constant=True), rg.tensor("bias", (16,))
    return rg.ops.relu(rg.ops.add(rg.ops.bias_add(rg.ops.conv2d(image, weight, padding=1), bias), residual), name="Y")


def softmax():
    return rg.ops.softmax(rg.tensor("X", (31, 130)), name="Y")


def several():
    x = rg.tensor("X", (33, 70))
    return [rg.ops.sum(x, 1, name="S"), rg.ops.softmax(x, name="P")]


def integers():
    return rg.ops.matmul(rg.tensor("A", (65, 130), "int8"), rg.tensor("B", (130, 48), "int8"), name="C")


def halves():
    return rg.ops.matmul(rg.tensor("A", (33, 65), "bfloat16"), rg.tensor("B", (65, 40), "bfloat16"), name="C")


def truth():
    return rg.ops.less(rg.tensor("A", (33, 65)), rg.tensor("B", (33, 65)), name="C")


def taken():
    """Rows of a table that has fewer than the self-test's inputs name, and the element at one place of it."""
    table, ids, one = rg.tensor("T", (3, 9)), rg.tensor("ids", (7,), "int32"), rg.tensor("one", (), "int64")
    return [rg.take(table, ids), rg.take(table, one, 1)]


def at_a_position():
    """Rows that begin where the call says, and the number itself."""
    x, pos = rg.tensor("X", (40, 9)), rg.scalar("pos", "int32", -3, 37)
    return rg.compute((3, 9), lambda i, j: x[rg.maximum(pos, 0) + i, j] * rg.cast(pos, "float32"), name="C")


def appended():
    """Keys and values at one position of two caches."""
    keys, values, new = rg.tensor("keys", (2, 17, 8)), rg.tensor("values", (2, 17, 8)), rg.tensor("new", (2, 1, 8))
    pos = rg.scalar("pos", "int64", 0, 16)
    return [rg.put(keys, new, pos, axis=1), rg.put(values, rg.ops.relu(new), pos, axis=1)]


def total():
    return rg.ops.sum(rg.tensor("A", (33, 65)), name="C")


@lru_cache
def built(make, device="cpu"):
    """The model's first choice and its runner-up, not run."""
    return rg.build(make(), device, top_k=2, profile=False, cache=False)


@lru_cache
def packing():
    """`packed_matmul` by a program that packs the weights, whichever one the model prefers; not run."""
    kernel = rg.build(packed_matmul(), "cpu", top_k=10, profile=False, cache=False)
    chosen = next(one for one in kernel.candidates if any(launch.once for launch in one.source.launches))
    others = [one for one in kernel.candidates if one is not chosen]
    return rg.Kernel(kernel.device, (chosen, *others[:1]), chosen)


_BLOCKED = "import sys; sys.modules['rollergen'] = None; import runpy; sys.argv = sys.argv[1:]; "
_BLOCKED += "runpy.run_path(sys.argv[0], run_name='__main__')"


def launched(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The Python launcher's self-test in a process of its own that cannot import rollergen."""
    command = [sys.executable, "-I", "-c", _BLOCKED, str(directory / "launcher.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", check=False)


def made_in_c(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The C launcher compiled without a warning, its self-test with the OpenCL that pip installed."""
    command = ["make", "-s", "-C", str(directory), "check-pip", f"PYTHON={sys.executable}"]
    command += ["CFLAGS=-O1 -Werror", f"ARGUMENTS={shlex.join(options)}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
