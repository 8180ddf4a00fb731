"""Which stored kernels are known to have the text that their programs are emitted as, and need not be emitted again.

To emit a program takes 10 ms, and to import what emits it 50, more than all else that reads a kernel.  As what a
program is emitted follows from the package, whose fingerprint is in the kernel's key, from Python's version and from
NumPy, which is not imported to be asked.  So a process that has emitted and compared it, or has built it, leaves a
note: a hash of that version, of a stamp of NumPy's and of the kernel's row, which covers the hashes of its text and of
its program.

The notes stand beside the store, not in it: of a kernel that was edited, all its hashes with it, there is none, nor of
one that came with a file from elsewhere.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from rollergen.hal.files.kept import read_kept, write_kept
from rollergen.hal.files.stamp import Stamp, stamp
from rollergen.store.keys import sha256

_MOST = 1024
"""Notes; of more the latest stay."""


def is_known(store: Path, row_hash: str) -> bool:
    """Whether the row of this hash has been compared with what its program is emitted as."""
    return _note(row_hash) in _notes(store)


def note(store: Path, row_hash: str) -> None:
    """Leaves a note of a row that was."""
    made, notes = _note(row_hash), _notes(store)
    if made not in notes:
        write_kept(_file(store), {"emitted": [*notes, made][-_MOST:]})


def _note(row_hash: str) -> str:
    return sha256(f"{sys.version} | {_numpy()} | {row_hash}")[:32]


def _numpy() -> Stamp | None:
    """Of the NumPy that this process has imported or would import."""
    found = find_spec("numpy")
    return stamp(Path(found.origin)) if found and found.origin else None


def _notes(store: Path) -> list[str]:
    found = read_kept(_file(store)).get("emitted")
    return found if isinstance(found, list) else []


def _file(store: Path) -> Path:
    return store.with_name("emitted.json")
