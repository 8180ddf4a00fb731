"""The bench scripts of a checkout: they lie in benches/ beside the package and are run as they are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rollergen.errors import ArgumentError

PREFIXES = ("bench_", "check_", "stress_", "measured_")


@dataclass(frozen=True, slots=True)
class Script:
    """A bench: ``name`` as the command line takes it, what it is for, and its file."""

    name: str
    purpose: str
    path: Path


def checkout() -> Path:
    """The folder that holds benches/.  Raises ArgumentError where rollergen was installed without it."""
    import rollergen

    root = Path(rollergen.__file__).resolve().parent.parent
    if not (root / "benches" / "results").is_dir():
        raise ArgumentError(f"{root} holds no benches: they come with a checkout of the repository (pip install -e .)")
    return root


def scripts(root: Path) -> tuple[Script, ...]:
    """By name."""
    paths = sorted(p for p in (root / "benches").glob("*.py") if p.name.startswith(PREFIXES))
    return tuple(Script(p.stem.removeprefix("bench_"), _purpose(p), p) for p in paths)


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def script(root: Path, name: str) -> Script:
    """Raises ArgumentError, with the nearest name."""
    found = {one.name: one for one in scripts(root)}
    if name in found:
        return found[name]
    near = get_close_matches(name, found, n=1)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(found)}"
    raise ArgumentError(f"there is no bench {name!r}; {hint}")


def run(one: Script, arguments: Sequence[str]) -> int:
    """Runs the script with this interpreter, in the checkout; its exit status."""
    return subprocess.run([sys.executable, str(one.path), *arguments], check=False).returncode
