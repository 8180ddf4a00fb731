"""JAX: one jitted function, waited for.  XLA has as many threads as the process may use cores when it starts
(`os.sched_setaffinity`), and no call to set them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benches.peers.interface import Arrays, Call, Library, NotOfferedError, Operation, missing, no_threads, offered

Function = Callable[..., Any]


def _reduced(name: str) -> Function:
    def function(x: Any, dim: Any) -> Any:
        import jax.numpy as jnp

        return getattr(jnp, name)(x, axis=dim)

    return function


def _conv2d(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    import jax

    pads = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, w, (stride, stride), pads, feature_group_count=groups)


def _max_pool(x: Any, kernel_size: int, stride: int, padding: int) -> Any:
    import jax

    window, strides = (1, 1, kernel_size, kernel_size), (1, 1, stride, stride)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, -float("inf"), jax.lax.max, window, strides, pads)


def _avg_pool(x: Any, kernel_size: int, stride: int, padding: int) -> Any:
    import jax

    window, strides = (1, 1, kernel_size, kernel_size), (1, 1, stride, stride)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, strides, pads) / kernel_size**2


def _layer_norm(x: Any, normalized_shape: Any) -> Any:
    import jax

    return jax.nn.standardize(x, axis=tuple(range(-len(normalized_shape), 0)))


def _group_norm(x: Any, num_groups: int) -> Any:
    import jax

    parts = x.reshape(x.shape[0], num_groups, -1)
    return jax.nn.standardize(parts, axis=-1).reshape(x.shape)


def _interpolate(x: Any, size: Any, mode: str) -> Any:
    import jax

    return jax.image.resize(x, (*x.shape[:2], *size), mode, antialias=False)


def _adaptive_avg_pool(x: Any, output_size: int) -> Any:
    side, rest = divmod(x.shape[-1], output_size)
    if not rest:
        return _avg_pool(x, side, side, 0)
    ends = np.arange(output_size + 1) * x.shape[-1]
    first, last = ends[:-1] // output_size, -(-ends[1:] // output_size)
    at = np.arange(x.shape[-1])
    parts = (at >= first[:, None]) & (at < last[:, None])
    weights = (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)  # JAX has windows of one size alone
    return weights @ x @ weights.T


def _conv_transpose(x: Any, w: Any, stride: int, padding: int) -> Any:
    import jax
    import jax.numpy as jnp

    sides = w.ndim - 2
    pads = [(w.shape[2] - 1 - padding,) * 2] * sides
    flipped = jnp.flip(w, range(2, w.ndim)).swapaxes(0, 1)
    return jax.lax.conv_general_dilated(x, flipped, (1,) * sides, pads, lhs_dilation=(stride,) * sides)


def _rms_norm(x: Any, normalized_shape: Any) -> Any:
    import jax
    import jax.numpy as jnp

    squares = jnp.mean(x * x, axis=tuple(range(-len(normalized_shape), 0)), keepdims=True)
    return x * jax.lax.rsqrt(squares + np.finfo(np.float32).eps)


def _int_matmul(a: Any, b: Any) -> Any:
    import jax.numpy as jnp

    return jnp.matmul(a, b, preferred_element_type=jnp.int32)


def _linear(x: Any, w: Any, bias: Any = None) -> Any:
    return x @ w.T if bias is None else x @ w.T + bias


def _table() -> Mapping[str, Function]:
    import jax
    import jax.numpy as jnp

    return {
        "matmul": jnp.matmul, "batch_matmul": jnp.matmul, "linear": _linear, "conv2d": _conv2d,
        "max_pool2d": _max_pool, "avg_pool2d": _avg_pool, "mean": _reduced("mean"), "sum": _reduced("sum"),
        "amax": _reduced("max"), "softmax": lambda x, dim: jax.nn.softmax(x, dim),
        "log_softmax": lambda x, dim: jax.nn.log_softmax(x, dim), "relu": jax.nn.relu, "add": jnp.add,
        "gelu": lambda x: jax.nn.gelu(x, approximate=False), "silu": jax.nn.silu, "sigmoid": jax.nn.sigmoid,
        "tanh": jnp.tanh, "hardswish": jax.nn.hard_swish, "group_norm": _group_norm, "interpolate": _interpolate,
        "adaptive_avg_pool2d": _adaptive_avg_pool, "conv_transpose1d": _conv_transpose,
        "conv_transpose2d": _conv_transpose, "rms_norm": _rms_norm, "int_matmul": _int_matmul, "mul": jnp.multiply,
        "argmax": _reduced("argmax"), "layer_norm": _layer_norm,
        "transpose": lambda x, dims: jnp.transpose(x, dims),
    }  # fmt: skip


def call(operation: Operation, arrays: Arrays) -> Call:
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # the call is waited for: another thread would cost time
    if any(device.platform != "cpu" for device in jax.devices()):
        raise NotOfferedError("this peer is JAX on a CPU, and JAX has found another device")
    made, settings = offered(_table(), operation, "JAX"), dict(operation.settings)
    compiled = jax.jit(lambda *inputs: made(*inputs, **settings))
    inputs = [jax.numpy.asarray(array) for array in arrays]
    return lambda: compiled(*inputs).block_until_ready()


LIBRARY = Library("JAX", "cpu", lambda: missing("jax"), no_threads, call)
