"""What asynchronous products need around them, checked on the kernel that was written.

Such products read local memory and keep sums in registers beside the program.  Only these statements order them:

    barrier that shows what threads wrote | begin | products | end, all but the latest group waited for | ... | wait

Tiles that come in boxes need no showing; started barriers and, for each tile, a wait order them:

    StartBarriers, Barrier | Barrier behind products that ended, FillTile | WaitTile | begin | products | end

Where others than the threads with products fill, these say of each tile that it is free, and others wait for that:

    WaitTile, FillTile                           | WaitTile | begin | products | end, FreeTile

Results that leave in boxes are written to a buffer that is free, shown, stored, and waited for at the end:

    FreeResults | written | ShowResults | StoreBoxes | ... | WaitStores

A CPU that runs the text finds a wait that is missing; a fence that is missing it need not, nor need a GPU.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from rollergen.errors import ProgramError
from rollergen.hal.dataclass import dataclass
from rollergen.lower.box_ir import (
    FillTile,
    FreeResults,
    FreeTile,
    Leave,
    MeetCluster,
    ShowResults,
    StartBarriers,
    StoreBoxes,
    WaitStores,
    WaitTile,
)
from rollergen.lower.expressions import Element
from rollergen.lower.ir import LOCAL, Barrier, For, If, Kernel, Statement, Write, walk
from rollergen.lower.matrix_ir import (
    BeginProducts,
    EndProducts,
    MultiplyLocal,
    OrderPieces,
    WaitFactors,
    WaitProducts,
)


@dataclass
class _State:
    """At one point of the kernel: whether threads wrote local memory that no barrier has shown; whether products have
    been shown anything, begun, and not ended; how many ended groups may run; whether sums are not the program's.

    Of tiles in boxes: whether their barriers are started, and all threads know it; whether a tile has been waited for
    since products ended; whether a thread may still have products that ended in another; whether a free buffer has been
    waited for since one was filled.

    Of results in boxes: whether threads may write to their buffer, whether what they wrote is shown, and whether the
    engine has boxes to store."""

    written: bool = False
    shown: bool = False
    started: bool = False
    ready: bool = False
    came: bool = False
    apart: bool = False
    free: bool = False
    begun: bool = False
    open: bool = False
    running: int = 0
    held: bool = False
    writing: bool = False
    visible: bool = False
    storing: bool = False


def check_products(kernel: Kernel) -> None:
    """Raises ProgramError for the first statement of a kernel with asynchronous products that lacks what it needs."""
    _check_cluster(kernel)
    every = [one for one in walk(kernel.body) if isinstance(one, MultiplyLocal)]
    sums = {one.accumulator.name for one in every} | {one.a.name for one in every if isinstance(one.a, Element)}
    if sums:
        state = _State()
        _follow(kernel, kernel.body, state, frozenset(sums))
        if state.storing:
            raise ProgramError(f"kernel {kernel.name}: StoreBoxes; expected WaitStores behind it")


def _check_cluster(kernel: Kernel) -> None:
    """Blocks whose copies go to each other's memory begin and end together."""
    if not kernel.cluster:
        return
    kinds = [type(one) for one in kernel.body]
    branches = [one.body for one in kernel.body if isinstance(one, If)]
    last = (kernel.body, *(body[:-1] for body in branches if body and isinstance(body[-1], Leave)))
    if kinds.count(MeetCluster) != 2 or not all(isinstance(body[-1], MeetCluster) for body in last):
        raise ProgramError(
            f"kernel {kernel.name}: {kernel.cluster} blocks a cluster; expected a MeetCluster behind StartBarriers, "
            f"and one at the end of all threads"
        )


def _follow(kernel: Kernel, body: tuple[Statement, ...], state: _State, sums: frozenset[str]) -> None:
    for statement in body:
        match statement:
            case For():
                for _ in range(2):  # the second time from where the first one ended
                    _follow(kernel, statement.body, state, sums)
            case If() if statement.body and isinstance(statement.body[-1], Leave):
                _follow(kernel, statement.body, replace(state), sums)
            case If():
                _follow(kernel, statement.body, state, sums)
                _follow(kernel, statement.otherwise, state, sums)
            case _:
                _step(kernel, statement, state, sums)


