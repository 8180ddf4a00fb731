"""Where a figure comes from: machine, versions, commit, code; and the file it is kept in."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollergen.bench.origin import origin
from rollergen.hal.probes.host import cpu_model

__all__ = [
    "PRODUCT", "RESULTS", "ROOT", "begun", "code", "ever_kept", "hash_of", "keep", "keep_at", "machine_kind", "origin",
    "result_path", "unfinished",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"

PRODUCT = ("rollergen", "hal", "devices")
"""What decides which kernels are made, and what is predicted of them."""
BENCHES = ("benches",)
"""What measures them."""
_NO_CODE = {"__pycache__", "results", "data", ".suite"}


@lru_cache(maxsize=1)
def code() -> dict[str, str]:
    """Hashes of the files of `PRODUCT` and of `BENCHES`, as they were when this process first asked.

    A commit does not tell changes that are not committed, and its name is gone where a history was written anew.
    """
    return {"product": hash_of(PRODUCT), "benches": hash_of(BENCHES)}


def hash_of(folders: Sequence[str], root: Path = ROOT) -> str:
    """Of the names and contents of all files in the folders, but for what Python compiled, results and data."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in _files(root / folder)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink():  # rollergen/hal is the folder hal
            continue
        if path.is_dir() and path.name not in _NO_CODE:
            yield from _files(path)
        elif path.is_file():
            yield path


def machine_kind(name: str) -> str:
    """``<name>_<cpu>``: how all files of a bench begin that are of this kind of machine."""
    return f"{name}_{re.sub(r'[^a-z0-9]+', '-', cpu_model().lower()).strip('-')}"


def result_path(name: str) -> Path:
    """``results/<name>_<cpu>_<day>.json``."""
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return RESULTS / f"{machine_kind(name)}_{day}.json"


def unfinished(name: str) -> Path:
    """Beside `result_path`: of a bench whose result is of use only when it is whole."""
    return result_path(name).with_suffix(".unfinished")


def begun(path: Path) -> dict[str, Any]:
    """What an earlier run of this code has kept there, to go on from; else nothing.

    What other code has kept is not taken over: it would stand under the stamp of this one.  It is copied to a file of
    the same name that ends in ``.other``, and standard error says so.
    """
    if not path.exists():
        return {}
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if kept.get("code") == code():
        return kept
    aside = path.with_suffix(".other")
    shutil.copyfile(path, aside)
    at = f"commit {kept['commit'][:10]}" if kept.get("commit") else "no commit"
    print(f"{path.name} was kept by other code ({at}) and is made anew; copied to {aside.name}", file=sys.stderr)
    return {}


def ever_kept(name: str) -> list[dict[str, Any]]:
    """Every file of this bench and kind of machine, oldest first, with what `begun` copied: for benches whose rows are
    known to hold by a hash of what was examined, whatever code made it."""
    files = [path for path in RESULTS.glob(f"{machine_kind(name)}_*") if path.suffix in (".json", ".other")]
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(files, key=_day_and_age)]


def _day_and_age(path: Path) -> tuple[str, bool]:
    """What was copied is older than what is kept of the same day."""
    return path.stem, path.suffix == ".json"


def keep(name: str, content: dict[str, Any]) -> Path:
    """Writes `result_path` and returns it."""
    return keep_at(result_path(name), content)


def keep_at(path: Path, content: dict[str, Any]) -> Path:
    """Writes the file, whole or not at all."""
    written = path.with_suffix(".part")
    written.write_text(json.dumps({**origin(), "code": code(), **content}, indent=1) + "\n")
    written.replace(path)
    return path
