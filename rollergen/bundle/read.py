"""Reads a saved kernel.  Nothing in it is believed before it is checked, and nothing is run."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from rollergen.bundle import candidates, references
from rollergen.bundle.manifest import (
    MANIFEST,
    MOST_BYTES,
    Contents,
    buffers,
    checked_json,
    launches_of,
    parse,
    source_file,
)
from rollergen.emit import Source
from rollergen.errors import BundleError, ProgramError, SpecError
from rollergen.hal.files.trusted import open_untrusted
from rollergen.hal.load import device_hash, parse_device
from rollergen.hal.spec import Device
from rollergen.lower.stage import stage_buffers
from rollergen.program import serial
from rollergen.program.check import check
from rollergen.program.rprogram import RProgram


def read(directory: Path) -> Contents:
    """Everything in the directory, checked.  BundleError: no saved kernel, another format, a file that was damaged or
    does not fit the others."""
    if not directory.is_dir():
        raise BundleError(f"{directory} is no directory; expected one that kernel.save or model.save wrote")
    if not os.path.lexists(directory / MANIFEST):
        raise BundleError(
            f"{directory} is no saved kernel: it has no {MANIFEST}, and no saved model: it has no model.json; expected "
            "a directory that kernel.save or model.save wrote"
        )
    manifest = parse(_content(directory, MANIFEST), f"{directory}/{MANIFEST}")
    _refuse_other_source(manifest, f"{directory}/{MANIFEST}")
    device = _device(directory, manifest)
    program = _program(directory, manifest, device)
    text = _text(_verified(directory, manifest, manifest["source"]), directory / manifest["source"])
    source = Source(text, launches_of(manifest["launches"]), manifest["language"])
    listed = checked_json(_verified(directory, manifest, "candidates.json"), f"{directory}/candidates.json")
    outcomes, chosen = candidates.from_json(listed, program, source, f"{directory}/candidates.json")
    for one in outcomes:
        _refuse_other_program(one.program, program, device, f"{directory}/candidates.json")
        if one.source.launches or not one.problems:  # one of which no source could be written has none
            _refuse_other_launches(one.source, one.program, f"{directory}/{MANIFEST}")
    stored = checked_json(_verified(directory, manifest, "selftest.json"), f"{directory}/selftest.json")
    tests = references.from_json(stored, program.outputs, f"{directory}/selftest.json")
    return Contents(device, outcomes, chosen, tuple(manifest["cuts"]), tuple(manifest["construction"]), tests)


def _device(directory: Path, manifest: dict[str, Any]) -> Device:
    try:
        device = parse_device(_verified(directory, manifest, "device.json"), f"{directory}/device.json")
    except SpecError as error:
        raise BundleError(str(error)) from None
    if device_hash(device) != manifest["device"]["spec_sha256"]:
        raise BundleError(f"{directory}/device.json is not the device whose spec_sha256 the manifest gives")
    return device


def _program(directory: Path, manifest: dict[str, Any], device: Device) -> RProgram:
    where = f"{directory}/program.json"
    try:
        program = serial.from_json(checked_json(_verified(directory, manifest, "program.json"), where))
    except ProgramError as error:
        raise BundleError(f"{where}: {error}") from None
    if buffers(program) != manifest["buffers"]:
        raise BundleError(f"{where}: its buffers are not those of the manifest")
    _refuse_invalid(program, device, where)
    return program


def _refuse_invalid(program: RProgram, device: Device, where: str) -> None:
    """A program that breaks an invariant, whatever it breaks on the way."""
    try:
        check(program, device)
    except ProgramError as error:
        raise BundleError(f"{where}: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, AttributeError) as error:
        raise BundleError(f"{where}: the program means nothing: {type(error).__name__}: {error}") from None


def _refuse_other_program(one: RProgram, program: RProgram, device: Device, where: str) -> None:
    if one is not program:
        _refuse_invalid(one, device, where)
    if (one.inputs, one.outputs) != (program.inputs, program.outputs):
        raise BundleError(f"{where}: a candidate has other inputs or outputs than the kernel")


def _refuse_other_launches(source: Source, program: RProgram, where: str) -> None:
    """Each stage has a launch, of its blocks and buffers, at build where the stage is."""
    given, stages = source.launches, program.stages
    if len(given) != len(stages):
        raise BundleError(f"{where}: launches is a list of {len(given)}; the program has {len(stages)} stages")
    known = {buffer.name for buffer in program.buffers()}
    for number, (launch, stage) in enumerate(zip(given, stages, strict=True)):
        at = f"{where}: launches[{number}]"
        unknown = [name for name in launch.arguments if name not in known]
        if unknown:
            raise BundleError(f"{at} takes {unknown[0]}, which is no buffer of the kernel")
        wanted = tuple(buffer.name for buffer in stage_buffers(stage))
        if launch.arguments[: len(wanted)] != wanted:  # behind them lie those again that have a tensor map
            raise BundleError(f"{at} takes {', '.join(launch.arguments)}; its stage's buffers are {', '.join(wanted)}")
        if (launch.once, launch.blocks) != (stage.once, stage.launched_blocks):
            found = f"{launch.blocks} blocks{' once' * launch.once}"
            raise BundleError(f"{at} is of {found}; its stage has {stage.launched_blocks}{' once' * stage.once}")


def _verified(directory: Path, manifest: dict[str, Any], name: str) -> bytes:
    """A file's content, if it is what was saved."""
    content = _content(directory, name)
    expected, found = manifest["files"].get(name), hashlib.sha256(content).hexdigest()
    if found != expected:
        said = f"the manifest says {expected}" if expected else "the manifest does not list it"
        raise BundleError(f"{directory}/{name} has SHA-256 {found}; {said}: it was changed after it was saved")
    return content


def _refuse_other_source(manifest: dict[str, Any], where: str) -> None:
    """The language must be known here, and its source lie where the bundle of one has it."""
    try:
        expected = source_file(manifest["language"])
    except SpecError as error:
        raise BundleError(f"{where}: {error}") from error.__cause__
    if manifest["source"] != expected:
        raise BundleError(f"{where}: source is {manifest['source']!r}; expected {expected!r}")


def _content(directory: Path, name: str) -> bytes:
    """A regular file, read no further than the first byte too many."""
    path = directory / name
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise BundleError(f"{path} is no regular file; expected the one that kernel.save wrote")
        with open_untrusted(path) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise BundleError(f"{directory} is no saved kernel: it has no {name}") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise BundleError(f"{path} has more than {MOST_BYTES} bytes; expected a file that kernel.save wrote")
    return content


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: byte {error.start} is no UTF-8") from None
