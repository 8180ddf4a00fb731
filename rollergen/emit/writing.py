"""Programs lowered and printed, one text for all launches of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollergen.emit.c_family import CFamily
from rollergen.emit.source import Launch, Source
from rollergen.errors import DeviceError
from rollergen.hal.errors import SpecError
from rollergen.hal.languages import Language, language
from rollergen.hal.spec import Device
from rollergen.lower import OpenStages, lower_all
from rollergen.lower.ir import Kernel, array_bytes
from rollergen.program.rprogram import RProgram


def emit(program: RProgram, device: Device, dialect: str | None = None) -> Source:
    """`program` written for `device`; the same input gives the same bytes.

    ``dialect``: the name of a language (`hal.languages`); None: the first that the device's spec names and that has
    words for the program.  Most programs can be written in any: a GPU's as OpenCL C, for a machine that has OpenCL and
    no such GPU.  "bsp", the listing of what every tile does, is of programs with tile mappings.

    Raises `ProgramError` for a program that cannot be lowered, `DeviceError` for a language that is not printed, or
    has no words for what the program does (OpenCL C: matrix instructions).
    """
    return emit_all([program], device, dialect)[0]


def emit_all(programs: Sequence[RProgram], device: Device, dialect: str | None = None) -> list[Source]:
    """The `programs` of one operator, each as `emit` writes it.

    All are lowered before the first is printed: both are much code of which a program needs each part once or twice,
    and the processor's caches hold one better than both in turns (5 % of the time of ten programs).
    """
    languages = [_language(program, device, dialect) for program in programs]
    printers: list[CFamily] = [one.printer(device) for one in languages]
    lowered = lower_all(programs, device, printers[0].features) if printers else []
    return [
        _source(program, device, kernels, printer)
        for program, kernels, printer in zip(programs, lowered, printers, strict=True)
    ]


def emit_open(program: RProgram, device: Device, opened: OpenStages) -> Source:
    """`program`, of the largest sizes, as one source for all of them: the extents of the axes that are `opened` are
    arguments.  Its launches are those of the largest; errors as `emit` has them."""
    printer: CFamily = _language(program, device, None).printer(device)
    [kernels] = lower_all([program], device, printer.features, opened)
    source = _source(program, device, kernels, printer)
    sizes = [(opened[n].bounds[1],) if n in opened else () for n in range(len(kernels))]
    launches = [replace(one, sizes=own) for one, own in zip(source.launches, sizes, strict=True)]
    return replace(source, launches=tuple(launches))


def _language(program: RProgram, device: Device, dialect: str | None) -> Language:
    try:
        if dialect is not None:
            return language(dialect, "dialect")
    except SpecError as error:
        raise DeviceError(str(error)) from error.__cause__
    for target in device.targets:
        if (one := language(target.language)).writes(program):
            return one
    named = ", ".join(target.language for target in device.targets)
    raise DeviceError(f"targets of {device.name} are in {named}; expected one in a language that can write {program!r}")


def _source(program: RProgram, device: Device, kernels: tuple[Kernel, ...], printer: CFamily) -> Source:
    """The kernels' text and launches."""
    launches = tuple(
        Launch(
            k.name, k.blocks, k.threads, k.arguments, k.once, *array_bytes(k), printer.dynamic_bytes(k),
            program.launch(number).alone, maps=_words(k),
        )
        for number, k in enumerate(kernels)
    )  # fmt: skip
    return Source(printer.program(program, device, kernels), launches, printer.language)


def _words(kernel: Kernel) -> tuple[tuple[int, ...], ...]:
    """`Launch.maps`."""
    maps = dict(kernel.maps)
    return tuple(maps[p.name].words if p.name in maps else () for p in kernel.parameters) if maps else ()

