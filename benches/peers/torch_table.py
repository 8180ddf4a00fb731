"""PyTorch's functions by operation: read by all four of its peers (eager and compiled, CPU and GPU)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benches.peers.interface import Operation, offered

Function = Callable[..., Any]


def functions() -> Mapping[str, Function]:
    import torch

    f = torch.nn.functional
    return {
        "matmul": torch.mm, "batch_matmul": torch.bmm, "linear": f.linear, "conv2d": f.conv2d,
        "int_matmul": torch._int_mm, "argmax": torch.argmax, "mul": torch.mul, "rms_norm": f.rms_norm,
        "max_pool2d": f.max_pool2d, "avg_pool2d": f.avg_pool2d, "mean": torch.mean, "sum": torch.sum,
        "amax": torch.amax, "softmax": torch.softmax, "log_softmax": torch.log_softmax, "layer_norm": f.layer_norm,
        "relu": torch.relu, "add": torch.add, "gelu": f.gelu, "silu": f.silu, "sigmoid": torch.sigmoid,
        "tanh": torch.tanh, "transpose": lambda x, dims: x.permute(dims).contiguous(), "hardswish": f.hardswish,
        "group_norm": f.group_norm, "interpolate": f.interpolate, "adaptive_avg_pool2d": f.adaptive_avg_pool2d,
        "conv_transpose1d": f.conv_transpose1d, "conv_transpose2d": f.conv_transpose2d,
    }  # fmt: skip


def into() -> Mapping[str, Function]:
    """Those that write into an array which is there."""
    import torch

    return {
        "matmul": torch.mm, "batch_matmul": torch.bmm, "mean": torch.mean, "sum": torch.sum, "amax": torch.amax,
        "int_matmul": torch._int_mm, "argmax": torch.argmax, "mul": torch.mul,
        "softmax": torch.softmax, "add": torch.add, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "relu": lambda x, out: torch.clamp_min(x, 0, out=out),
        "transpose": lambda x, dims, out: out.copy_(x.permute(dims)),
    }  # fmt: skip


def as_tensor(array: Any) -> Any:
    """The array's memory as a tensor."""
    import torch

    if array.dtype.name == "bfloat16":  # torch does not know NumPy's
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def function(operation: Operation) -> Function:
    """``function(*tensors)`` with the operation's settings put in.  Raises NotOfferedError."""
    made, settings = offered(functions(), operation, "PyTorch"), dict(operation.settings)
    return lambda *tensors: made(*tensors, **settings)
