"""What a campaign measures: a TOML file, read into a list of tasks.

    name = "small products"
    device = "cpu"              # a name, or a .json file
    programs = 30               # of each operator ...
    top_k = 15                  # ... of which so many are the model's best; the others are drawn from the space
    seconds = 0.2               # wall time of each program's timing
    seeds = [0]                 # one task for each: other drawn programs, another order of timing

    [limits]                    # as in BuildOptions
    compile_limit_s = 60.0
    run_limit_s = 10.0

    [[operators]]
    problem = "matmul m=64 n=48 k=32"
    dtype = "float32"

    [[suites]]
    name = "collection"
    only = ["C0", "C1"]         # default: all entries

``name`` and ``device`` are needed, and at least one operator or suite; the values of the others above are the
defaults (``dtype``: float32).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rollergen.bench.problems import expression
from rollergen.bench.suites import Entry, suite
from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.language import Tensor
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.bounded import MOST_BYTES, TomlError, read_toml
from rollergen.hal.files.trusted import read_untrusted
from rollergen.hal.load import device_hash
from rollergen.hal.spec import Device
from rollergen.store.keys import as_text, expression_text, sha256
from rollergen.targets import resolve

_KINDS: Mapping[str, Any] = {
    "name": str, "device": str, "programs": int, "top_k": int, "seconds": (int, float), "seeds": list,
    "limits": dict, "operators": list, "suites": list,
}  # fmt: skip
_OPERATOR, _SUITE = {"problem": str, "dtype": str}, {"name": str, "only": list}
MOST = 100_000
"""Programs of an operator, and seeds."""
LARGEST_SEED = (1 << 63) - 1
_LIMITS = ("compile_limit_s", "run_limit_s", "memory_limit_bytes")


@dataclass(frozen=True)
class Task:
    """One operator on one device: what a worker needs to know to measure it, as plain data.

    ``problem``: as on the command line (`bench.problems.expression`).  ``programs`` of which ``top_k`` are the model's
    best; ``seconds`` of wall time for the timing of each.  ``options``: how safely they are run.
    """

    campaign: str
    problem: str
    dtype: str
    device: Device
    programs: int
    top_k: int
    seconds: float
    seed: int
    options: BuildOptions

    def expression(self) -> Tensor:
        """The operator; raises ArgumentError."""
        name, *words = self.problem.split()
        made = expression(name, words, self.dtype)
        if not isinstance(made, Tensor):
            raise ArgumentError(f"{self.problem} has several outputs; expected an operator with one")
        return made

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.problem} {self.dtype}" + (f", seed {self.seed}" if self.seed else "")

    @cached_property
    def id(self) -> str:
        """The same for the same work: hash of the canonical expression with its shapes, the device, and how its
        programs are chosen and timed.  Limits are left out: they decide how safely, not what."""
        operator = sha256(expression_text(canonicalize(self.expression())))
        how = [self.programs, self.top_k, float(self.seconds), self.seed]
        return sha256(as_text([operator, device_hash(self.device), how]))


@dataclass(frozen=True)
class Plan:
    """A campaign's name, its device, and its tasks, each once, in the order of the file."""

    name: str
    device: Device
    tasks: tuple[Task, ...]


def read_plan(path: Path) -> Plan:
    """Raises ArgumentError that names file, entry and what would be accepted; DeviceError for the device."""
    content = _content(path)
    _check(content, _KINDS, str(path))
    for name in ("name", "device"):
        if name not in content:
            raise ArgumentError(f'{path} lacks {name}; expected {name} = "..."')
    device = resolve(_file_beside(path, content["device"]))
    tasks = {task.id: task for task in _tasks(path, content, device)}
    if not tasks:
        raise ArgumentError(f"{path} has no operators; expected [[operators]] or [[suites]]")
    return Plan(content["name"], device, tuple(tasks.values()))


def _content(path: Path) -> dict[str, Any]:
    try:
        return read_toml(read_untrusted(path, MOST_BYTES))
    except ImportError as error:
        raise ArgumentError(f'reading {path} needs tomli ({error}); pip install "rollergen[dask]"') from None
    except OSError as error:
        raise ArgumentError(f"{str(path)!r:.200} cannot be read: {error}; expected a TOML file") from None
    except TomlError as error:
        raise ArgumentError(f"{path} cannot be read as TOML: {error}") from None