def _step(kernel: Kernel, statement: Statement, state: _State, sums: frozenset[str]) -> None:
    match statement:
        case Write() if statement.pointer.scope == LOCAL and kernel.maps:  # all factors come in boxes
            _refuse_if(not state.writing, kernel, statement, "FreeResults before it")
        case FreeResults():
            state.writing = True
        case ShowResults():
            state.writing, state.visible = False, True
        case StoreBoxes():
            _refuse_if(not state.visible, kernel, statement, "ShowResults before it")
            state.visible, state.storing = False, True
        case WaitStores():
            state.storing = False
        case Write() if statement.pointer.scope == LOCAL:
            late = state.open or state.running > int(statement.asynchronous)
            _refuse_if(late, kernel, statement, "a wait for products before it")
            state.written = True
        case Barrier():
            hidden = state.written and not statement.products
            _refuse_if(hidden, kernel, statement, "what was written shown to products")
            state.written, state.shown = False, state.shown or statement.products
            state.ready, state.apart = state.started, False
        case MeetCluster():
            state.ready = state.started
        case StartBarriers():
            state.started = True
        case FillTile():
            _refuse_if(not state.ready, kernel, statement, "StartBarriers and a Barrier before it")
            if statement.width:
                _refuse_if(not state.free, kernel, statement, "a wait for a free buffer before it")
            else:
                late = state.open or state.running > 1
                _refuse_if(late or state.apart, kernel, statement, "a wait for products and a Barrier before it")
            state.free = False
        case WaitTile():
            _refuse_if(not state.ready, kernel, statement, "StartBarriers and a Barrier before it")
            filled = statement.pointer.name in _filled(kernel)
            state.came, state.free = state.came or filled, state.free or not filled
        case FreeTile():
            late = state.open or state.running > statement.pending or not state.apart
            _refuse_if(late, kernel, statement, "products that ended, and a wait for them, before it")
        case BeginProducts():
            state.begun = True
        case MultiplyLocal():
            there = state.came if kernel.maps else state.shown
            _refuse_if(not there, kernel, statement, _THERE[bool(kernel.maps)])
            _refuse_if(not state.begun, kernel, statement, "BeginProducts before it")
            state.open = state.held = True
        case EndProducts():
            state.begun, state.open, state.running = False, False, statement.pending
            state.came, state.apart = False, True
        case WaitFactors():
            _refuse_if(state.open, kernel, statement, "EndProducts before it")
            state.running = 0
        case OrderPieces():
            late = state.open or state.running > 0
            _refuse_if(late, kernel, statement, "WaitFactors before the factors of products change")
            state.begun = False
        case WaitProducts():
            _refuse_if(state.open, kernel, statement, "EndProducts before it")
            state.running, state.held = 0, False
        case _:
            if state.begun or state.held:
                touched = sums & set(_elements(statement))
                _refuse_if(bool(touched and state.held), kernel, statement, "WaitProducts before its sums are used")
                state.begun = state.begun and not touched


def _filled(kernel: Kernel) -> set[str]:
    """Names of the barriers that count what comes."""
    return {one.pointer.name for one in walk(kernel.body) if isinstance(one, FillTile)}


_THERE = ("a barrier before it that shows products what was written", "WaitTile before it")
"""What products need of copies by threads, and in boxes."""


def _elements(node: Any) -> list[str]:
    """The names of the register arrays in a statement."""
    if isinstance(node, Element):
        return [node.name]
    if isinstance(node, tuple):
        return [name for one in node for name in _elements(one)]
    return [name for one in fields(node) for name in _elements(getattr(node, one.name))] if is_dataclass(node) else []


def _refuse_if(wrong: bool, kernel: Kernel, statement: Statement, expected: str) -> None:
    if wrong:
        raise ProgramError(f"kernel {kernel.name}: {type(statement).__name__} {statement}; expected {expected}")
