"""What a built kernel depends on: two builds with one key give the same kernel.

The expression enters in its canonical form with tensors under neutral names, so that their names do not
split the store (axes keep theirs: they stand in the source).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.kept import keep, read_kept
from rollergen.hal.files.user_cache import cache_directory
from rollergen.hal.load import device_hash, device_to_json
from rollergen.hal.spec import Device
from rollergen.program.serial import EXPRESSION_FORMAT, table


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def as_text(value: Any) -> str:
    """JSON on one line, keys sorted: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Key:
    """``expression`` and ``device`` are hashes, ``options`` is JSON; ``driver`` is empty for kernels that are
    not profiled, which depend on none."""

    expression: str
    device: str
    options: str
    profiled: bool
    driver: str
    rollergen: str

    @property
    def hash(self) -> str:
        return sha256(as_text(asdict(self)))


def key_of(
    graph: Graph, device: Device, options: BuildOptions, top_k: int, driver: str | None, verifier: str = ""
) -> Key:
    """``driver``: of the runtime that profiles; None: none does.  ``verifier``: the identity of one that chose."""
    return _key(sha256(expression_text(graph)), device, options, top_k, driver, verifier)


def key_of_text(text: str, device: Device, options: BuildOptions, top_k: int, driver: str | None) -> Key:
    """``text``: of what is computed; the other arguments are those of `key_of`."""
    return _key(sha256(text), device, options, top_k, driver, "")


def _key(
    expression: str, device: Device, options: BuildOptions, top_k: int, driver: str | None, verifier: str
) -> Key:
    chosen = _chosen_by(options, top_k, verifier)
    return Key(expression, _device_hash(device), chosen, driver is not None, driver or "", fingerprint())


@lru_cache(maxsize=64)
def _chosen_by(options: BuildOptions, top_k: int, verifier: str) -> str:
    """What candidates are chosen by, as JSON.  (Of a kernel that this process has found before it took a fifth.)"""
    judged = {"verifier": verifier} if verifier else {}
    return as_text({**options.deciding(), "top_k": top_k, **judged})


@lru_cache(maxsize=64)
def expression_text(graph: Graph) -> str:
    """The graph as JSON, with buffers named by their place: in0, in1, out0, t0."""
    groups = (("in", graph.inputs), ("out", graph.outputs), ("t", graph.temporaries))
    neutral = {b.name: f"{prefix}{n}" for prefix, group in groups for n, b in enumerate(group)}
    roots = (*graph.inputs, *graph.outputs, *graph.temporaries, *graph.tensor_ops)
    rows, numbers = table(roots)
    named = [_buffer(neutral[row[1]], row) if row[0] == "Buffer" else row for row in rows]
    counts = [len(graph.inputs), len(graph.outputs), len(graph.temporaries), len(graph.tensor_ops)]
    return as_text({"format": EXPRESSION_FORMAT, "nodes": named, "roots": numbers, "counts": counts})


def _buffer(name: str, row: list[Any]) -> list[Any]:
    """A buffer's row with another name; most pack nothing, and are called as before there were such."""
    kept = row[2:] if row[-1] else row[2:-1]
    return [row[0], name, *kept]


_device_hash = lru_cache(maxsize=64)(device_hash)


@lru_cache(maxsize=16)
def device_text(device: Device) -> str:
    """The whole spec as JSON."""
    return as_text(device_to_json(device))


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Version of the package and a hash of its own modules: a changed one makes other kernels."""
    import rollergen
    import rollergen.hal

    folders = (*rollergen.__path__, *rollergen.hal.__path__)
    modules = sorted(module for folder in folders for module in _modules(folder, os.path.basename(folder)))
    return f"{rollergen.__version__}+{_content_hash(modules)[:16]}"


def _content_hash(modules: list[Module]) -> str:
    """Of the modules' names and contents.  To read them takes 12 ms, so the hash is kept, and holds while their paths,
    inodes, sizes and times stay the same.  (Python compares less, size and second, before it runs bytecode it kept.)"""
    told = sha256(as_text(modules))
    path = cache_directory() / "modules.json"
    kept = read_kept(path).get(told)
    if isinstance(kept, str):
        return kept
    digest = hashlib.sha256()
    for name, file, *_ in modules:
        content = Path(file).read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    if time.time() - max(changed for *_, changed in modules) * 1e-9 > _SETTLED_S:
        keep(path, told, digest.hexdigest(), _MOST)
    return digest.hexdigest()


_MOST = 16
"""Installed copies of the package, of environments that share a cache directory, whose hash is kept."""
_SETTLED_S = 2.0
"""Seconds after which a file that changes again has another time, whatever the file system's clock."""

Module = tuple[str, str, int, int, int, int]
"""Name and path, inode, bytes, and when content and anything else of it changed, in nanoseconds."""


def _modules(folder: str, name: str) -> Iterator[Module]:
    """The modules in a folder and those below it.  (`Path.rglob` takes twice as long.)"""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _modules(entry.path, f"{name}/{entry.name}")
            elif entry.name.endswith(".py"):
                told = entry.stat()
                yield f"{name}/{entry.name}", entry.path, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns
