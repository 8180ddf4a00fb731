"""TVM: its operators (topi), compiled by LLVM for this CPU into a call that writes into an array which is there.

It is untuned: tuning takes minutes for each operator and machine.  Schedules are those that TVM ships for a CPU
(dlight's matrix-vector products and row-resident reductions), for what they leave the plain one of `_plain`, and
intrinsics are topi's fast ones where it has such.  What TVM's search would find is faster, mostly in contractions and
convolutions.  TileLang brings a TVM of its own: the two cannot be in one process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benches.peers.interface import AbsentError, Arrays, Call, Library, Operation, missing, offered, require_float32

Function = Callable[..., Any]
_ROWS = ("softmax", "log_softmax", "layer_norm")
_STRIP = 64
"""Elements of the result that one thread takes at once along its only axis."""
_ONE_BY_ONE = 1
"""TVM's code for threads that the runtime binds to the cores which it may use, the fastest first."""


def absent() -> str | None:
    if "tilelang" in sys.modules:
        return "TileLang is in this process, whose TVM is another"
    return missing("tvm.topi", "tvm.s_tir.dlight")


def set_threads(count: int) -> None:
    os.environ["TVM_NUM_THREADS"] = str(count)  # read where the pool of threads is not there yet
    if absent() is None:
        import tvm

        tvm.get_global_func("runtime.config_threadpool")(_ONE_BY_ONE, count)


def _conv2d(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    from tvm import topi

    if groups == 1:
        return topi.nn.conv2d_nchw(x, w, stride, padding, 1)
    if groups != x.shape[1]:
        return topi.nn.group_conv2d_nchw(x, w, stride, padding, 1, groups)
    channels, multiplier = groups, int(w.shape[0]) // groups
    kernel = topi.reshape(w, (channels, multiplier, *w.shape[2:]))
    return topi.nn.depthwise_conv2d_nchw(x, kernel, stride, padding, 1)


def _pool(how: str) -> Function:
    def function(x: Any, kernel_size: int, stride: int, padding: int) -> Any:
        from tvm import topi

        return topi.nn.pool2d(x, [kernel_size] * 2, [stride] * 2, [1, 1], [padding] * 4, how)

    return function


def _mean(x: Any, dim: Any) -> Any:
    from tvm import topi

    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return topi.multiply(topi.sum(x, dim), 1.0 / float(np.prod([int(x.shape[n]) for n in dims])))


def _layer_norm(x: Any, normalized_shape: Any) -> Any:
    from tvm import topi

    (size,) = normalized_shape
    ones, zeros = (topi.full((size,), "float32", value) for value in (1.0, 0.0))
    return topi.nn.layer_norm(x, ones, zeros, [-1])


def _sigmoid(x: Any) -> Any:
    from tvm import topi

    return topi.divide(1.0, topi.add(1.0, topi.fast_exp(topi.negative(x))))


def _gelu(x: Any) -> Any:
    from tvm import topi

    return topi.multiply(topi.multiply(x, 0.5), topi.add(1.0, topi.fast_erf(topi.multiply(x, 0.5**0.5))))


def _table() -> Mapping[str, Function]:
    from tvm import topi

    return {
        "matmul": topi.nn.matmul, "batch_matmul": lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=False),
        "linear": topi.nn.matmul, "conv2d": _conv2d, "max_pool2d": _pool("max"), "avg_pool2d": _pool("avg"),
        "mean": _mean, "sum": lambda x, dim: topi.sum(x, dim), "amax": lambda x, dim: topi.max(x, dim),
        "softmax": lambda x, dim: topi.nn.fast_softmax(x, dim), "layer_norm": _layer_norm,
        "log_softmax": lambda x, dim: topi.nn.log_softmax(x, dim), "relu": topi.nn.relu, "add": topi.add,
        "mul": topi.multiply,
        "gelu": _gelu, "silu": lambda x: topi.multiply(x, _sigmoid(x)), "sigmoid": _sigmoid, "tanh": topi.fast_tanh,
        "transpose": lambda x, dims: topi.transpose(x, dims),
    }  # fmt: skip


