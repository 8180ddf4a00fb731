"""The schema of the store: one SQLite file, readable with any SQLite.

Texts are JSON unless said otherwise; seconds are floats; a hash is SHA-256 in hexadecimal.

devices       specs as they were completed when kernels were built for them (the format of device files)
expressions   canonical expressions: tensor ops as rows of `program.serial`, buffers under neutral names
programs      rPrograms (`program.serial`)
sources       emitted texts, as they were compiled; the empty one is of programs that nobody has needed the text of, or
              that cannot be written (then they have problems)
kernels       one row for each built kernel: what it was built from, its candidates, which one was chosen
records       one row for each profiled candidate, append-only: what verifiers learn from (`store.records`)

Campaigns add two tables that say what they have delivered (`store.deliveries`), finding a kernel one that says when it
was used last (`store.eviction`), and compiling a model this one, made where it is missing:

models        one row for each compiled model.  ``steps``: what runs in which order (`network.stored`); ``candidates``:
              those of its distinct kernels, one after the other; ``parts``: of each kernel ``[how many candidates, the
              chosen one's place, cuts]``.  A kernel for all sizes is a row, too: ``steps`` has its programs and its map
              (`sizes.facts`), and nothing is in the other two, as its sources are written anew

Rows of ``devices`` are named by `hal.load.device_hash`, those of the other tables by the hash of their
content, so that damage shows and nothing stands twice.  ``kernels.key`` is the hash of the columns
``expression`` to ``rollergen`` (`store.keys`); ``kernels.hash`` covers the whole row.

``kernels.names``: ``{"inputs": [...], "outputs": [...], "temporaries": [...]}`` of the expression it was built from.
``kernels.candidates``: in the model's order ``{rank, program, source (hashes), launches, predicted_s, compile_s,
wall_s, event_s, times_s, rounds, compared, problems, check_s, ended, doubt, note, caches, noisy,
sent_bytes, fetched_bytes}``, as in `measure.outcome.Outcome`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

VERSION = 1
"""``PRAGMA user_version``: counts changes of the schema."""

APPLICATION_ID = 0x524C4752
"""``PRAGMA application_id``: "RLGR", whose file this is."""

KEPT = "records_stay", "records_stay_as_they_are"
"""Triggers that refuse what would not be appending."""

TRIGGERS = (
    "CREATE TRIGGER records_stay BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END",
    "CREATE TRIGGER records_stay_as_they_are BEFORE UPDATE ON records "
    "BEGIN SELECT RAISE(ABORT, 'records are append-only'); END",
)


@contextmanager
def without_triggers(connection: sqlite3.Connection) -> Iterator[None]:
    """Records may be removed, within the transaction that is open."""
    for name in KEPT:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for statement in TRIGGERS:
        connection.execute(statement)


MODELS = """CREATE TABLE IF NOT EXISTS models (
    key TEXT PRIMARY KEY,
    device TEXT NOT NULL,           -- hash of the completed spec
    rollergen TEXT NOT NULL,        -- plain text: version and fingerprint of the package
    steps TEXT NOT NULL,
    candidates TEXT NOT NULL,
    parts TEXT NOT NULL,
    made_at REAL NOT NULL,          -- seconds since 1970
    hash TEXT NOT NULL
) WITHOUT ROWID"""


def has_models(connection: sqlite3.Connection) -> bool:
    """Whether a model was ever compiled."""
    there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'models'"
    return connection.execute(there).fetchone() is not None


STATEMENTS = (
    "CREATE TABLE devices (hash TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE expressions (hash TEXT PRIMARY KEY, expression TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE programs (hash TEXT PRIMARY KEY, rprogram TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sources (hash TEXT PRIMARY KEY, language TEXT NOT NULL, text TEXT NOT NULL)",
    """CREATE TABLE kernels (
        key TEXT PRIMARY KEY,
        expression TEXT NOT NULL,       -- hash
        device TEXT NOT NULL,           -- hash of the completed spec
        options TEXT NOT NULL,          -- BuildOptions and top_k
        profiled INTEGER NOT NULL,      -- 1: candidates were checked and timed; 0: the model's first choice
        driver TEXT NOT NULL,           -- plain text: runtime, compiler, device as they call themselves; '' unprofiled
        rollergen TEXT NOT NULL,        -- plain text: version and fingerprint of the package
        signature TEXT NOT NULL,        -- plain text
        names TEXT NOT NULL,
        candidates TEXT NOT NULL,
        chosen INTEGER NOT NULL,        -- position in candidates
        made_at REAL NOT NULL,          -- seconds since 1970
        hash TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,      -- of record: the same measurement is never counted twice
        record TEXT NOT NULL
    )""",
    *TRIGGERS,
)
