"""What a module of the package imports, read from its source: tests of the architecture use it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"rollergen": ROOT / "rollergen", "rollergen.hal": ROOT / "hal", "rollergen.devices": ROOT / "devices"}


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            found[name] = path
    return found


@cache
def imported(name: str, path: Path, types: bool = True) -> frozenset[str]:
    """The package's modules that module `name` imports, anywhere in it: in functions too, and with `types` under
    TYPE_CHECKING."""
    known = modules()
    tree = ast.parse(path.read_text())
    return frozenset(target for target in _targets(tree if types else _Run().visit(tree), name, path, known))


class _Run(ast.NodeTransformer):
    """What is run of a module: all but the branches for type checkers."""

    def visit_If(self, node: ast.If) -> ast.AST:
        checked = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return ast.Pass() if checked else self.generic_visit(node)


def circles(imports: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Modules that import each other, through others too: one sorted list of each such group."""
    reached = {name: _reached(name, imports) for name in imports}
    groups = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in imports}
    return sorted(sorted(group) for group in groups if group)


def _reached(name: str, imports: Mapping[str, Collection[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(imports[name])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting += imports.get(other, ())
    return seen


def _targets(tree: ast.Module, name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (target := _by_name(node)).split(".")[0] == "rollergen":
            yield target
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "rollergen")
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, path)
            if base.split(".")[0] == "rollergen":
                for alias in node.names:
                    yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base


def _by_name(call: ast.Call) -> str:
    """The module that ``importlib.import_module("...")`` names in so many words."""
    function, first = call.func, call.args[0] if call.args else None
    named = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    found = named == "import_module" and isinstance(first, ast.Constant) and isinstance(first.value, str)
    return str(first.value) if found else ""  # type: ignore[union-attr]


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
