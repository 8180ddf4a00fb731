"""The candidates of a build: proposed, written, and measured where that is possible."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rollergen.construct.choose import Ranked
from rollergen.construct.options import BuildOptions
from rollergen.dropped import drop, none_stands
from rollergen.errors import CheckFailedError
from rollergen.gate.comparison import Oracle
from rollergen.hal.spec import Device
from rollergen.measure.background import compiled_in_background
from rollergen.measure.compile_check import compile_checked
from rollergen.measure.isolation import bench_for
from rollergen.measure.outcome import UNWRITTEN, Outcome, Progress
from rollergen.measure.profiler import fastest, first_kept, measure_on, written, written_out
from rollergen.runtime.executor import RuntimeExecutor

MOST_DRAFTED = 8
"""Times as many programs as are asked for are drafted at most, to replace those of which no source can be written."""


def proposed(
    drafted: Callable[[int], Sequence[Ranked]], count: int, target: Device, options: BuildOptions
) -> tuple[Outcome, ...]:
    """The best `count` programs with their sources; before them, as failed, better programs whose source could not be
    written.  Raises the first one's error where no source could be written."""
    wanted = count
    while True:
        ranked = drafted(wanted)
        programs, predicted_s = [one.program for one in ranked], [one.seconds for one in ranked]
        candidates, dropped = written(programs, target, predicted_s, options.caches)
        ends = [number for number, one in enumerate(candidates, start=1) if not one.problems]
        if len(ends) >= count or len(ranked) < wanted or wanted >= MOST_DRAFTED * count:
            break
        wanted = min(wanted + 2 * (count - len(ends)), MOST_DRAFTED * count)
    if not ends:
        raise none_stands(dropped, target.name)
    return candidates[: ends[:count][-1]]


def unmeasured(
    drafted: Callable[[int], Sequence[Ranked]], count: int, target: Device, options: BuildOptions, progress: Progress
) -> tuple[tuple[Outcome, ...], Outcome]:
    """(the best `count` programs, the chosen one) where nothing is run: the first that can be written, or, with
    ``compile_check``, the first that the compiler does not refuse.

    The others stay unwritten, as nothing depends on their text: half of what a model of two programs a kernel emits."""
    if not options.compile_check:
        ranked = drafted(count)
        candidates = [
            Outcome(rank, one.program, UNWRITTEN, one.seconds, caches=options.caches) for rank, one in enumerate(ranked)
        ]
        [first] = written_out(candidates[:1], target)
        if not first.problems:
            return (first, *candidates[1:]), first
    found = proposed(drafted, count, target, options)
    if options.compile_check:
        found = compile_checked(found, target, progress)
    return found, first_kept(found)


def measured(
    candidates: tuple[Outcome, ...],
    target: Device,
    options: BuildOptions,
    progress: Progress,
    executor: RuntimeExecutor,
    oracle: Oracle,
) -> tuple[tuple[Outcome, ...], Outcome]:
    """(candidates, the chosen one): checked and timed, the fastest right one."""
    sources = [] if options.isolate else [one.source for one in candidates if not one.problems]
    with (
        compiled_in_background(executor, sources) as compiler,
        bench_for(target, compiler, candidates[0].program, oracle, options) as bench,
    ):
        candidates = measure_on(
            bench, candidates, device=target, time_budget_s=options.time_budget_s, progress=progress,
            checked=compiler.close,  # a compiler at work would be timed along
            sparing=True,
        )  # fmt: skip
    for one in candidates:
        if one.problems and one.ended != "time":  # which a machine at work elsewhere may be the cause of
            drop(f"candidate {one.rank + 1}", CheckFailedError("; ".join(one.problems)))
    return candidates, fastest(candidates)


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collections inside; the state that was found is restored, also after an exception.

    Constructing and emitting make some hundred thousand small frozen values without a cycle, which reference
    counts alone free; searching them for cycles took a tenth of the time.  Where another thread switches the
    collector on meanwhile, it is on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
