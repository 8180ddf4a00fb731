"""Languages that source for devices is written in: each is one `Language` value, found by the name that specs give.

An installed package brings one as it brings devices (`hal.plugins`), by an entry point of the group
``rollergen.languages``: the name is the language's, the value is the `Language` in its printer's module.

    [options.entry_points]
    rollergen.languages =
        metal = acme_metal.printer:METAL
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import PluginWarning, SpecError
from rollergen.hal.files.bounded import shown
from rollergen.hal.plugins import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rollergen.hal.compilers.nvrtc import Compiled
    from rollergen.hal.runtimes.protocol import Runtime
    from rollergen.hal.spec import Device

GROUP = "rollergen.languages"
BUILT_IN = {
    "bsp": "rollergen.bsp.printer:BSP",
    "cuda": "rollergen.emit.languages:CUDA",
    "opencl": "rollergen.emit.languages:OPENCL",
}
"""Written as entry points are: a checkout that is not installed has none of its own."""
BUILT_IN_PRESENT = ("cuda", "opencl")
"""Those with `Language.present`, told here so that the error for an unknown device need not import them."""


def _any_program(program: Any) -> bool:
    return True


def _described(device: Device) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles source with no device present, for what machine code uses of registers and memory.

    ``compile(text, arch)``; ``named(arch)``: the compiler with its version; ``instructions(code)``: how many of each
    name every kernel has, None where nothing reads the code.  The first two raise `RuntimeUnavailableError` where it is
    not installed, and `BuildError` where it has not got the architecture; compiling does so, too, for text that it
    refuses.
    """

    compile: Callable[[str, str], Compiled]
    named: Callable[[str], str]
    instructions: Callable[[bytes], Mapping[str, Mapping[str, int]] | None]


@dataclass(frozen=True, slots=True)
class Machine:
    """What makes and reads programs that are no launches of blocks of threads.

    ``construct(graph, device, count)``: up to so many, best first, with their variants and predicted seconds; none
    where launches have to serve.  ``notes(graph, device)``: what `explain` says of that, a line each.
    ``predict(program, device)`` and ``interpret(program, arrays, device)``: as the model and the interpreter do.
    """

    construct: Callable[[Any, Device, int], Any]
    notes: Callable[[Any, Device], tuple[str, ...]]
    predict: Callable[[Any, Device], Any]
    interpret: Callable[[Any, Any, Device], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One printer, and what everything else asks of a language.

    ``printer``: makes the printer (an `emit.c_family.CFamily`) for a device.  ``writes``: whether it has words for a
    program's structure.  ``suffix``: of files with source.

    ``runtime``: what runs kernels for a device on this machine, raising `RuntimeUnavailableError`.
    ``present``: the device of this machine that the language's name stands for where a device is asked for, given what
    follows the name and a colon ("" where nothing does), raising the same; None: the name stands for none.
    ``mismatch``: what to know where the device present is not the one that the spec describes, "" where it is, or none
    is there.
    ``calls_take_device_arrays``: kernels are called with arrays in the device's memory, in streams; else with those of
    the host, in place.
    ``sweep``: source of a kernel ``sweep(memory)`` of which each block adds 1 to every LINEth of its BLOCK integers, so
    that caches are full of something else; "": none.
    ``launchers``: saved kernels run without rollergen, by the launchers under ``bundle/templates``.

    ``arch``: a pattern of the architectures that a target may name, ``arch_expected`` its words for errors.
    ``compiler``: None where none is known that needs no device.

    What programs may do: matrix instructions of ``matrix_layouts``, ``dot_products``, ``asynchronous_copies`` and
    ``box_copies`` where the device has them;
    ``bounds_registers``: a kernel says how many of its blocks are meant to share a unit; ``machine``: they are no
    launches of blocks, such as the sequences of exchange and compute steps of tiles without a common memory.
    """

    name: str
    printer: Callable[[Device], Any]
    suffix: str
    runtime: Callable[[Device], Runtime]
    writes: Callable[[Any], bool] = _any_program
    present: Callable[[str], Device] | None = None
    mismatch: Callable[[Device], str] = _described
    calls_take_device_arrays: bool = False
    sweep: str = ""
    launchers: bool = False
    arch: str = ".*"
    arch_expected: str = ""
    compiler: Compiler | None = None
    matrix_layouts: frozenset[str] = frozenset()
    dot_products: bool = False
    asynchronous_copies: bool = False
    box_copies: bool = False
    bounds_registers: bool = False
    machine: Machine | None = None

    def takes(self, arch: str) -> bool:
        """Whether a target may name the architecture."""
        return bool(re.fullmatch(self.arch, arch, re.ASCII | re.DOTALL))


@lru_cache(maxsize=1)
def _points() -> dict[str, EntryPoint]:
    """Entry points of installed packages by name; a process looks once.  A name that is taken is a `PluginWarning`."""
    values, found = dict(BUILT_IN), {}  # type: dict[str, str], dict[str, EntryPoint]
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.value, point.name)):
        if values.setdefault(point.name, point.value) == point.value:
            found.setdefault(point.name, point)
        else:
            owner = _owner(found[point.name]) if point.name in found else "rollergen"
            text = f"language {point.name} is left out: {owner} has one of that name; rename it"
            warnings.warn(f"{_owner(point)}: {text}", PluginWarning, stacklevel=2)
    return found


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "rollergen"


def language_names() -> tuple[str, ...]:
    """Names of the built-in languages and of those that installed packages bring, sorted."""
    return tuple(sorted({*BUILT_IN, *_points()}))


def present_names() -> tuple[str, ...]:
    """Names that stand for a device that is present, whichever it is (`rollergen.targets` resolves these)."""
    found = []
    for name in language_names():
        try:
            if name in BUILT_IN_PRESENT or (name not in BUILT_IN and language(name).present is not None):
                found.append(name)
        except SpecError as error:  # of a foreign package: other languages are not harmed
            warnings.warn(str(error), PluginWarning, stacklevel=2)
    return tuple(found)


@lru_cache(maxsize=64)
def language(name: str, where: str = "language") -> Language:
    """The language of that name; ``where``: what errors call the place that names it.

    Raises SpecError for an unknown name, and for a package whose language cannot be used.
    """
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name].split(":")
        built_in: Language = getattr(import_module(module), attribute)
        return built_in
    point = _points().get(name)
    if point is None:
        known = ", ".join(map(shown, language_names()))
        raise SpecError(f"{where} is {shown(name)}; expected one of {known}")
    try:
        found = point.load()
    except Exception as error:  # whatever a foreign package raises when it is imported
        raise SpecError(
            f"{where} is {shown(name)}: {point.value} of the package {_owner(point)} cannot be used: {error}; expected "
            "a language that can be imported"
        ) from error
    if not isinstance(found, Language) or found.name != name:
        raise SpecError(
            f"{where} is {shown(name)}: {point.value} of the package {_owner(point)} is a {type(found).__name__}; "
            f"expected a Language whose name is {shown(name)}"
        )
    return found
