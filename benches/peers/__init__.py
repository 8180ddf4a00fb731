"""The libraries that kernels are compared with: one file each, all behind `interface.Library`.

A library that is not here, or does not offer an operation, is reported with the reason and not silently left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benches.peers import (
    with_clblast,
    with_inductor,
    with_jax,
    with_numpy,
    with_onnxruntime,
    with_tilelang,
    with_torch,
    with_triton,
    with_tvm,
)
from benches.peers.interface import AbsentError, Arrays, Call, Library, NotOfferedError, Operation, as_numpy

CPU = (
    with_numpy.LIBRARY, with_torch.LIBRARY, with_inductor.LIBRARY, with_onnxruntime.LIBRARY, with_jax.LIBRARY,
    with_tvm.LIBRARY, with_clblast.LIBRARY,
)  # fmt: skip
GPU = (with_torch.CUDA, with_inductor.CUDA, with_triton.LIBRARY, with_tilelang.LIBRARY)
EVERY = (*CPU, *GPU)

__all__ = ["CPU", "EVERY", "GPU", "Competitor", "Library", "Operation", "as_numpy", "competitors", "reasons"]


@dataclass(frozen=True)
class Competitor:
    """A library's ``call`` of one operation, or ``reason``: why there is none (the call is then None)."""

    name: str
    call: Call | None
    reason: str = ""
    offered: bool = True


def competitors(operation: Operation, arrays: Arrays, libraries: Sequence[Library] = CPU) -> Iterator[Competitor]:
    """One for each library, absent ones with the reason; ``offered`` is False where the library is here, but has no
    such operation."""
    for library in libraries:
        reason = library.absent()
        if reason is not None:
            yield Competitor(library.name, None, reason)
            continue
        try:
            yield Competitor(library.name, library.call(operation, arrays))
        except NotOfferedError as error:
            yield Competitor(library.name, None, str(error), offered=False)
        except AbsentError as error:
            yield Competitor(library.name, None, str(error))


def reasons(libraries: Sequence[Library] = EVERY) -> dict[str, str]:
    """Why libraries are not here, by name."""
    found = ((library.name, library.absent()) for library in libraries)
    return {name: reason for name, reason in found if reason is not None}
