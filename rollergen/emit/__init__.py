"""Kernel IR -> source text, one string for all launches of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollergen.emit import bsp
from rollergen.emit.c_family import CFamily
from rollergen.emit.cuda import Cuda
from rollergen.emit.opencl import OpenCL
from rollergen.errors import DeviceError
from rollergen.expr.quick import quick
from rollergen.hal.masked_stores import kernel_attribute
from rollergen.hal.spec import Device
from rollergen.lower import lower_all
from rollergen.lower.ir import Kernel
from rollergen.lower.usage import array_bytes
from rollergen.program.model import blocks_on_a_unit, price_stage
from rollergen.program.rprogram import RProgram


@quick
@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel call: ``blocks`` groups of ``threads``; ``arguments`` are buffer names, in the order of
    the kernel's parameters.  ``once``: depends on constant tensors only and runs at build.  ``private_bytes``: arrays
    of one thread, ``local_bytes``: arrays of one block; all of them, whether or not a compiler can overlay them.
    ``dynamic_bytes``: of the latter, what the launch has to ask for (and in CUDA the kernel's attribute to allow),
    because the text does not declare its size.  ``alone``: the calling thread runs all blocks, which takes it less than
    waking others would (`program.model.launching`).
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


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a program's kernels, and how they are launched, in order."""

    text: str
    launches: tuple[Launch, ...]
    language: str


def emit(program: RProgram, device: Device, dialect: str | None = None) -> Source:
    """`program` written for `device`; the same input gives the same bytes.

    ``dialect``: "cuda" or "opencl"; None: the language that the device's spec names first.  Any program can be
    written in either: a GPU's as OpenCL C, for a machine that has OpenCL and no such GPU.  "bsp", the listing of what
    every tile does, is of programs with homes (`RProgram.homes`); their launches are those of the OpenCL text, in
    which one work-item is one tile's compute steps and operands are read where a machine with memory has them.

    Raises `ProgramError` for a program that cannot be lowered, `DeviceError` for a language that is not printed, or
    has no words for what the program does (OpenCL C: matrix instructions).
    """
    return emit_all([program], device, dialect)[0]


def emit_all(programs: Sequence[RProgram], device: Device, dialect: str | None = None) -> list[Source]:
    """The `programs` of one operator, each as `emit` writes it.

    All are lowered before the first is printed: both are much code of which a program needs each part once or twice,
    and the processor's caches hold one better than both in turns (5 % of the time of ten programs).
    """
    listed = [dialect == bsp.LANGUAGE or (dialect is None and bool(program.homes)) for program in programs]
    printers = [_printer(device, None if one else dialect) for one in listed]
    resident = [_resident(program, device, printer) for program, printer in zip(programs, printers, strict=True)]
    lowered = lower_all(programs, device, printers[0].features, resident) if printers else []
    return [
        _source(program, device, kernels, printer, one)
        for program, kernels, printer, one in zip(programs, lowered, printers, listed, strict=True)
    ]


def _resident(program: RProgram, device: Device, printer: CFamily) -> list[int]:
    """Of each stage, how many blocks are meant to share a unit; none where the kernel cannot say."""
    if printer.bounds_registers and any(target.language == printer.language for target in device.targets):
        return [blocks_on_a_unit(stage, device) for stage in program.stages]
    return []


def _source(
    program: RProgram, device: Device, kernels: tuple[Kernel, ...], printer: CFamily, listed: bool
) -> Source:
    """The kernels' text and launches; ``listed``: the text is what every tile does."""
    launches = tuple(
        Launch(
            k.name, k.blocks, k.threads, k.arguments, k.once, *array_bytes(k), printer.dynamic_bytes(k), alone
        )
        for k, alone in zip(kernels, _alone(program, device), strict=True)
    )  # fmt: skip
    if listed:
        return Source(bsp.listing(program, device), launches, bsp.LANGUAGE)
    return Source(printer.source(kernels), launches, printer.language)


def _alone(program: RProgram, device: Device) -> list[bool]:
    """Of each launch, whether the calling thread runs it; where nobody has to be woken, none says so."""
    if not device.wake_us:
        return [False] * len(program.stages)
    return [bool(price_stage(stage, device).alone) for stage in program.stages]


def _printer(device: Device, dialect: str | None) -> CFamily:
    language = dialect or next((t.language for t in device.targets if t.language in ("cuda", "opencl")), "opencl")
    if language == "cuda":
        return Cuda()
    if language == "opencl":
        steps = int(_dialect(device, "unrolled_steps") or 0)
        return OpenCL(kernel_attribute(device), _dialect(device, "exchange_extension"), steps)
    raise DeviceError(f'dialect is {dialect!r}; expected "cuda", "opencl" or "bsp"')


def _dialect(device: Device, key: str) -> str:
    """What the device says of its OpenCL under `key`; empty: nothing."""
    return next((dict(t.dialect).get(key, "") for t in device.targets if t.language == "opencl"), "")
