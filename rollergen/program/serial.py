"""An rProgram as JSON and back: what caches, records and saved kernels keep.

A flat table, children before parents and equal nodes once, so that depth of the text does not grow with
the expression and a row can only refer to rows before it:

    {"format": 17, "nodes": [["Loop", "i", 4, 1, "grid"], ..., ["RProgram", "cpu", [7], [9], [40], [], [], []]]}

A row is a node's type and its fields in the order of `node_types.NODES`; a node in a field is the number
of its row; the last row is the program.  Numbers that JSON lacks are the texts "inf", "-inf" and "nan".

>>> from rollergen.program.rprogram import RProgram
>>> program = RProgram("cpu", (), (), ())
>>> to_json(program)
{'format': 19, 'nodes': [['RProgram', 'cpu', [], [], [], [], [], []]]}
>>> from_json(to_json(program)) == program
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from typing import Any

from rollergen.errors import ProgramError
from rollergen.program.node_types import NODES, ROW_NAME, SIGNATURES, shown
from rollergen.program.rprogram import RProgram

__all__ = ["EXPRESSION_FORMAT", "FORMAT", "from_json", "from_text", "table", "to_json", "to_text"]

FORMAT = 19
"""Counts changes of the rows.  Fields are only ever added, last and with a default that means what their absence
meant, so that rows of earlier formats can be read."""

EXPRESSION_FORMAT = 6
"""The last format that changed rows of expressions: what names an operator (`store.keys.expression_text`) outlives
those that only change what is decided about one."""

MOST_BYTES = 32_000_000
MOST_ROWS = 200_000
MOST_NODES = 2_000_000
"""Nodes of the program when shared ones are counted each time: its readers walk it so."""
DEEPEST = 400
"""Nodes below each other; Python's own recursion, which the readers use, ends at about twice as many."""


def to_json(program: RProgram) -> dict[str, Any]:
    """`program` as dicts, lists, texts and numbers; equal programs give equal ones.

    Raises ProgramError for a program with something that no program holds, such as an uncut tensor.
    """
    return {"format": FORMAT, "nodes": table((program,))[0]}


def table(roots: Sequence[Any]) -> tuple[list[list[Any]], list[int]]:
    """The rows of all nodes in and below `roots` (tensor ops, buffers, programs), and the number of each root's."""
    rows: list[list[Any]] = []
    numbers: dict[str, int] = {}  # of a row, by its text
    known: dict[int, int] = {}  # of a row, by the identity of a node
    waiting: list[tuple[Any, bool]] = [(root, False) for root in reversed(roots)]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in known:
            continue
        fields = _fields_of(node)
        if not ready:
            waiting.append((node, True))
            waiting += [(part, False) for name, kind in fields for part in kind.nodes(getattr(node, name))]
            continue
        row = [ROW_NAME[type(node)], *(kind.encode(getattr(node, name), known) for name, kind in fields)]
        known[id(node)] = number = numbers.setdefault(repr(row), len(rows))
        if number == len(rows):
            rows.append(row)
    return rows, [known[id(root)] for root in roots]


def from_json(data: Any) -> RProgram:
    """The program that `to_json` gave.

    Every type, name, kind and number is checked, nothing is executed; what the program means is left to
    `program.check`.  Raises ProgramError that names the row and field where `data` is no program.
    """
    if not isinstance(data, dict) or data.keys() != {"format", "nodes"}:
        raise ProgramError(f'the program is {shown(data)}; expected an object with "format" and "nodes"')
    if type(data["format"]) is not int or not 1 <= data["format"] <= FORMAT:
        raise ProgramError(f"format is {shown(data['format'])}; this version reads 1 to {FORMAT}")
    rows = data["nodes"]
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_ROWS:
        raise ProgramError(f"nodes is {shown(rows)}; expected a list of 1 to {MOST_ROWS} rows")
    made: list[Any] = []
    sizes: list[tuple[int, int]] = []
    for number, row in enumerate(rows):
        made.append(_node(row, made, number, earlier=data["format"] < FORMAT))
        sizes.append(_size(made[-1], row, sizes, number))
    if not isinstance(made[-1], RProgram):
        raise ProgramError(f"nodes[{len(rows) - 1}] is {shown(rows[-1][0])}; expected the last row to be RProgram")
    return made[-1]


def to_text(program: RProgram) -> str:
    """The JSON of `to_json` as one line."""
    return json.dumps(to_json(program), separators=(",", ":"), allow_nan=False)


def from_text(text: str) -> RProgram:
    """The program of a JSON text of at most 32 MB; raises ProgramError for anything else."""
    if len(text) > MOST_BYTES:
        raise ProgramError(f"the program has {len(text)} characters; expected at most {MOST_BYTES}")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ProgramError("the program is no JSON of this format: it nests too deep") from None
    except ValueError as error:
        raise ProgramError(f"the program is not JSON: {str(error)[:200]}") from None
    return from_json(data)


def _fields_of(node: Any) -> Any:
    """(name, kind) of each field; by exact type, so that no subclass slips through."""
    fields = NODES.get(type(node))
    if fields is None:
        known = ", ".join(SIGNATURES)
        raise ProgramError(f"the program holds {shown(node)} ({type(node).__name__}); expected one of {known}")
    if getattr(node, "source", None) is not None:
        raise ProgramError(f"the program loads {node.buffer.name} from an expression; expected cut stages")
    return fields


def _node(row: Any, made: list[Any], number: int, *, earlier: bool) -> Any:
    where = f"nodes[{number}]"
    if not isinstance(row, list) or not row or not isinstance(row[0], str) or row[0] not in SIGNATURES:
        raise ProgramError(f"{where} is {shown(row)}; expected a list that starts with one of {', '.join(SIGNATURES)}")
    kind = SIGNATURES[row[0]]
    fields = NODES[kind]
    if earlier and row[1:]:
        fields = fields[: max(len(row) - 1, _required(kind))]
    if len(row) != len(fields) + 1:
        names = ", ".join(name for name, _ in fields)
        raise ProgramError(f"{where} is a {row[0]} with {len(row) - 1} fields; expected {len(fields)}: {names}")
    values = {}
    for (name, field), value in zip(fields, row[1:], strict=True):
        try:
            values[name] = field.decode(value, made)
        except ProgramError as error:
            raise ProgramError(f"{where}.{name} of {row[0]} {error}") from None
    return kind(**values)


@lru_cache(maxsize=64)
def _required(kind: type) -> int:
    """How many fields have no default."""
    return sum(field.default is MISSING and field.default_factory is MISSING for field in dataclass_fields(kind))


def _size(node: Any, row: list[Any], sizes: list[tuple[int, int]], number: int) -> tuple[int, int]:
    """(nodes, depth) of the row with everything below it, shared nodes counted each time."""
    below = [sizes[at] for (_, kind), value in zip(NODES[type(node)], row[1:], strict=False) for at in kind.rows(value)]
    count, depth = 1 + sum(c for c, _ in below), 1 + max((d for _, d in below), default=0)
    if count > MOST_NODES or depth > DEEPEST:
        raise ProgramError(
            f"nodes[{number}] holds {count} nodes, {depth} deep; expected at most {MOST_NODES}, {DEEPEST} deep"
        )
    return count, depth
