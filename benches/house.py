"""What the code asks of a reader, in counts: ``python benches/house.py [--root CHECKOUT]``.

Code lines (neither blank, comment nor docstring) by room, lengths of functions and files, modules that lie loose at the
top of the package, files that ask which kind of device there is, comparisons of languages' names outside ``emit/``, and
the files whose functions one build of a matmul for a V100 calls.  ``--root``: another checkout's, to compare.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import quantiles

import click

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("rollergen", "hal")
MOVED = ("benches/verify",)
"""Once part of the package: counted beside it."""
LONGEST_FILE = 400
KIND = re.compile(
    r"is_bulk\(|block_layer\(|execution_width\s*(==|!=|>|<|>=)\s*1\b|\btargets\[0\]\.language"
    r"|\.language\s*(==|!=|in)\s*\(?\"|threads_per_block\s*(==|>|<)\s*1\b"
    r"|\bif \w+\.managed and \w+\.scope == \"unit\"|\.scope == \"unit\" and \w+\.managed"
)
"""How code asks for the kind of a device: by what the spec has, instead of a field that says so."""
LANGUAGE = re.compile(r"(?<!device\.type )(==|!=|\bin)\s*\(?\"(cuda|opencl|bsp)\"|\"(cuda|opencl|bsp)\"\s*(==|!=)")
BUILD = """
import sys
import rollergen as rg

def build():
    rg.build(rg.ops.matmul(rg.tensor("A", (64, 64)), rg.tensor("B", (64, 64))), "v100", profile=False, cache=False)

build()
files = set()
sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename))
build()
sys.setprofile(None)
print(sum("/rollergen/" in name or "/hal/" in name for name in files))
"""


def modules(root: Path, folders: Iterable[str] = FOLDERS) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in (root / folder).rglob("*.py") if not path.is_symlink())


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold code."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def function_lengths(text: str, lines: set[int]) -> list[int]:
    """Code lines of each function."""
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [len(lines & set(range(n.lineno, (n.end_lineno or n.lineno) + 1))) for n in functions]


def counted(root: Path) -> dict[str, object]:
    rooms: dict[str, int] = {}
    lengths: list[int] = []
    long, kind, languages = [], [], 0
    for path in modules(root):
        text = path.read_text("utf-8")
        lines = code_lines(text)
        name = path.relative_to(root)
        room = str(name.parent)
        rooms[room] = rooms.get(room, 0) + len(lines)
        lengths += function_lengths(text, lines)
        if text.count("\n") > LONGEST_FILE:
            long.append(f"{name} {text.count(chr(10))}")
        if KIND.search(text):
            kind.append(str(name))
        if "emit" not in name.parts:
            languages += len(LANGUAGE.findall(text))
    loose = [p.name for p in sorted((root / "rollergen").glob("*.py")) if not p.name.startswith("__")]
    build = subprocess.run([sys.executable, "-c", BUILD], cwd=root, capture_output=True, text=True, check=True)
    return {
        "code lines": sum(rooms.values()),
        "code lines that moved to benches": sum(len(code_lines(p.read_text("utf-8"))) for p in modules(root, MOVED)),
        "rooms": dict(sorted(rooms.items(), key=lambda item: -item[1])),
        "functions": {"p90": round(quantiles(lengths, n=10)[-1]), "max": max(lengths)},
        "files over 400 lines": long,
        "loose modules": {"count": len(loose), "names": loose},
        "files that ask the kind of device": {"count": len(kind), "names": kind},
        "comparisons of languages outside emit": languages,
        "files that a build enters": int(build.stdout),
    }


@click.command()
@click.option("--root", default=ROOT, type=click.Path(path_type=Path, exists=True), help="Checkout to count.")
def main(root: Path) -> None:
    click.echo(json.dumps(counted(root), indent=1))


if __name__ == "__main__":
    main()
