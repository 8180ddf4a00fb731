"""Opens files that nobody vouched for: nothing that is no regular file is waited for or read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class UnreadableFileError(OSError):
    """A file that is not fit to be read; the message says why, without its name."""


def open_untrusted(path: str | Path) -> BinaryIO:
    """The regular file at `path`, opened for reading.

    Raises UnreadableFileError for anything else: what is missing or may not be read, a directory, a pipe (opening
    one waits for its writer), a device (some never end), and a name that no file can have.
    """
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte, or half of a character
        raise UnreadableFileError(getattr(error, "strerror", None) or str(error)) from None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise UnreadableFileError("It is a pipe, a terminal or another device")


def read_untrusted(path: str | Path, most_bytes: int) -> bytes:
    """The content, read no further than the first byte too many.  Raises UnreadableFileError."""
    try:
        with open_untrusted(path) as file:
            content = file.read(most_bytes + 1)
    except UnreadableFileError:
        raise
    except OSError as error:
        raise UnreadableFileError(error.strerror or str(error)) from None
    if len(content) > most_bytes:
        raise UnreadableFileError(f"It has more than {most_bytes} bytes")
    return content


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe waits for its writer otherwise."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
