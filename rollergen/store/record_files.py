"""Records as JSON Lines: a line for each device spec, ``{"device": hash, "spec": {...}}``, then records.

A file that ends in .gz or .xz is compressed.  Nothing in a file is executed; every line is checked for what is
read from it.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from errno import ENOSPC
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO

from rollergen.errors import RollergenError
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.bounded import too_deep_at
from rollergen.hal.files.trusted import UnreadableFileError, open_untrusted
from rollergen.hal.load import device_hash, device_to_json, parse_device
from rollergen.hal.spec import Device
from rollergen.store.keys import as_text

LONGEST_LINE = 1 << 24
"""Characters; a record of a large program has some ten thousand."""
LARGEST_FILE = 1 << 30
"""Bytes, as it lies there: some hundred thousand records."""
DEEPEST = 32
"""Levels of brackets of one line; a record has some ten."""
LARGEST_RATIO = 1000
"""Characters for each byte of a compressed file, beyond the first `LONGEST_LINE`; of records there are some twenty."""


class RecordsError(RollergenError, ValueError):
    """A file of records is damaged, truncated or of another kind: file, line, and what is wrong."""


@dataclass(frozen=True)
class RecordFile:
    """The content of a file: device specs by hash, and records in order."""

    devices: dict[str, Device]
    records: tuple[dict[str, Any], ...]


def append(path: Path, device: Device, records: Iterable[dict[str, Any]]) -> None:
    """Adds records of one device, whose spec is written where the file lacks it, all or none: half a compressed block
    would make the whole file unreadable.  Raises RecordsError."""
    texts = [as_text(record) for record in records]
    try:
        known = _device_lines(path) if path.exists() else set()
        lines = texts if device_hash(device) in known else [_device_line(device), *texts]
        _append_whole(path, _packed("".join(f"{line}\n" for line in lines), path.suffix))
    except RecordsError:
        raise
    except (OSError, ValueError) as error:
        raise unwritten(path, error) from None


def _packed(text: str, suffix: str) -> bytes:
    """Compressed as the ending of the file's name says."""
    content = text.encode()
    return gzip.compress(content) if suffix == ".gz" else lzma.compress(content) if suffix == ".xz" else content


def _append_whole(path: Path, content: bytes) -> None:
    """Writes in one piece; where that fails, the file is as long as it was."""
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            if file.write(content) != len(content):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        except OSError:
            file.truncate(before)
            raise


def unwritten(path: Path, error: OSError | ValueError) -> RecordsError:
    """The file that ``error`` says cannot be written: a ValueError where a file system has no such names."""
    return RecordsError(f"{str(path)!r:.200} cannot be written: {getattr(error, 'strerror', None) or error}")


def read(path: Path) -> RecordFile:
    """Raises RecordsError."""
    devices: dict[str, Device] = {}
    records: list[dict[str, Any]] = []
    for number, line in _lines(path):
        content = object_of(line, f"{path}, line {number}")
        if "device" in content and "spec" in content and "v" not in content:
            devices[content["device"]] = _device(path, number, content)
        else:
            records.append(check_record(content, f"{path}, line {number}"))
    return whole(RecordFile(devices, tuple(records)), str(path))


def whole(file: RecordFile, where: str) -> RecordFile:
    """`file`, if it has the spec of every device that its records name, by its own hash; RecordsError that begins with
    `where` otherwise."""
    for key, device in file.devices.items():
        if device_hash(device) != key:
            raise RecordsError(f"{where}: the spec's hash is {device_hash(device)}, not {key!r}")
    missing = {one["device"]["spec"] for one in file.records} - file.devices.keys()
    if missing:
        raise RecordsError(f"{where}: records of the device spec {min(missing)[:12]}, which is not in it")
    return file


def _device_line(device: Device) -> str:
    return as_text({"device": device_hash(device), "spec": device_to_json(device)})


def _device_lines(path: Path) -> set[str]:
    lines = ((number, line) for number, line in _lines(path) if line.startswith('{"device":"'))
    found = (object_of(line, f"{path}, line {number}") for number, line in lines)
    return {str(content["device"]) for content in found}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_records(path) as raw, _as_text(raw, path.suffix) as file:
            number, left = 0, most_characters(raw)
            while line := file.readline(LONGEST_LINE):
                number, left = number + 1, left - len(line)
                if left < 0:
                    raise RecordsError(f"{path}, line {number}: it unpacks to over {LARGEST_RATIO} times its size")
                if not line.endswith("\n"):
                    raise RecordsError(f"{path}, line {number}: it is cut off; expected a whole line of JSON")
                yield number, line
    except RecordsError:
        raise
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:  # ValueError: a text, or the name
        raise RecordsError(f"{str(path)!r:.200} cannot be read as records: {error}") from None


def open_records(path: Path) -> BinaryIO:
    """A regular file that is no larger than files of records are.  Raises OSError."""
    file = open_untrusted(path)
    size = os.fstat(file.fileno()).st_size
    if size <= LARGEST_FILE:
        return file
    file.close()
    raise UnreadableFileError(f"It has {size} bytes; expected at most {LARGEST_FILE}")


