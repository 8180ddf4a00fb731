"""Writes what pages show of the program's own output: ``python docs/generate.py``, after a change that moves a figure.

A page holds a marker, ``<!-- generated: NAME -->``, and below it a code block or a table; that is replaced by what the
function of that name returns.  ``tests/test_docs.py`` holds pages and functions equal.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rollergen as rg
from benches.seeds.claims import CLAIMS
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.emit import emit
from rollergen.expr.show import show
from rollergen.hal.load import known_names, load_device
from rollergen.lower import lower
from rollergen.program.interpreter import interpret
from rollergen.program.model import chains, price
from rollergen.program.model.limiters import arithmetic, bandwidth, entering, gathering, issue, latency, misses, paths
from rollergen.space.rules import SWITCHES
from rollergen.tile.exact_traffic import traffic
from rollergen.tile.rules import AlignmentRules, bank_padding, thread_multiple, transaction_elements

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n+(?:```\w*\n|(?=\|)))((?:\|[^\n]*\n)+|.*?(?=```))", re.DOTALL)
_FILES = re.compile(r"(?:benches|tests)/[\w./-]+\.(?:json|py)")
SIZE, DEVICE = 256, load_device("v100")


def _folded(line: str) -> str:
    """A line as several of at most 105 characters."""
    return "\n".join(textwrap.wrap(line, 105, subsequent_indent="    "))


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
    return "".join(f"{_folded(line.strip())}\n" for line in text.split("\n") if "tiles considered" in line)


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
    return "\n".join(_folded(f"{one}") for one in lower(_program(), DEVICE)[0].body[:3]) + "\n"


def text() -> str:
    """The head of the CUDA text."""
    return emit(_program(), DEVICE).text.partition("extern")[0]


LIMITERS: dict[str, tuple[Callable, str]] = {
    "multiply-adds": (arithmetic.arithmetic_clocks, "B W (n / r + stalls of spilled registers)"),
    "issue": (issue.instructions_of, "max(B W i / issue rate, R i x clocks between instructions of a thread)"),
    "LAYER path": (paths.path_clocks, "B W x sum over accesses of wavefronts x bytes of one / bytes a clock"),
    "load ports": (paths.path_clocks, "B W x reads / ports"),
    "store ports": (paths.path_clocks, "B W x writes / ports"),
    "latency": (
        latency.latency_clocks,
        "R (waits that steps ahead do not hide + barriers + chains of sums)",
    ),
    "LAYER bandwidth": (
        bandwidth.supply,
        "max(B x bytes / bytes a clock of a unit, bytes of all / those of the chip), the latter of a GPU's shared "
        "cache with the bytes that memory fills it with",
    ),
    "streamed stores": (bandwidth.supply, "bytes of stores past the caches / bytes a clock"),
    "filling tiles": (bandwidth.supply, "bytes that a thread brings into arrays of its own / bytes a clock"),
    "column walks": (misses.exposed_misses, "B x lines x clocks of a miss, where strides defeat the prefetchers"),
    "tlb N": (misses.exposed_misses, "B x pages beyond the buffer x clocks of a miss"),
    "gathering": (
        gathering.gathering_clocks,
        "B W (instructions that gather / integers a clock + their wavefronts), beside matrix instructions",
    ),
    "late tiles": (latency.late_tiles, "R x waits for late tiles, of blocks that have a unit each"),
    "next blocks": (
        entering.entering,
        "(blocks started - 1) x clocks from a block's end to the next one's first tile, where each has its unit alone",
    ),
    "results": (
        entering.entering,
        "B x clocks of exchanges and stores, of blocks that have a unit each",
    ),
    "staging": (entering.entering, "R x staged windows x clocks"),
    "tiles": (entering.entering, "B x register tiles x clocks, more at ragged edges"),
    "blocks": (entering.entering, "B x clocks"),
    "functions": (chains.predict_chain, "of chains: B x scores x clocks of what is computed of one"),
    "turning": (chains.predict_chain, "of chains: B x vectors turned between the two contractions"),
    "launch": (price.launched, "the spec's launch, and on a CPU waking the cores, where that pays"),
}
"""Of each limiter what counts it, and its clocks on the busiest unit: B blocks of W warps in R rounds of those that are
resident together; n multiply-add instructions of a thread at a rate r, i instructions."""


def limiters() -> str:
    """The limiters, with how each joins the others as predictions tell it."""
    joins: dict[str, list[str]] = {}
    for name, how in sorted(_seen()):
        known = re.sub(r"^tlb \d$", "tlb N", re.sub(r"^\w+ (path|bandwidth)$", r"LAYER \1", name))
        joins.setdefault(known, []).append(how)
    assert set(joins) <= set(LIMITERS), f"no row for {set(joins) - set(LIMITERS)}"
    lines = ["| limiter | clocks | joins | code |", "|---|---|---|---|"]
    for name, (function, formula) in LIMITERS.items():
        how = " or ".join(sorted(set(joins.get(name, ["adds"]))))
        lines.append(f"| {name} | {formula} | {how} | {_code(function)} |")
    return "\n".join(lines) + "\n"


def _code(function: Callable) -> str:
    file = Path(inspect.getfile(function)).relative_to(ROOT)
    return f"[`{file.name}`](../{file.as_posix()})"


def constants() -> str:
    """The constants of a spec that each file of limiters reads."""
    lines = ["| code | constants of the spec |", "|---|---|"]
    for function in {inspect.getfile(one): one for one, _ in LIMITERS.values()}.values():
        read = set(re.findall(r"costs\.(\w+)\b(?!\()", inspect.getsource(inspect.getmodule(function))))
        lines.append(f"| {_code(function)} | {', '.join(f'`{one}`' for one in sorted(read))} |")
    return "\n".join(lines) + "\n"


def _seen() -> set[tuple[str, str]]:
    """(name, how it joins) of every limiter of a few operators on devices of every kind that launches."""
    square, row = rg.tensor("A", (512, 512)), rg.tensor("x", (8192, 512))
    heads = [rg.tensor(name, (1, 4, 128, 64)) for name in "qkv"]
    image, weights = rg.tensor("i", (2, 16, 28, 28)), rg.tensor("w", (32, 16, 3, 3))
    drawn = [rg.ops.matmul(square, square), rg.ops.relu(row), rg.ops.softmax(row, -1), rg.ops.sum(row, 0)]
    drawn += [rg.ops.conv2d(image, weights), rg.ops.attention(*heads)]
    found: set[tuple[str, str]] = set()
    for device in map(load_device, ("v100", "mi50", "mi300x", "mali-g71", "cortex-a53")):
        for program in (one for expr in drawn for one in rg.construct(expr, device, 2)):
            found |= {(x.name, x.how) for stage in rg.predict(program, device).stages for x in stage.limiters}
    return found


def alignment() -> str:
    """The alignment rules: what each is made of, its switch, and what it asks of float32 on three devices."""
    rules = AlignmentRules()
    asks = {
        "execution_unit": lambda device: (
            f"{thread_multiple(device, rules)} {'threads' if device.kind.threads else 'lanes'}"
        ),
        "transaction": lambda device: f"{transaction_elements(device, 'float32', rules)} elements",
        "tensor_shape": lambda device: "what pays",
        "bank": lambda device: f"{bank_padding(device, 32, 'float32', 4, rules)} beside 32 elements",
    }
    devices = [load_device(name) for name in ("v100", "mi50", "cortex-a53")]
    lines = [f"| rule | {' | '.join(f'`{one.name}`' for one in devices)} | switch |", "|---|---|---|---|---|"]
    for switch, name in SWITCHES.items():
        lines.append(f"| {name} | {' | '.join(asks[switch](one) for one in devices)} | `{switch}` |")
    return "\n".join(lines) + "\n"


def results() -> str:
    """The headlines of every committed result, beside what was aimed at."""
    lines = ["| result | what | figure | aim | met |", "|---|---|---|---|---|"]
    files = committed("*.json")
    newest = {re.sub(r"_\d{4}-\d\d-\d\d$", "", path.stem): path for path in files}  # of one bench and machine
    for path in newest.values():
        document = json.loads(path.read_text(encoding="utf-8"))
        for one in document.get("headlines", ()) if isinstance(document, dict) else ():
            met = {True: "yes", False: "**no**", None: ""}[one.get("met")]
            machine = re.findall(r"_((?:amd|intel)[^_]*)_", path.stem)
            link = f"[{', '.join([_said(str(path)), *machine])}](../benches/results/{path.name})"
            lines.append(f"| {link} | {one['what']} | {one['figure']} | {one.get('aim', '')} | {met} |")
    return "\n".join(lines) + "\n"


def committed(pattern: str) -> list[Path]:
    """Result files that git knows, for what a run has just left says nothing yet; all of them where there is no git."""
    folder = ROOT / "benches" / "results"
    told = subprocess.run(["git", "ls-files", pattern], cwd=folder, capture_output=True, text=True, check=False)
    names = told.stdout.split() if told.returncode == 0 else []
    return sorted(folder / name for name in names) or sorted(folder.glob(pattern))


def papers() -> str:
    """What the newest run of `bench seeds` that has it found of each figure and table of the papers."""
    found = {}
    for path in sorted(committed("seeds_*.json"), key=lambda path: (path.stem[-10:], path.stem)):
        for one in json.loads(path.read_text(encoding="utf-8"))["claims"]:
            found[one["claim"]] = (path, one)
    lines = ["| `--claim` | figure | what | state | found | the paper's |", "|---|---|---|---|---|---|"]
    for claim in CLAIMS:
        if claim.id not in found:
            lines.append(f"| `{claim.id}` | {claim.of} | {claim.what} | not run yet | | |")
            continue
        path, one = found[claim.id]
        link = f"[{one['state']}](../benches/results/{path.name})"
        told = (f"`{claim.id}`", claim.of, claim.what, link, one["ours"], one["paper"])
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


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
    for one in (
        explanation,
        where,
        expression,
        space,
        rprogram,
        prediction,
        interpretation,
        kernel_ir,
        text,
        limiters,
        constants,
        alignment,
        results,
        papers,
        operators,
    )
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
