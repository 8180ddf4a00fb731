"""What a program is written as: the text of its kernels, and how they are launched."""

from __future__ import annotations

from collections.abc import Iterable

from rollergen.hal.dataclass import dataclass

ARGUMENT_BYTES = 16
"""Every array passed to a kernel starts at a multiple of this (CUDA's allocations: of 256)."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel call: ``blocks`` groups of ``threads``; ``arguments`` are buffer names, in the order of
    the kernel's parameters.  ``once``: depends on constant tensors only and runs at build.  ``private_bytes``: arrays
    of one thread, ``local_bytes``: arrays of one block; all of them, whether or not a compiler can overlay them.
    ``dynamic_bytes``: of the latter, what the launch has to ask for (and in CUDA the kernel's attribute to allow),
    because the text does not declare its size.  ``alone``: the calling thread runs all blocks, which takes it less than
    waking others would (`rprogram.StageLaunch`).  ``sizes``: values of the integer parameters behind the buffers.
    ``maps``: for each argument the words of its tensor map, to the first of which the address goes
    (`hal.tensor_maps`); none: it is an address; empty: all are.
    """

    entry: str
    blocks: int
    threads: int
    arguments: tuple[str, ...]
    once: bool = False
    private_bytes: int = 0
    local_bytes: int = 0
    dynamic_bytes: int = 0
    alone: bool = False
    sizes: tuple[int, ...] = ()
    maps: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a program's kernels, and how they are launched, in order."""

    text: str
    launches: tuple[Launch, ...]
    language: str


def packed_names(launches: Iterable[Launch]) -> frozenset[str]:
    """The buffers that launches made once take: constants among them must be, at each call, what they were then."""
    return frozenset(name for launch in launches if launch.once for name in launch.arguments)
