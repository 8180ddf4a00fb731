"""What a module of the package imports, read from its source: tests of the architecture use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"rollergen": ROOT / "rollergen", "rollergen.hal": ROOT / "hal", "rollergen.devices": ROOT / "devices"}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            found[name] = path
    return found


def imported(name: str, path: Path) -> frozenset[str]:
    """The package's modules that module `name` imports, anywhere in it (functions and type checks too)."""
    known = modules()
    return frozenset(target for target in _targets(ast.parse(path.read_text()), name, path, known))


def _targets(tree: ast.Module, name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "rollergen")
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, path)
            if base.split(".")[0] == "rollergen":
                for alias in node.names:
                    yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base


def _absolute(node: ast.ImportFrom, name: str, path: Path) -> str:
    """The module that ``from ... import`` names, its dots resolved."""
    if not node.level:
        return node.module or ""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


def reachable(*names: str) -> frozenset[str]:
    """All modules of the package that `names` import, directly or through others (`names` included)."""
    known = modules()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        waiting += imported(name, known[name])
    return frozenset(seen)
