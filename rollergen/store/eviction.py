"""The bound of the store: where it grows beyond, what was used longest ago goes, until three quarters are left.

One table beside those of `store.schema`, made where it is missing and ignored by versions that know none:

uses          when a kernel or a model was found last; one that was never found was used when it was made

Records stay as long as removing kernels is enough; then the oldest go too, and a warning says so.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from pathlib import Path

from rollergen.errors import CacheWarning
from rollergen.hal.files import user_cache
from rollergen.hal.files.user_cache import LIMIT_VARIABLE
from rollergen.store.database import StoreError, connected, reading, waiting, writing
from rollergen.store.deliveries import forget_removed
from rollergen.store.schema import MODELS, without_triggers

_LEFT = 0.75
"""Of the bound, once something was removed: making the file smaller copies all that is left."""
_PARTS = 16
"""In so many steps everything would be removed."""

_OFTEN_S = 600.0
"""What was used within so many seconds may go in any order."""
_NOTED: dict[tuple[Path, str], float] = {}
"""Until when the use of a key need not be told again."""
_MOST_NOTED = 1024

_TABLE = "CREATE TABLE IF NOT EXISTS uses (key TEXT PRIMARY KEY, used_at REAL NOT NULL) WITHOUT ROWID"
_RECENT = "SELECT 1 FROM uses WHERE key = ? AND used_at > ?"
_BUILT = "(SELECT key, candidates, made_at FROM kernels UNION ALL SELECT key, candidates, made_at FROM models) built"
_OLDEST = f"""SELECT built.key FROM {_BUILT} LEFT JOIN uses ON uses.key = built.key
    ORDER BY json_valid(candidates), max(made_at, coalesce(used_at, 0)), built.key LIMIT ?"""
_REFERRED = "SELECT json_extract(value, '$.{0}') FROM " + _BUILT + ", json_each(candidates)"


def limit_bytes() -> int:
    """The bytes that the cache may take (`user_cache.limit_bytes`). Raises StoreError."""
    try:
        return user_cache.limit_bytes()
    except ValueError as error:
        raise StoreError(str(error)) from None


def size_bytes(path: Path) -> int:
    """Bytes of the file and of what SQLite has not yet brought into it."""
    return sum(one.stat().st_size for one in (path, waiting(path)) if one.exists())


def used(path: Path, key: str) -> None:
    """Remembers that a kernel was found, once in `_OFTEN_S` and key, which costs a process less to read than to write
    (0.7 ms and 2 to 9, or 40 where others use the disk).  Where others are writing, or nobody may, it is left out."""
    now = time.monotonic()
    if now < _NOTED.get((path, key), 0.0):
        return
    if len(_NOTED) >= _MOST_NOTED:
        _NOTED.clear()
    _NOTED[path, key] = now + _OFTEN_S
    if _told(path, key):
        return
    try:
        with writing(path, seconds=0.0) as connection:
            connection.execute(_TABLE)
            connection.execute("INSERT OR REPLACE INTO uses VALUES (?, ?)", (key, time.time()))
    except StoreError:
        return


def _told(path: Path, key: str) -> bool:
    """Whether any process remembered it within `_OFTEN_S`."""
    try:
        with reading(path) as connection:
            found = connection and connection.execute(_RECENT, (key, time.time() - _OFTEN_S)).fetchone()
    except StoreError:  # there is no table yet
        return False
    return bool(found)


def keep_below(path: Path, limit: int) -> None:
    """Removes what was used longest ago where the store takes more than `limit` bytes, and makes the file smaller.

    Raises StoreError.
    """
    if size_bytes(path) <= limit:
        return
    with writing(path) as connection:
        connection.execute(_TABLE)
        connection.execute(MODELS)
        lost = _evict(connection, int(limit * _LEFT))
    compact(path)
    if lost:
        text = f"{path}: its {lost} oldest records were removed to keep it below {limit} bytes"
        warnings.warn(f"{text}; {LIMIT_VARIABLE} names another bound", CacheWarning, stacklevel=2)


def compact(path: Path) -> None:
    """Gives the space back; where others are at work, it is used again later."""
    with closing(connected(path, "rw", seconds=1.0)) as connection:
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError:
            return


def _evict(connection: sqlite3.Connection, most: int) -> int:
    """Removes kernels, then records, until at most so many bytes are in use; returns how many records went."""
    step = 1 + connection.execute(f"SELECT count(*) FROM {_BUILT}").fetchone()[0] // _PARTS
    while _bytes_in_use(connection) > most:
        keys = connection.execute(_OLDEST, (step,)).fetchall()
        if not keys:
            return _evict_records(connection, most)
        for table in ("kernels", "models"):
            connection.executemany(f"DELETE FROM {table} WHERE key = ?", keys)
        _forget_orphans(connection)
    return 0


def _forget_orphans(connection: sqlite3.Connection) -> None:
    connection.execute(f"DELETE FROM uses WHERE key NOT IN (SELECT key FROM {_BUILT})")
    damaged = connection.execute(f"SELECT 1 FROM {_BUILT} WHERE NOT json_valid(candidates) LIMIT 1").fetchone()
    for table in () if damaged else ("program", "source"):
        connection.execute(f"DELETE FROM {table}s WHERE hash NOT IN ({_REFERRED.format(table)})")


def _evict_records(connection: sqlite3.Connection, most: int) -> int:
    before = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    step = 1 + before // _PARTS
    with without_triggers(connection):
        while _bytes_in_use(connection) > most and connection.execute(
            "DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY id LIMIT ?)", (step,)
        ).rowcount:
            pass
    forget_removed(connection)
    return int(before - connection.execute("SELECT count(*) FROM records").fetchone()[0])


def _bytes_in_use(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
