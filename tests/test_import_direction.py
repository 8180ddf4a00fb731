"""The pipeline's folders import one way: a stage knows what comes before it and nothing of what follows."""

import ast
import re

import pytest

from tests.imports import circles, imported, modules

STAGES = ("expr", "tile", "program", "space", "construct", "lower", "emit", "gate", "runtime", "measure")
"""In the order of the pipeline; the other folders and the modules at the top come after all of them."""

BEFORE_ALL = {"rollergen.errors", "rollergen.hal.errors", "rollergen.hal.dataclass", "rollergen.dropped"}
ABROAD = re.compile(r"\s*(from|import) (benches|tests)\b")

IMPORTED_BY = {
    "rollergen.bsp": (),
    "rollergen.importers": ("rollergen.network",),
    "rollergen.network": ("rollergen.cli",),
}
"""Rooms beside the others: machines of tiles are found through their language, models of other frameworks by whole
models alone, and those by the public names and by the commands."""


def rank(name: str) -> int:
    """Position in the pipeline: a module may import modules of its own rank and of lower ones."""
    parts = name.split(".")
    if name in BEFORE_ALL:
        return -2
    if parts[:2] in (["rollergen", "hal"], ["rollergen", "devices"]):
        return -1
    if len(parts) > 1 and parts[1] in STAGES:
        return STAGES.index(parts[1])
    return len(STAGES)


def upward(name: str, targets: frozenset[str]) -> list[str]:
    return sorted(target for target in targets if rank(target) > rank(name))


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_imports_only_its_own_and_earlier_stages(name):
    assert upward(name, imported(name, modules()[name])) == []


@pytest.mark.parametrize("name", sorted(n for n in modules() if n.startswith("rollergen.hal")))
def test_the_hardware_layer_imports_nothing_of_the_generator(name):
    allowed = ("rollergen.hal", "rollergen.devices")
    assert [t for t in imported(name, modules()[name]) if not t.startswith(allowed)] == []


def test_the_package_imports_no_bench_and_no_test():
    lines = {n: [line for line in p.read_text("utf-8").splitlines() if ABROAD.match(line)] for n, p in modules().items()}
    assert not {name: found for name, found in lines.items() if found}


def test_expressions_know_of_no_device():
    """Of the hardware layer they take the element types, how classes are written, and NumPy when it is used."""
    theirs = ("rollergen.hal.dtypes", "rollergen.hal.dataclass", "rollergen.hal.late")
    hardware = lambda t: t.startswith(("rollergen.hal", "rollergen.devices")) and not t.startswith(theirs)
    found = {n: [t for t in imported(n, p) if hardware(t)]
             for n, p in modules().items() if n.startswith("rollergen.expr")}  # fmt: skip
    assert found and not any(found.values())


def test_no_modules_import_each_other():
    assert circles({name: imported(name, path, types=False) - {name} for name, path in modules().items()}) == []


def room(name: str) -> str:
    """A folder of the package, or a module beside them."""
    return ".".join(name.split(".")[:2])


def test_no_rooms_import_each_other():
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        targets = {room(target) for target in imported(name, path, types=False)}
        found.setdefault(room(name), set()).update(targets - {room(name)})
    assert circles(found) == []


@pytest.mark.parametrize("aside", IMPORTED_BY)
def test_rooms_beside_the_others_are_imported_by_none_but_those_named(aside):
    others = {name: path for name, path in modules().items() if room(name) not in (aside, *IMPORTED_BY[aside])}
    assert not [name for name, path in others.items() if any(room(t) == aside for t in imported(name, path))]


def test_circles_are_found_through_other_modules():
    imports = {"a": {"b"}, "b": {"c", "x"}, "c": {"a"}, "x": {"y"}, "y": (), "p": {"q"}, "q": {"p", "a"}}
    assert circles(imports) == [["a", "b", "c"], ["p", "q"]]


def test_errors_import_nothing_but_the_hardware_layers_own():
    targets = imported("rollergen.errors", modules()["rollergen.errors"])
    assert all(target == "rollergen.hal.errors" for target in targets)


@pytest.mark.parametrize(
    ("importer", "line", "found"),
    [
        ("rollergen.expr.index", "from rollergen.tile import rules", ["rollergen.tile.rules"]),
        ("rollergen.program.check.program", "import rollergen.construct.choose", ["rollergen.construct.choose"]),
        ("rollergen.program.model.price", "from rollergen.bsp.model import bulk_facts", ["rollergen.bsp.model"]),
        ("rollergen.lower.ir", "def f():\n    from rollergen.kernel import Kernel", ["rollergen.kernel"]),
        ("rollergen.hal.spec", "from rollergen.expr.values import Load", ["rollergen.expr.values"]),
        ("rollergen.tile.rules", "from ..program import check", ["rollergen.program.check"]),
        ("rollergen.expr.index", 'importlib.import_module("rollergen.tile.rules")', ["rollergen.tile.rules"]),
        ("rollergen.gate.gate", "from rollergen.expr.values import Load\nimport numpy.linalg", []),
    ],
)
def test_the_rule_sees_imports_in_every_form(tmp_path, importer, line, found):
    ast.parse(line)
    path = tmp_path / "module.py"
    path.write_text(line)
    assert upward(importer, imported(importer, path)) == found