def call(operation: Operation, arrays: Arrays) -> Call:
    import tvm

    made, settings = offered(_table(), operation, "TVM"), dict(operation.settings)
    require_float32(arrays, "TVM")
    if operation.name == "linear" and operation.weights:  # they are constant, and laid out once
        arrays = arrays[0], np.ascontiguousarray(arrays[1].T), *arrays[2:]
    elif operation.name == "linear":
        settings["transpose_b"] = True
    try:
        kernel = _compiled(lambda *inputs: made(*inputs, **settings), arrays, operation.name in _ROWS)
    except Exception as error:  # whatever its passes raise, there is no code to time
        raise AbsentError(f"TVM fails: {(str(error).splitlines() or [repr(error)])[-1][:200]}") from None
    inputs = [tvm.runtime.tensor(array) for array in arrays]
    out = tvm.runtime.empty(operation.shape, "float32")

    def run() -> Any:
        kernel(*inputs, out)
        return out

    return run


def _compiled(function: Function, arrays: Arrays, by_rows: bool) -> Any:
    """Takes the inputs, then the array of the result; ``by_rows``: reductions of a row and what is made of them."""
    import tvm
    from tvm import te
    from tvm.s_tir import dlight

    inputs = [te.placeholder(array.shape, "float32", f"x{n}") for n, array in enumerate(arrays)]
    module = tvm.IRModule({"main": te.create_prim_func([*inputs, function(*inputs)])})
    with _target():
        shipped = dlight.cpu.Reduction() if by_rows else dlight.cpu.GEMV()
        module = dlight.ApplyDefaultSchedule(shipped)(module)
        if "tirx.is_scheduled" not in module["main"].attrs:
            module = _plain(module)
        with tvm.transform.PassContext(opt_level=3):
            return tvm.compile(module)["main"]


def _target() -> Any:
    """This machine's CPU; sums may be taken in any order, as the other libraries' are."""
    from tvm.target import Target, codegen

    free = {f"fast-math-{what}": True for what in ("reassoc", "contract", "nsz", "nnan")}
    return Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), **free})


def _plain(module: Any) -> Any:
    """Elementwise producers inlined; of each block the outer loops of the result's axes in parallel, and the
    innermost within the loops that reduce, wherever an input is contiguous along it, so that LLVM makes vectors."""
    from tvm import s_tir

    schedule = s_tir.Schedule(module)
    for block in _blocks(schedule)[:-1]:
        try:
            schedule.compute_inline(block)
        except s_tir.schedule.ScheduleError:  # it reduces, or its consumer cannot take it in
            continue
    for block in _blocks(schedule):
        _nest(schedule, block)
    return schedule.mod


def _blocks(schedule: Any) -> list[Any]:
    root = schedule.get_sblock("root")
    return list(schedule.get_child_blocks(root))


def _nest(schedule: Any, block: Any) -> None:
    stated = schedule.get(block)
    loops = schedule.get_loops(block)
    reduces = [one.iter_type == one.CommReduce for one in stated.iter_vars]
    spatial = [loop for loop, reducing in zip(loops, reduces, strict=True) if not reducing]
    reduced = [loop for loop, reducing in zip(loops, reduces, strict=True) if reducing]
    if reduced and _contiguous(stated):
        if len(spatial) == 1:
            spatial = schedule.split(spatial[0], [None, _STRIP])
        schedule.reorder(*spatial[:-1], *reduced, spatial[-1])
    outer = schedule.fuse(*spatial[:-1]) if len(spatial) > 1 else spatial[0]
    schedule.parallel(outer)
    if reduced:
        schedule.decompose_reduction(block, reduced[0])


def _contiguous(block: Any) -> bool:
    """Whether some input's last index follows the result's last one."""
    from tvm.tirx.analysis import undefined_vars

    (last,) = undefined_vars(block.writes[0].region[-1].min) or (None,)
    return any(one.same_as(last) for read in block.reads for one in undefined_vars(read.region[-1].min))


LIBRARY = Library("TVM, untuned", "cpu", absent, set_threads, call)
