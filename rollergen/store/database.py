"""One SQLite file that many processes share: opening, short transactions, and what can go wrong.

Every operation opens a connection of its own and closes it: nothing crosses a fork, threads share nothing.
Writers are in WAL mode and take the lock with ``BEGIN IMMEDIATE``; what was committed survives the death of
any process (``synchronous=NORMAL``: a power failure may lose the last transactions, never the file).

Kernels that are found are executed, and not checked again: **who may write the store may run code** as whoever builds
with it.  So a file is used only where this user or root owns it and every directory on the way to it, and nobody else
may write there (`hal.files.trusted`); hashes find damage, not intent.
Nobody else in a process may open and close the file itself: that would drop SQLite's locks on it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from rollergen.errors import RollergenError
from rollergen.hal.files.trusted import distrusted
from rollergen.store.schema import APPLICATION_ID, STATEMENTS, TRIGGERS, VERSION

BUSY_SECONDS = 10.0
"""How long to wait for another process' transaction; these take milliseconds."""

CLEAR = "rollergen cache clear starts a new one"
ELSEWHERE = "ROLLERGEN_CACHE_DIR names another directory, cache=False does without"
_PASSING = ("locked", "busy", "full")


class StoreError(RollergenError):
    """The store cannot be used: what is wrong, and what would help.

    ``passing``: may be over at the next attempt (a full disk, another process that holds the lock).
    ``damaged``: the file itself is not one that this version reads.
    """

    def __init__(self, message: str, *, passing: bool = False, damaged: bool = False) -> None:
        super().__init__(message)
        self.passing, self.damaged = passing, damaged


@contextmanager
def reading(path: Path, *, own: bool = True) -> Iterator[sqlite3.Connection | None]:
    """A connection within one consistent view of the file; None where there is no file yet.

    ``own``: whether this is the user's own store, which nobody else may be able to write.  What another store says must
    not be trusted.  Raises StoreError.
    """
    with _named(path):
        if own:
            _refuse_others(path)
        if not path.exists():
            yield None
            return
        with closing(_opened_to_read(path)) as connection:
            connection.execute("BEGIN")  # first: else the file could be created between two questions about it
            yield connection if _is_current(connection, path) else None
            connection.execute("ROLLBACK")


@contextmanager
def writing(path: Path, seconds: float | None = None) -> Iterator[sqlite3.Connection]:
    """A connection within one transaction, committed at the end, undone by an exception; the file is made
    where there is none.  ``seconds``: how long to wait for others; None: `BUSY_SECONDS`.  Raises StoreError.
    """
    with _named(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_others(path)
        _make_private(path)
        with closing(connected(path, "rwc", seconds)) as connection:
            _share(connection, BUSY_SECONDS if seconds is None else seconds)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not _is_current(connection, path):
                    _create(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _refuse_others(path: Path) -> None:
    why = distrusted(path)
    if why is not None:
        raise StoreError(f"{why}: who may write the store may run code; {ELSEWHERE}")


def _make_private(path: Path) -> None:
    """An empty file that only this user may read and write, where there is none: SQLite would ask the umask, and gives
    what it writes beside the file the same mode.

    It is made under another name, as nobody may close the file itself."""
    if path.exists():
        return
    import tempfile  # which most processes, that find the file, do without

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    os.close(handle)
    try:
        with suppress(FileExistsError):  # another process made one
            os.link(name, path)
    finally:
        os.unlink(name)


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """In a directory that may not be written SQLite cannot share a file in WAL mode: then it is read as it
    stands, if no writer left anything beside it; every row carries its hash."""
    connection = connected(path, "rw")
    try:
        connection.execute("PRAGMA user_version").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if _is_passing(error):
            raise
        beside = waiting(path)
        if beside.exists() and beside.stat().st_size:
            raise
    return connected(path, "ro&immutable=1")


def waiting(path: Path) -> Path:
    """The file beside, of what SQLite has not yet brought into it."""
    return path.with_name(f"{path.name}-wal")


def connected(path: Path, mode: str, seconds: float | None = None) -> sqlite3.Connection:
    """``seconds``: how long to wait for others; None: `BUSY_SECONDS`."""
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"  # names on Linux are bytes, of no encoding
    wait = BUSY_SECONDS if seconds is None else seconds
    connection = sqlite3.connect(address, timeout=wait, isolation_level=None, uri=True)
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


def _share(connection: sqlite3.Connection, seconds: float) -> None:
    """WAL mode, which the file keeps.  SQLite does not wait by itself where two processes switch at once."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_passing(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _is_passing(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in _PASSING)


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has this version's schema; False for an empty one.  StoreError for any other."""
    filled = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if (version, owner) == (VERSION, APPLICATION_ID):
        _check_schema(connection, path)
        return True
    if owner == APPLICATION_ID:
        raise StoreError(f"{path} has version {version}; this rollergen reads {VERSION}; {CLEAR}", damaged=True)
    if version or owner or filled:
        raise StoreError(f"{path} is a database of another program; {ELSEWHERE}")
    return False


_TABLES = frozenset(text.split()[2] for text in STATEMENTS if text.startswith("CREATE TABLE"))


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Every table is there, and nothing else runs: views and triggers would, where rows are read or written."""
    for kind, name, statement in connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
    ):
        if statement not in TRIGGERS:
            raise StoreError(f"{path} has the {kind} {name!r:.60}, which no rollergen makes; {CLEAR}", damaged=True)
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing := sorted(_TABLES - there):
        raise StoreError(f"{path} is damaged (no table {', '.join(missing)}); {CLEAR}", damaged=True)


def _create(connection: sqlite3.Connection) -> None:
    for statement in STATEMENTS:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system as StoreError."""
    if not is_file_name(path):
        raise StoreError(f"{str(path)!r} cannot be a file's name; {ELSEWHERE}")
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path}: {error}; {ELSEWHERE}", passing=_is_passing(error)) from None
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged ({error}); {CLEAR}", damaged=True) from None
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is damaged (a text of it is not UTF-8: {error}); {CLEAR}", damaged=True) from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; {ELSEWHERE}") from None


def is_file_name(path: Path) -> bool:
    """Whether a file system could have it: without NUL, where SQLite would end the name, and with no lone surrogate."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
