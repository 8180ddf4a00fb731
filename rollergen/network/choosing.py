"""Choosing among kernels' candidates by their times within calls of the model.

Alone a candidate finds its weights in the caches.  Within a call those of other layers have driven them out, and what
the step before wrote lies there.  So candidates that took about as long alone are timed once more, all kernels' at
once: two models take turns, one with what is chosen so far, one with another candidate of each kernel that has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import fsum
from statistics import median

import numpy as np

from rollergen.build import Terms
from rollergen.dropped import collected_drops, drop
from rollergen.errors import ArgumentError, CheckFailedError
from rollergen.explain.units import seconds_text
from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.gate.arrays import random_array
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Outcome
from rollergen.measure.timing import chance
from rollergen.network.building import kernel_of_step
from rollergen.network.execution import Execution, Shared
from rollergen.network.partition import Step
from rollergen.research import profile

NEAR = 1.3
"""Candidates that took alone so many times as long as the chosen one at most are timed within calls.  (Convolutions of
ResNet-18 whose weights lie in the cache take up to a tenth less than they do in a call.)"""

MOST = 3
"""So many of a kernel beside the chosen one, the quickest of them."""

ROUNDS, LEAST_ROUNDS, SECONDS = 11, 5, 2.0
"""Rounds of a pair of models: at least the least, then until the rounds or the seconds (wall) are used up."""

CHANCE = 1 / 32
"""Probability with which a candidate that is no quicker may look as if it were (the signed-rank test): least of 5
rounds."""

LONG_S = 1.0
"""Models whose steps take so many seconds alone stay as they are: a pair takes twelve calls."""

StepKernels = Sequence[tuple[Step, Kernel | None]]
Times = Mapping[Kernel, Sequence[float]]


def chosen_in_calls(network: Network, made: StepKernels, terms: Terms) -> StepKernels:
    """The steps with the kernels that are quickest within calls on a present CPU.  A candidate that is chosen here is
    held to all of the gate's runs first.

    A model stays as it is where its own library runs a step, as nobody knows what that makes of invented inputs; where
    it computes from these an id that its table has no row for; and where its steps take `LONG_S`."""
    steps, kernels = [step for step, _ in made], [kernel for _, kernel in made if kernel is not None]
    device = terms.device
    alone_s = fsum(kernel.measured_time or 0.0 for kernel in kernels)
    if device.kind.threads or len(kernels) < len(made) or alone_s > LONG_S:
        return made
    random = np.random.default_rng(0)
    shared = Shared()

    def timed(*both: Mapping[Kernel, Kernel]) -> Sequence[Times]:
        given = [_input(value, random) for value in network.inputs]
        models = [Execution(network, steps, [of[one] for one in kernels], device, shared) for of in both]
        return in_turns([partial(_seconds, one, given) for one in models], kernels)

    of = dict(zip(reversed(kernels), reversed(steps), strict=True))  # the step that a kernel was built of
    right = lambda kernel, found: _is_right(of[kernel], found, terms)
    taking = lambda kernel, found, note="": _taking(kernel, found, note, of[kernel], terms)
    try:
        with collected_drops():
            best = chosen(kernels, taking, timed, right)
    except ArgumentError:  # an id that no row has
        return made
    return [(step, best[kernel]) for step, kernel in zip(steps, kernels, strict=True)]


def chosen(
    kernels: Sequence[Kernel],
    taking: Callable[..., Kernel],
    timed: Callable[[Mapping[Kernel, Kernel], Mapping[Kernel, Kernel]], Sequence[Times]],
    right: Callable[[Kernel, Outcome], bool],
) -> dict[Kernel, Kernel]:
    """For each kernel the one to take in its place, the same where no other candidate is quicker.

    ``taking(kernel, candidate, note)``: the kernel with another candidate chosen, the ``note`` says why.
    ``timed(now, then)``: seconds of each kernel's steps, round by round, in models with these in their places."""
    best = {kernel: kernel for kernel in kernels}
    rivals = {kernel: rivals_of(kernel) for kernel in best}
    for number in range(MOST):
        tried = {kernel: one[number] for kernel, one in rivals.items() if len(one) > number}
        if not tried:
            break
        others = {kernel: taking(kernel, one) for kernel, one in tried.items()}
        now, then = timed(best, best | others)
        for kernel, one in tried.items():
            before, after = now[kernel], then[kernel]
            losses = [new - old for new, old in zip(after, before, strict=True)]
            if chance(losses) <= CHANCE and right(kernel, one):
                note = f"taken for {seconds_text(median(after))} within calls, beside {seconds_text(median(before))}"
                best[kernel] = taking(kernel, one, f"{note} of candidate {best[kernel].place + 1}")
    return best


def rivals_of(kernel: Kernel) -> list[Outcome]:
    """The other candidates that took about as long as the chosen one alone, the quickest first."""
    if kernel.measured_time is None:
        return []
    limit = NEAR * kernel.measured_time
    timed = {number: one.wall_s for number, one in enumerate(kernel.outcomes) if one.wall_s is not None}
    near = sorted((seconds, number) for number, seconds in timed.items() if seconds <= limit)
    return [kernel.outcomes[number] for _, number in near if number != kernel.place][:MOST]


def _seconds(model: Execution, given: Sequence[np.ndarray]) -> list[float]:
    return model.timed(given)()


def in_turns(calls: Sequence[Callable[[], Sequence[float]]], kernels: Sequence[Kernel]) -> Sequence[Times]:
    """Seconds of the steps of each kernel in ``calls`` that take turns, after one of each that warms up."""
    found: list[dict[Kernel, list[float]]] = [{kernel: [] for kernel in kernels} for _ in calls]
    for call in calls:
        call()
    start = time.perf_counter()
    for number in range(ROUNDS):
        for call, times in zip(calls, found, strict=True):
            sums = dict.fromkeys(kernels, 0.0)
            for kernel, seconds in zip(kernels, call(), strict=True):
                sums[kernel] += seconds
            for kernel, seconds in sums.items():
                times[kernel].append(seconds)
        if number + 1 >= LEAST_ROUNDS and time.perf_counter() - start > SECONDS:
            break
    return found


def _taking(kernel: Kernel, found: Outcome, note: str, step: Step, terms: Terms) -> Kernel:
    told = replace(found, note="; ".join(filter(None, (found.note, note)))) if note else found
    candidates = tuple(told if one is found else one for one in kernel.outcomes)
    return kernel_of_step(step, terms, candidates, told, kernel.cuts)


def _is_right(step: Step, found: Outcome, terms: Terms) -> bool:
    """Whether a candidate passes all of the gate's runs."""
    try:
        profile([found.program], terms.device, expr=step.expression, options=terms.options)
    except CheckFailedError as error:
        drop(f"candidate {found.rank + 1} within calls", error)
        return False
    return True


def _input(value: Value, random: np.random.Generator) -> np.ndarray:
    """Random floats; integers and bools are 0: as an id, of a row that every table has."""
    shape = value.shape or ()
    if is_float(value.dtype):
        return random_array(shape, value.dtype, random)
    return np.zeros(shape, numpy_dtype(value.dtype))