def most_characters(raw: IO[bytes]) -> int:
    """The most characters that a file may unpack to."""
    return LONGEST_LINE + LARGEST_RATIO * os.fstat(raw.fileno()).st_size


def _as_text(raw: IO[bytes], suffix: str) -> IO[str]:
    """The text of an open file, compressed as the ending of its name says."""
    if suffix == ".gz":
        return gzip.open(raw, "rt", encoding="utf-8")  # type: ignore[return-value, call-overload]
    if suffix == ".xz":
        return lzma.open(raw, "rt", encoding="utf-8")  # type: ignore[return-value, call-overload]
    return TextIOWrapper(raw, encoding="utf-8")  # type: ignore[type-var]


def object_of(text: str, where: str) -> dict[str, Any]:
    """The JSON object of a line or a row.  RecordsError that begins with `where` for anything else."""
    if too_deep_at(text, DEEPEST) is not None:
        raise RecordsError(f"{where}: it nests deeper than {DEEPEST} levels; expected JSON of a record")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{where}: {error}; expected JSON") from None
    if not isinstance(content, dict):
        raise RecordsError(f"{where}: expected an object, got {type(content).__name__}")
    return content


def _device(path: Path, number: int, content: dict[str, Any]) -> Device:
    try:
        return parse_device(as_text(content["spec"]).encode(), f"{path}, line {number}")
    except RollergenError as error:
        raise RecordsError(str(error)) from None


_PARTS = {"v": int, "group": str, **dict.fromkeys(("op", "device", "program", "pred", "result", "env"), dict)}
_STATES = ("ok", "compile", "launch", "wrong", "timeout")
_LARGEST = 1e300


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _is_time(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    """Whether a terminal can show it: neither control characters nor halves of others."""
    return isinstance(value, str) and value.isprintable()


def _are_extents(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(name) and type(extent) is int and 0 < extent < _LARGEST for name, extent in value.items()
    )


_Check = tuple[str, Callable[[Any], bool]]
_TEXT: _Check = ("a printable text", _is_text)
_NUMBER: _Check = ("a number", _is_number)
_FIELDS: tuple[tuple[str, str, _Check], ...] = (
    *((part, name, _TEXT) for part, name in (
        ("op", "class"), ("op", "expr"), ("op", "dtype"), ("device", "id"), ("device", "spec"),
        ("program", "kernel_sha256"),
    )),
    ("op", "extents", ("positive whole numbers by axis", _are_extents)),
    ("program", "rprogram", ("an object", lambda value: isinstance(value, dict))),
    ("program", "rank", ("a whole number", lambda value: type(value) is int and _is_number(value))),
    ("pred", "micro_ms", ("a positive number", lambda value: _is_time(value) or value == float("inf"))),
)  # fmt: skip
_CAMPAIGN: _Check = (
    "an object whose key is a text", lambda found: isinstance(found, dict) and isinstance(found.get("key"), str)
)
_FEATURES: _Check = (
    "an object whose vec is a list of numbers",
    lambda feat: isinstance(feat, dict) and isinstance(feat.get("vec"), list) and all(map(_is_number, feat["vec"])),
)


def check_record(content: Any, where: str) -> dict[str, Any]:
    """`content`, if it has what is read from a record; RecordsError that begins with `where` otherwise."""
    if not isinstance(content, dict):
        raise RecordsError(f"{where}: expected an object, got {type(content).__name__}")
    for name, kind in _PARTS.items():
        if not isinstance(content.get(name), kind):
            raise _unlike(where, name, content.get(name), f"a {kind.__name__}")
    for version, known, of in ((content["v"], 1, "v"), (content["program"].get("v", 2), 2, "program.v")):
        if version != known:
            raise _unlike(where, of, version, f"{known}: another version of rollergen wrote it")
    for part, name, (expected, fits) in _FIELDS:
        if not fits(content[part].get(name)):
            raise _unlike(where, f"{part}.{name}", content[part].get(name), expected)
    for name, (expected, fits) in (("ts", _NUMBER), ("feat", _FEATURES), ("campaign", _CAMPAIGN)):
        if name in content and not fits(content[name]):
            raise _unlike(where, name, content[name], expected)
    _check_result(content["result"], content["pred"]["micro_ms"], where)
    return content


def _check_result(result: dict[str, Any], predicted: float, where: str) -> None:
    status, times = result.get("status"), result.get("times_ms")
    if status not in _STATES:
        raise RecordsError(f"{where}: result.status is {_short(status)}; expected one of {_STATES}")
    if not isinstance(times, list) or not all(map(_is_time, times)):
        raise RecordsError(f"{where}: result.times_ms is {str(times)[:40]}; expected positive numbers")
    if status == "ok" and not times:
        raise RecordsError(f"{where}: result.status is 'ok', but there are no times")
    if status == "ok" and not _is_number(predicted):
        raise RecordsError(f"{where}: result.status is 'ok', but pred.micro_ms is {predicted}")


def _unlike(where: str, name: str, value: Any, expected: str) -> RecordsError:
    return RecordsError(f"{where}: {name} is {_short(value)}; expected {expected}")


def _short(value: Any) -> str:
    return repr(str(value)[:40])
