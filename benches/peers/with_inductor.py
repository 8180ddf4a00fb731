"""torch.compile: Inductor's C++ on the CPU, Triton on the GPU."""

from __future__ import annotations

import shutil

from benches.peers.interface import AbsentError, Arrays, Call, Library, Operation, missing
from benches.peers.torch_table import as_tensor, function
from benches.peers.with_torch import no_gpu, set_threads


def no_compiler() -> str | None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return "Inductor needs a C++ compiler, and neither g++ nor clang++ is here"
    return missing("torch")


def call(operation: Operation, arrays: Arrays, device: str = "cpu") -> Call:
    import torch

    tensors = [as_tensor(array).to(device) for array in arrays]
    compiled = torch.compile(function(operation), dynamic=False)
    try:
        with torch.no_grad():
            compiled(*tensors)
    except Exception as error:  # whatever its compiler raises, there is no code to time
        raise AbsentError(f"Inductor fails: {str(error).splitlines()[0][:200]}") from None

    def run() -> object:
        with torch.no_grad():
            result = compiled(*tensors)
        if device != "cpu":
            torch.cuda.synchronize()
        return result

    return run


LIBRARY = Library("Inductor", "cpu", no_compiler, set_threads, call)
CUDA = Library(
    "torch.compile, CUDA", "cuda", no_gpu, set_threads, lambda operation, arrays: call(operation, arrays, "cuda")
)
