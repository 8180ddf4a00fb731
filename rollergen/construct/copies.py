"""Stages before a contraction: operands in another form, and the sums of factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from rollergen.construct.candidate import Candidate, Pending, assembled, cheapest, price, rounded
from rollergen.construct.reductions import sums_stage
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.model import price_stages
from rollergen.program.rprogram import Stage
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules


def pending_copies(copies: Sequence[TensorOp], device: Device) -> tuple[Pending, ...]:
    """The cheapest stage of each; what is made of constants alone runs once."""
    once = _made_once(copies)
    make = lambda copy: replace(copy_stage(copy, device), once=copy.output.name in once)
    return tuple([Pending(partial(make, copy), copy.output.name in once) for copy in copies])


def copy_seconds(copies: Sequence[TensorOp], device: Device) -> float:
    """Predicted seconds of those that run at every call; the others need no stage for it."""
    once = _made_once(copies)
    running = [copy_stage(copy, device) for copy in copies if copy.output.name not in once]
    return float(price_stages(running, device).seconds.sum())


def behind(copies: Sequence[TensorOp], found: Iterable[Candidate], device: Device) -> Iterator[Candidate]:
    """Candidates of a contraction, each behind the copies that it waits for, with their price at every call."""
    stages = tuple([one.make() for one in pending_copies(copies, device)])
    made = tuple(copy.output for copy in copies)
    seconds = price(stages, device) if stages else 0.0
    for one in found:
        whole = replace(one, own=(*stages, *one.own), temporaries=(*made, *one.temporaries))
        yield replace(whole, seconds=rounded(seconds + one.seconds))


def _made_once(copies: Iterable[TensorOp]) -> set[str]:
    """The outputs of copies whose sources are constant, or made once."""
    known: set[str] = set()
    for copy in copies:
        if all(load.buffer.constant or load.buffer.name in known for load in copy.loads()):
            known.add(copy.output.name)
    return known


@lru_cache(maxsize=64)
def copy_stage(op: TensorOp, device: Device) -> Stage:
    """The cheapest stage for what a contraction waits for: a packing or padding copy, or the sums of a factor."""
    if op.reductions:
        return sums_stage(op, device)
    name = "copy_" + op.output.name
    plans = elementwise_plans(op, device, AlignmentRules(), Tally())
    return cheapest(assembled(plans, lambda plan: elementwise_stage(op, plan, device, name), name), device)
