"""The smallest program that still fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, takewhile

from rollergen.errors import RollergenError
from tests.fuzzing.formulas.bounds import DIGITS
from tests.fuzzing.formulas.nodes import Const, Node, Reduce, rebuilt, walk
from tests.fuzzing.formulas.programs import Program, Tensor

Fails = Callable[[Program], bool]


def shrunk(program: Program, fails: Fails, seconds: float = 300.0) -> Program:
    """Smaller programs are tried, the boldest cuts first, until none of them fails or the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        meant = (candidate for candidate in _smaller(program) if _meant(candidate))
        in_time = takewhile(lambda _: time.monotonic() < end, meant)
        smaller = next(filter(fails, in_time), None)
        if smaller is None:
            break
        program = smaller
    return program


def _meant(program: Program) -> bool:
    """Whether the language takes it (no axis has lost its reduction), and it computes something from inputs."""
    try:
        program.built()
    except (RollergenError, NameError):
        return False
    return bool(program.inputs) and all(program[name].body is not None for name in program.outputs)


def _smaller(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        yield from (Program(program.tensors, (name,)).used() for name in program.outputs)
    for tensor in program.tensors:
        if tensor.body is not None:
            given = Tensor(tensor.name, tensor.shape, tensor.dtype, None, "spread:0" if tensor.dtype in DIGITS else "full:0")
            yield _with(program, given)
    for tensor in program.tensors:
        if tensor.body is not None:
            yield from (_with(program, replace(tensor, body=body, dtype=body.dtype)) for body in _bodies(tensor.body))
    yield from _less(program)


def _with(program: Program, tensor: Tensor) -> Program:
    return Program(tuple(tensor if one.name == tensor.name else one for one in program.tensors), program.outputs).used()


def _bodies(body: Node) -> Iterator[Node]:
    """The body with one of its nodes replaced by one below it, or by a number; the outermost nodes first."""
    nodes = list(walk(body))
    for at in reversed(range(len(nodes))):
        below = [node for node in walk(nodes[at]) if node is not nodes[at] and node.dtype == nodes[at].dtype]
        number = [] if isinstance(nodes[at], Const) or nodes[at].dtype == "bool" else [Const(nodes[at].dtype, 1, False)]
        yield from (_replaced(body, at, other) for other in [*below, *number])


def _replaced(body: Node, at: int, other: Node) -> Node:
    place = count()
    return rebuilt(body, lambda node: other if next(place) == at else node)


def _less(program: Program) -> Iterator[Program]:
    """Shorter axes, of results and of reductions."""
    for tensor in program.tensors:
        for axis, extent in enumerate(tensor.shape):
            for less in sorted({1, 2, extent // 2, extent - 1}):
                if tensor.body is not None and 0 < less < extent:
                    shape = (*tensor.shape[:axis], less, *tensor.shape[axis + 1 :])
                    yield _with(program, replace(tensor, shape=shape))
    axes = dict(axis for node in program.nodes() if isinstance(node, Reduce) for axis in node.axes)
    for name, extent in axes.items():
        yield from (shorter(program, name, less) for less in sorted({1, 2, extent // 2, extent - 1}) if 0 < less < extent)


def shorter(program: Program, name: str, extent: int) -> Program:
    """The program with a reduction's axis of another extent."""
    def change(node: Node) -> Node:
        if not isinstance(node, Reduce) or name not in dict(node.axes):
            return node
        return replace(node, axes=tuple((one, extent if one == name else n) for one, n in node.axes))

    tensors = (one if one.body is None else replace(one, body=rebuilt(one.body, change)) for one in program.tensors)
    return Program(tuple(tensors), program.outputs)
