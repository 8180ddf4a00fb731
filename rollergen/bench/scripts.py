"""The bench scripts of a checkout: they lie in benches/ beside the package and are run as they are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollergen.errors import ArgumentError, name_advice

PREFIXES = ("bench_", "check_", "stress_", "measured_")
NAMED = re.compile(r'^NAME(?:, \w+)? = "(\w+)"(?:,|$)', re.MULTILINE)
"""How a script says which name its results have."""


@dataclass(frozen=True, slots=True)
class Script:
    """A bench: ``name`` as the command line takes it, what it is for, its file, and how its results' names begin."""

    name: str
    purpose: str
    path: Path
    results: str = ""

    @property
    def begins(self) -> str:
        return self.results or self.name


def checkout() -> Path:
    """The folder that holds benches/.  Raises ArgumentError where rollergen was installed without it."""
    root = _root()
    if not has_benches():
        raise ArgumentError(f"{root} holds no benches: they come with a checkout of the repository (pip install -e .)")
    return root


def has_benches() -> bool:
    """Whether rollergen lies in a checkout."""
    return (_root() / "benches" / "results").is_dir()


def _root() -> Path:
    import rollergen

    return Path(rollergen.__file__).resolve().parent.parent


def scripts(root: Path) -> tuple[Script, ...]:
    """By name."""
    paths = sorted(p for p in (root / "benches").glob("*.py") if p.name.startswith(PREFIXES))
    return tuple(Script(p.stem.removeprefix("bench_"), _purpose(p), p, _results(p)) for p in paths)


def makers(root: Path) -> tuple[Script, ...]:
    """What leaves results: the benches, the fuzzers, foreign tests, and the scripts for a machine with a GPU."""
    folders = {"gpu": "gpu_", "foreign": ""}
    fuzzers = sorted((root / "benches").glob("fuzz*.py"))
    named = ((path, _results(path)) for folder in folders for path in sorted((root / "benches" / folder).glob("*.py")))
    others = [Script(p.stem, _purpose(p), p, f"{folders[p.parent.name]}{name}") for p, name in named if name]
    return (*scripts(root), *others, *(Script(path.stem, _purpose(path), path) for path in fuzzers))


def _results(path: Path) -> str:
    found = NAMED.search(path.read_text(encoding="utf-8"))
    return found[1] if found else ""


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].replace("``", "").split())


def script(root: Path, name: str) -> Script:
    """Raises ArgumentError, with the nearest name."""
    found = {one.name: one for one in scripts(root)}
    if name in found:
        return found[name]
    raise ArgumentError(f"there is no bench {name!r}; {name_advice(name, found)}")


def run(one: Script, arguments: Sequence[str]) -> int:
    """Runs the script with this interpreter, in the checkout; its exit status."""
    return subprocess.run([sys.executable, str(one.path), *arguments], check=False).returncode
