"""Whose files are believed: those that nobody but this user, or root, may write.

What lies in the caches is executed: kernels, and figures that decide how they are written.  Who may write there may run
code as this user.  So a path is looked at from the root on, link by link: whoever may write one of its directories
could put another file in its place.  Windows has no such bits; there the directory of the user's profile is private.

Of files that nobody vouched for, nothing that is no regular file is waited for or read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_MOST_LINKS = 40
"""As many as Linux follows."""


def distrusted(path: Path) -> str | None:
    """Why others could have written what lies at `path`, or will lie there; None where only this user and root could.

    Raises OSError for a path that cannot be looked at, and for a symbolic link to nothing.
    """
    if not hasattr(os, "geteuid"):
        return None
    steps = list(_steps(path.absolute()))
    folder = path.resolve().parent
    for step, info in steps:
        if info.st_uid not in (0, os.geteuid()):
            return f"{step} belongs to user {info.st_uid}; expected one that user {os.geteuid()} or root owns"
        shared = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISLNK(info.st_mode) or not shared or _only_own_entries(step, info, folder):
            continue
        if shared & stat.S_IWOTH or not _is_private(step, info):
            return f"{step} may be written by others (mode {stat.S_IMODE(info.st_mode):o}); chmod go-w takes that away"
    return None


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every directory and link on the way to a file, and the file, as far as they exist."""
    here, rest, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    yield here, here.lstat()
    while rest:
        part = rest.pop()
        step = here.parent if part == ".." else here / part
        try:
            info = step.lstat()
        except FileNotFoundError:
            return
        yield step, info
        if stat.S_ISLNK(info.st_mode):
            links, target = links + 1, Path(os.readlink(step))
            if links > _MOST_LINKS:
                raise OSError(0, f"more than {_MOST_LINKS} symbolic links lead there")
            if not step.exists():
                raise FileNotFoundError(0, f"{step} is a symbolic link to {target}, which is not there")
            here = Path(target.anchor) if target.is_absolute() else here
            rest += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            here = step


def _only_own_entries(step: Path, info: os.stat_result, folder: Path) -> bool:
    """Whether it is a directory on the way, such as /tmp, where users may replace what is their own only.  The file's
    own ``folder`` must not be: they may add what belongs to it, such as SQLite's journal."""
    return bool(info.st_mode & stat.S_ISVTX) and stat.S_ISDIR(info.st_mode) and step != folder


def _is_private(step: Path, info: os.stat_result) -> bool:
    """Whether the group is this user's own, of the same name and with no other member, and no list says who else."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(info.st_gid)
    except KeyError:
        return False
    others = set(group.gr_mem) - {user.pw_name}
    return user.pw_gid == group.gr_gid and user.pw_name == group.gr_name and not others and not _has_list(step)


def _has_list(step: Path) -> bool:
    """Whether an access control list is set, of which the group's bits are the mask only."""
    if not hasattr(os, "listxattr"):
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(step)
    except OSError:
        return False


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
