"""PyTorch, eager, on the CPU or on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benches.peers.interface import Arrays, Call, Library, Operation, missing
from benches.peers.torch_table import as_tensor, function, into


def set_threads(count: int) -> None:
    if missing("torch"):
        return  # it is told as absent
    import torch

    torch.set_num_threads(count)


def no_gpu() -> str | None:
    """Why there is no torch for a GPU here; None where there is."""
    reason = missing("torch")
    if reason is not None:
        return reason
    import torch

    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA device"


def call(operation: Operation, arrays: Arrays, device: str = "cpu") -> Call:
    import torch

    tensors = [as_tensor(array).to(device) for array in arrays]
    writing = into().get(operation.name)
    if writing is None:
        made = function(operation)
        return lambda: made(*tensors)
    out = torch.empty(operation.shape, dtype=getattr(torch, operation.dtype), device=device)
    settings = dict(operation.settings)
    return lambda: writing(*tensors, out=out, **settings)


def call_cuda(operation: Operation, arrays: Arrays) -> Call:
    return _waited(call(operation, arrays, "cuda"))


Enqueued = Callable[[str, Sequence[Any], Any, Mapping[str, Any]], Call]
"""(operation's name, tensors of the GPU, where the result goes, settings) -> what enqueues the writing of it."""


def waiting_for(enqueued: Enqueued) -> Callable[[Operation, Arrays], Call]:
    """A library's ``call``, of one that writes torch's tensors on torch's current stream."""

    def call(operation: Operation, arrays: Arrays) -> Call:
        import torch

        tensors = [torch.from_numpy(array).cuda() for array in arrays]
        out = torch.empty(operation.shape, device="cuda")
        one = enqueued(operation.name, tensors, out, operation.settings)

        def written() -> Any:
            one()
            return out

        return _waited(written)

    return call


def _waited(one: Call) -> Call:
    import torch

    def waited() -> Any:
        result = one()
        torch.cuda.synchronize()
        return result

    return waited


LIBRARY = Library("PyTorch", "cpu", lambda: missing("torch"), set_threads, call)
CUDA = Library("PyTorch, CUDA", "cuda", no_gpu, set_threads, call_cuda)
