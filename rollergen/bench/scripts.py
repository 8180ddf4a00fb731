"""The bench scripts of a checkout: they lie in benches/ beside the package and are run as they are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rollergen.errors import ArgumentError, DeviceError, name_advice
from rollergen.hal.dataclass import dataclass

PREFIXES = ("bench_", "check_", "stress_", "measured_")
NAMED = re.compile(r'^NAME(?:, \w+)? = "(\w+)"(?:,|$)', re.MULTILINE)
"""How a script says which name its results have."""
USAGE = re.compile(r":? (?:python )?(?:benches/)?\w+\.py\b.*")
"""How a purpose ends: ``...: python benches/bench_speed.py [--case TEXT].``"""


@dataclass(frozen=True, slots=True)
class Script:
    """A bench: ``name`` as the command line takes it, what it is for, its file, and how its results' names begin."""

    name: str
    purpose: str
    path: Path
    results: str = ""

    @property
    def what(self) -> str:
        """The purpose without the command, which its ``--help`` tells."""
        return USAGE.sub("", self.purpose)

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
    return tuple(_read(name, path) for name, path in _paths(root).items())


def _paths(root: Path) -> dict[str, Path]:
    paths = sorted(p for p in (root / "benches").glob("*.py") if p.name.startswith(PREFIXES))
    return {path.stem.removeprefix("bench_"): path for path in paths}


def _read(name: str, path: Path) -> Script:
    return Script(name, _purpose(path), path, _results(path))


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
    paths = _paths(root)
    if name in paths:
        return _read(name, paths[name])
    raise ArgumentError(f"there is no bench {name!r}; {name_advice(name, paths)}")


def _lacking(path: Path) -> list[str]:
    """Packages that the script itself imports first and that are not installed."""
    imports = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Import))
    named = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    beside = {one.stem for one in path.parent.glob("*.py")}
    return sorted(name for name in named - beside if find_spec(name) is None)


def run(one: Script, arguments: Sequence[str]) -> int:
    """Runs the script with this interpreter, in the checkout; its exit status.  Raises DeviceError that names a package
    which the script imports and which is not installed."""
    if lacking := _lacking(one.path):
        raise DeviceError(f'the bench {one.name} needs {", ".join(lacking)}; pip install "rollergen[bench]"')
    return subprocess.run([sys.executable, str(one.path), *arguments], check=False).returncode