def _file_beside(path: Path, device: str) -> str | Path:
    """Device files are named from where the plan lies."""
    return path.parent / device if device.endswith(".json") else device


def _tasks(path: Path, content: Mapping[str, Any], device: Device) -> Iterator[Task]:
    count = _count(path, content, "programs", 30)
    top_k = min(_count(path, content, "top_k", 15), count)
    seconds = content.get("seconds", 0.2)
    if isinstance(seconds, bool) or not 0 < seconds < float("inf"):
        raise ArgumentError(f"{path}: seconds is {_short(seconds)}; expected a number above 0")
    seeds = _seeds(path, content)
    options = _options(path, content)
    for where, problem, dtype in _problems(path, content):
        for seed in seeds:
            task = Task(content["name"], problem, dtype, device, count, top_k, float(seconds), seed, options)
            try:
                task.id  # noqa: B018 (found now, and kept: later it would be a worker that fails)
            except RollergenError as error:
                raise ArgumentError(f"{where}: {problem}: {error}") from None
            yield task


def _options(path: Path, content: Mapping[str, Any]) -> BuildOptions:
    limits = content.get("limits", {})
    _check(limits, dict.fromkeys(_LIMITS, (int, float)), f"{path}: limits")
    try:
        return BuildOptions(isolate=True, **limits)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: limits: {error}") from None


def _seeds(path: Path, content: Mapping[str, Any]) -> list[int]:
    seeds = content.get("seeds", [0])
    if not seeds or len(seeds) > MOST or not all(type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in seeds):
        few = f"1 to {MOST} integers from 0 to {LARGEST_SEED}"
        raise ArgumentError(f"{path}: seeds is {_short(seeds)}; expected {few}, such as [0, 1]")
    return list(dict.fromkeys(seeds))


def _problems(path: Path, content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(the entry that names it, problem, dtype) of every operator."""
    for number, one in enumerate(content.get("operators", ())):
        where = f"{path}: operators[{number}]"
        _check(one, _OPERATOR, where)
        if not one.get("problem", "").split():
            raise ArgumentError(f'{where} lacks problem; expected problem = "matmul m=64 n=64 k=64" or the like')
        yield where, one["problem"], one.get("dtype", "float32")
    for number, one in enumerate(content.get("suites", ())):
        where = f"{path}: suites[{number}]"
        _check(one, _SUITE, where)
        if "name" not in one:
            raise ArgumentError(f'{where} lacks name; expected name = "collection" or another suite')
        yield from ((where, entry.name, entry.dtype) for entry in _entries(one, where))


def _entries(one: Mapping[str, Any], where: str) -> Sequence[Entry]:
    try:
        entries = suite(one["name"])
        for at, identifier in enumerate(one.get("only", ())):
            if not isinstance(identifier, str):
                found = f"only[{at}] is {_short(identifier)}"
                raise ArgumentError(f'{found}; expected the name of an entry, such as "{entries.entries[0].id}"')
        return entries.entries if "only" not in one else [entries.entry(id) for id in one["only"]]
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def _count(path: Path, content: Mapping[str, Any], name: str, default: int) -> int:
    value = content.get(name, default)
    if isinstance(value, bool) or not 1 <= value <= MOST:
        raise ArgumentError(f"{path}: {name} is {_short(value)}; expected an integer of at least 1, at most {MOST}")
    return int(value)


def _check(content: Any, kinds: Mapping[str, Any], where: str) -> None:
    if not isinstance(content, dict):
        raise ArgumentError(f"{where} is {_short(content)}; expected a table")
    for name, value in content.items():
        if name not in kinds:
            raise ArgumentError(f"{where} has no {_short(name)}; expected {', '.join(kinds)}")
        if not isinstance(value, kinds[name]):
            wanted = kinds[name] if isinstance(kinds[name], tuple) else (kinds[name],)
            kind = " or ".join(one.__name__ for one in wanted)
            raise ArgumentError(f"{where}: {name} is {_short(value)}; expected a value of type {kind}")


def _short(value: Any) -> str:
    """A value as an error shows it, however long or deep it is."""
    return reprlib.repr(value)
