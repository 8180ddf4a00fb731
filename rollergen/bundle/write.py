"""Writes a kernel as a directory, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollergen.bundle import candidates, references
from rollergen.bundle.manifest import MANIFEST, Contents, described, parse, source_file
from rollergen.bundle.tables import tables
from rollergen.errors import BundleError
from rollergen.hal.languages import language, language_names
from rollergen.hal.load import device_to_json
from rollergen.program import serial

HEADERS = ("opencl_device.h", "opencl_subset.h", "pocl_cpu_name.h")
LAUNCHERS = ("launcher.py", "main.c", *HEADERS, "Makefile", "README.md")
"""What every bundle in a language with launchers carries, as it stands under templates/; with `SHARED`, which hal uses
too."""
SHARED = ("pocl_cpu_name.py", "pocl_linker.py")

TABLES = "kernel_tables.h"
DATA = ("program.json", "device.json", "candidates.json", "selftest.json")
_MADE_BY_RUNNING = ("selftest", "__pycache__")
_OURS = {MANIFEST, TABLES, *SHARED, *LAUNCHERS, *DATA, *_MADE_BY_RUNNING}


def save(contents: Contents, directory: str | Path) -> Path:
    """Writes the bundle into ``directory``, which must not exist, be empty, or be a bundle (then it is replaced).

    All files are written into a new directory beside it, which takes its name at the end: the target is what it was
    before or the whole bundle.  (A process killed in the instant of the exchange leaves no target, but both bundles
    beside it, the former one under a name that ends in .old.)  Returns the target's path.

    Raises BundleError: a target that is something else, a directory that cannot be written.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise BundleError(f"kernel.save(directory): directory is {directory!r}; expected a path")
    target = Path(os.path.realpath(directory))
    _refuse_to_overwrite(target)
    written = _files(contents)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(target) as fresh:
            for name, content in written.items():
                (fresh / name).write_bytes(content)
            take_place(fresh, target)
    except OSError as error:
        raise BundleError(f"{target}: the kernel cannot be saved there: {error.strerror or error}") from None
    return target


def _files(contents: Contents) -> dict[str, bytes]:
    """All files by name, the manifest last."""
    chosen = contents.chosen
    source, written = source_file(chosen.source.language), language(chosen.source.language)
    found = {
        source: chosen.source.text.encode(),
        "program.json": _json(serial.to_json(chosen.program)),
        "device.json": _json(device_to_json(contents.device), indent=1),
        "candidates.json": _json(candidates.to_json(contents.candidates, chosen)),
        "selftest.json": _json(references.to_json(contents.tests)),
    }
    if written.launchers:
        templates = files("rollergen.bundle").joinpath("templates")
        found |= {name: templates.joinpath(name).read_bytes() for name in LAUNCHERS}
        found |= {name: files("rollergen.hal.runtimes").joinpath(name).read_bytes() for name in SHARED}
        found[TABLES] = tables(described(contents, {}), contents.tests).encode()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    found[MANIFEST] = _json(described(contents, hashes), indent=1)
    parse(found[MANIFEST], MANIFEST)
    return found


def _json(value: Any, indent: int | None = None) -> bytes:
    separators = (",", ":") if indent is None else None
    return (json.dumps(value, indent=indent, separators=separators, allow_nan=False) + "\n").encode()


def _refuse_to_overwrite(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise BundleError(f"{target} is a file; expected a new name, an empty directory or a saved kernel")
    names = sorted(entry.name for entry in target.iterdir())
    ours = {*_OURS, *map(source_file, language_names())}
    foreign = [name for name in names if name not in ours]
    if names and (MANIFEST not in names or foreign):
        held = ", ".join((foreign or names)[:3])
        raise BundleError(
            f"{target} holds {held}, which are no part of a saved kernel; expected a new name, an empty directory or a "
            "saved kernel"
        )
    if names:
        parse((target / MANIFEST).read_bytes(), f"{target}/{MANIFEST}")


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A new directory beside the target, removed if it still has its name at the end."""
    path = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def take_place(fresh: Path, target: Path) -> None:
    """Gives the new directory the target's name; what had it goes away afterwards."""
    try:
        os.rename(fresh, target)  # nothing there, or an empty directory
    except OSError:
        old = fresh.with_name(f"{fresh.name}.old")
        os.rename(target, old)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old)
