"""Kernels of a network's steps: one for all that are alike; and the layout of images for which they are faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from rollergen.build import Terms, build
from rollergen.construct.planning import planned, row_limits
from rollergen.errors import ConstructionError, ExpressionError, NonAffineIndexError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.chains import chains_in
from rollergen.expr.stages import Graph
from rollergen.gate.comparison import Oracle
from rollergen.gate.program_oracle import graph_oracle
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Outcome
from rollergen.network.ahead import CompilingAhead
from rollergen.network.images import BARE, Halo, copied_halo, spread, widest
from rollergen.network.layouts import Laid, laid_out
from rollergen.network.partition import Step, steps_of
from rollergen.network.repeated import in_blocks
from rollergen.program.model import predict_stage
from rollergen.program.model.roofline import product_seconds
from rollergen.program.rprogram import RProgram
from rollergen.store.keys import expression_text

UNMEASURED = 2
"""Candidates of each kernel where none is measured: the first, and what it is compared with."""


NO_KERNEL = (ExpressionError, NonAffineIndexError, ConstructionError)
"""Why a step has no kernel, and its nodes are left to their own library; other errors are the caller's or ours."""


def steps_for(
    network: Network, target: Device, kernel_of: Callable[..., Kernel], loose: Collection[str] = (),
    within_zeros: bool = True,
) -> Laid:  # fmt: skip
    """Of CPUs, images in the layout that is predicted to be faster; ``loose`` as `steps_of` has it; ``within_zeros``:
    whether they may be stored within their padding."""
    if target.kind.threads or target.kind.machine is not None:
        return steps_of(network, target.kind.machine is None, {}, loose), {}

    def seconds(step: Step, used: bool = True) -> float:
        if step.defined is None:
            return 0.0
        try:
            return kernel_of(step, used=used).predicted_time
        except NO_KERNEL:
            return math.inf

    bounds: dict[str, float] = {}

    def bound(step: Step) -> float:
        if step.defined is None:
            return 0.0
        if not step.alike or step.alike not in bounds:
            bounds[step.alike] = _least_seconds(step, target)
        return bounds[step.alike]

    def copied(step: Step) -> dict[str, tuple[Halo, float]]:
        try:
            return halos_of(step, kernel_of(step).program, target) if within_zeros else {}
        except NO_KERNEL:
            return {}

    return laid_out(network, True, seconds, loose, bound, partial(seconds, used=False), copied)


def halos_of(step: Step, program: RProgram, device: Device) -> dict[str, tuple[Halo, float]]:
    """The halos into which a step's program copies images that it reads, in each call, and seconds that it takes."""
    names = dict(zip((one.name for one in program.inputs), step.inputs, strict=True))
    images = {buffer.name: tensor for buffer, tensor in zip(program.inputs, step.given, strict=True)}
    found: dict[str, tuple[Halo, float]] = {}
    for stage in program.stages:
        for name in stage.op.buffers_read() if not stage.once else ():
            halo = copied_halo(stage.op, images[name].shape) if name in images else None
            if halo is not None:
                known, seconds = found.get(names[name], (BARE, 0.0))
                halo = widest(known, spread(halo, images[name], device))
                found[names[name]] = halo, seconds + predict_stage(stage, device).seconds
    return found


def _least_seconds(step: Step, target: Device) -> float:
    """What the step's sums of products take at least, on any program; 0 of chains, which may leave terms out."""
    assert step.defined is not None
    try:
        expression, given = step.defined()
        if chains_in(expression):
            return 0.0
        graph = canonicalize(expression, given, row_limits(target))
    except NO_KERNEL:
        return 0.0
    return math.fsum(product_seconds(op, target) for op in graph.tensor_ops)


def texts_of(target: Device) -> Callable[[Step], str]:
    """Gives a step's canonical expression as text: those that one kernel can run have the same, and of those alike one
    is looked at."""
    keys: dict[str, str] = {}

    def text_of(step: Step) -> str:
        if step.alike and step.alike in keys:
            return keys[step.alike]
        assert step.defined is not None
        text = expression_text(canonicalize(*step.defined(), row_limits(target)))
        if step.alike:
            keys[step.alike] = text
        return text

    return text_of


def kernels_of(
    target: Device, settings: dict[str, Any], ahead: CompilingAhead | None = None
) -> Callable[..., Kernel]:
    """Gives a step's kernel; those that one kernel can run have the same.  ``settings``: of their builds; ``ahead``:
    what compiles those ``used``, as most that are asked for will be; ``both_ways``: whether its blocks are walked in
    both directions."""
    text_of = texts_of(target)
    kernels: dict[tuple[str, bool], Kernel] = {}

    def kernel_of(step: Step, both_ways: bool = False, used: bool = True) -> Kernel:
        key = text_of(step), both_ways
        if key not in kernels:
            assert step.defined is not None
            expression, given = step.defined()
            own = in_blocks(settings, target) if both_ways else settings
            kernels[key] = build(expression, target, inputs=given, **own)
        if used and ahead is not None:
            ahead.begin(kernels[key])
        return kernels[key]

    return kernel_of


def kernel_of_step(
    step: Step, terms: Terms, candidates: tuple[Outcome, ...], chosen: Outcome, cuts: Sequence[str]
) -> Kernel:
    """The kernel of candidates that are known, one of them chosen; ``cuts``: as `Kernel.cuts`."""

    def defined() -> tuple[Graph, Oracle]:
        assert step.expression is not None
        graph = planned(step.expression, terms.device, terms.options, step.given)
        return graph, graph_oracle(graph, (step.expression,))

    return terms.kernel(candidates, chosen, cuts, defined)


def by_library(step: Step, error: Exception) -> list[Step]:
    """What the model's own library runs in place of a step that has no kernel."""
    return [Step((one,), one.inputs, one.outputs, reason=str(error)) for one in step.nodes]
