"""Writes what pages show of the program's own output: ``python docs/generate.py``, after a change that moves a figure.

A page holds a marker, ``<!-- generated: NAME -->``, and below it a code block or a table; that is replaced by what the
function of that name returns.  ``tests/test_docs.py`` holds pages and functions equal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import rollergen as rg
from rollergen.construct.planning import planned
from rollergen.emit import emit
from rollergen.expr.show import show
from rollergen.hal.load import known_names, load_device
from rollergen.lower import lower
from rollergen.options import BuildOptions
from rollergen.program.interpreter import interpret
from rollergen.tile.exact_traffic import traffic

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "architecture.md", ROOT / "docs" / "expressions.md")
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n+(?:```\w*\n|(?=\|)))((?:\|[^\n]*\n)+|.*?(?=```))", re.DOTALL)
_FILES = re.compile(r"(?:benches|tests)/[\w./-]+\.(?:json|py)")
SIZE, DEVICE = 256, load_device("v100")


def _product(size: int) -> rg.Tensor:
    A, B = rg.tensor("A", (size, size)), rg.tensor("B", (size, size))
    k = rg.reduce_axis("k", size)
    return rg.compute((size, size), lambda i, j: rg.sum(A[i, k] * B[k, j], axis=k), name="C")


def explanation() -> str:
    """Of the README's example for a V100."""
    return rg.build(_product(1024), "v100", profile=False, cache=False).explain(brief=True) + "\n"


def _said(file: str) -> str:
    """What a test or a result is about: its name without ``test_``, machine and day."""
    return re.sub(r"^test_|_(amd|intel)-.*$", "", Path(file).stem).replace("_", " ")


def where() -> str:
    """What runs where, by what the specs say of how they were verified: devices of one language and one set of ways."""
    ways = ("compiled by its compiler", "executed elsewhere", "ran on it")
    spelled = {"cuda": "CUDA", "opencl": "OpenCL C", "bsp": "a listing"}
    rows: dict[tuple[str, ...], tuple[list[str], dict[str, list[str]]]] = {}
    for device in map(load_device, known_names()):
        key = (device.kind.language if device.verified else "", *sorted({one.how for one in device.verified}))
        names, files = rows.setdefault(key, ([], {}))
        names.append(f"`{device.name}`")
        for one in device.verified:
            listed = files.setdefault(one.how, [])
            listed += [file for file in _FILES.findall(one.what) if file not in listed]
    lines = [f"| device | source | {' | '.join(ways)} |", "|---|---|---|---|---|"]
    for (source, *_), (names, files) in sorted(rows.items(), key=lambda row: ("ran on it" not in row[0], -len(row[0]))):
        cells = [", ".join(f"[{_said(file)}]({file})" for file in files.get(way, ())) or "no" for way in ways]
        lines.append(f"| {', '.join(names)} | {spelled.get(source, 'each its own')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def expression() -> str:
    """The canonical definition of the product."""
    (op,) = planned(_product(SIZE), DEVICE, BuildOptions()).tensor_ops
    axes = ", ".join(f"{axis.name} {axis.extent} ({axis.role})" for axis in op.axes)
    body = show(op.reductions[0].bodies[0])
    return f"{op.output.name}[{', '.join(map(str, op.target))}] = sum of {body}\naxes {axes}\n"


def space() -> str:
    """What the rules reject of the space of tiles."""
    text = rg.build(_product(SIZE), DEVICE, profile=False, cache=False).explain()
    return "".join(f"{line.strip()}\n" for line in text.split("\n") if "tiles considered" in line)


def _program() -> rg.RProgram:
    return rg.construct(_product(SIZE), DEVICE, top_k=1)[0]


def rprogram() -> str:
    """The loops and copies of the best program."""
    stage = _program().stages[0]
    loops = (f"{one.kind:7}{one.axis} x {one.extent}, stride {one.stride}\n" for one in stage.loops)
    copies = (
        f"copy of {'AB'[one.load]} {one.from_layer} -> {one.to_layer} under loop {one.at_loop}: "
        f"[{', '.join(one.order)}], {one.vector} at a time, rows padded by {one.padding}, {one.depth} deep\n"
        for one in stage.copies
    )
    return "".join((*loops, *copies))


def prediction() -> str:
    """The limiters of its time, and the bytes that leave each layer."""
    stage = rg.predict(_program(), DEVICE).stages[0]
    lines = [f"{stage.seconds * 1e6:.2f} us, bound by {stage.binding}"]
    lines += [f"  {one.name:15}{one.seconds * 1e6:6.2f} us" for one in stage.limiters]
    lines += [f"  {layer} sends {int(bytes_):,} bytes" for layer, bytes_ in stage.traffic_bytes]
    return "\n".join(lines) + "\n"


def interpretation() -> str:
    """What the interpreter computes and counts, beside the closed forms."""
    program, line = _program(), DEVICE.layers[-1].transaction_bytes
    a, b = np.random.default_rng(0).integers(-4, 5, (2, SIZE, SIZE)).astype("float32")
    found = interpret(program, {"A": a, "B": b}, DEVICE)
    lines = [f"equal to NumPy's product of whole numbers: {np.array_equal(found.outputs['C'], a @ b)}"]
    for one, closed in zip(found.traffic, traffic(program.stages[0], line), strict=True):
        both = f"{one.bytes:,} bytes counted, {closed.transactions * line:,} in closed form"
        lines.append(f"{one.role} {one.tensor}: {both}")
    return "\n".join(lines) + "\n"


def kernel_ir() -> str:
    """The first nodes of the lowered kernel."""
    return "\n".join(f"{one}" for one in lower(_program(), DEVICE)[0].body[:3]) + "\n"


def text() -> str:
    """The head of the CUDA text."""
    return emit(_program(), DEVICE).text.partition("extern")[0]


def operators() -> str:
    """The operators of `rg.ops` by family, and second names."""
    families: dict[str, list[str]] = {}
    for name in sorted(rg.ops.__all__):
        module = getattr(rg.ops, name).__wrapped__.__module__.rpartition(".")[2]
        families.setdefault(module.replace("_", " "), []).append(name)
    families["second names"] = [f"{name} ({of})" for name, of in sorted(rg.ops.ALIASES.items())]
    listed = (f"{family}: {', '.join(names)}" for family, names in families.items())
    lines = (textwrap.fill(line, 110, subsequent_indent="  ") for line in listed)
    return "\n".join(lines) + "\n"


GENERATED: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (explanation, where, expression, space, rprogram, prediction, interpretation, kernel_ir, text, operators)
}


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """(name, content) of each generated block of the page's text."""
    for _, name, content in _BLOCK.findall(page):
        yield name, content


def rendered(page: str) -> str:
    """The page's text with every generated block made anew."""
    return _BLOCK.sub(lambda found: found[1] + GENERATED[found[2]](), page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
