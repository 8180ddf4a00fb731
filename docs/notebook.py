"""Runs notebooks without Jupyter: ``python docs/notebook.py examples/explained.ipynb ...`` writes their outputs anew.

A cell of code gives what it prints and what its last expression shows (text, HTML, SVG).  One that is tagged
``varies`` depends on the machine: the tests run it, and compare the others with what stands in the file.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

SHOWS = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in order in one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": _outputs("".join(cell["source"]), names, number)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree, shown, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if shown is not None:
        data = {kind: _lines(getattr(shown, method)()) for kind, method in SHOWS.items() if hasattr(shown, method)}
        data["text/plain"] = _lines(repr(shown))
        found.append({"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}})
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def texts(cell: dict[str, Any]) -> list[str]:
    """What a cell's outputs say as plain text."""
    return ["".join(one.get("text") or one["data"]["text/plain"]) for one in cell["outputs"]]


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        document = executed(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
