"""The pipeline in pieces, for those who study it: construct, predict, sample, profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor as FuturesExecutor
from dataclasses import replace
from pathlib import Path

from rollergen.construct import construct as construct_graph
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.construct.space import Space
from rollergen.construct.space import space as space_of_graph
from rollergen.errors import ArgumentError, ProgramError, shown
from rollergen.expr.language import Tensor
from rollergen.gate.oracle import expression_oracle
from rollergen.gate.program_oracle import graph_oracle, program_oracle
from rollergen.hal.spec import Device
from rollergen.measure.distributed import Job, measure_through
from rollergen.measure.isolation import bench_for
from rollergen.measure.outcome import Outcome
from rollergen.measure.profiler import measure_on, propose
from rollergen.program.check import check
from rollergen.program.model import Prediction
from rollergen.program.model import predict as predict_program
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import Executor, executor_for
from rollergen.targets import resolve

DeviceLike = str | Path | Device | None


def load_device(device: DeviceLike) -> Device:
    """A device by name or from a .json file, completed from this machine where it is its CPU.

    Raises DeviceError that names what is wrong with the spec, and where.
    """
    return resolve(device)


def construct(
    expr: Tensor | Sequence[Tensor],
    device: DeviceLike = None,
    top_k: int = 10,
    *,
    options: BuildOptions = BuildOptions(),
) -> tuple[RProgram, ...]:
    """The model's best programs for ``expr`` on ``device``, best first: at most ``top_k``.  Runs nothing.

    Raises ExpressionError for what is no computed tensor, DeviceError for an unknown device, ArgumentError for a
    ``top_k`` below 1, ConstructionError where the limits of ``options`` leave no program.
    """
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise ArgumentError(f"top_k is {shown(top_k)}; expected an integer of at least 1")
    target = resolve(device)
    graph = planned(expr, target, options, top_k=top_k)
    return tuple(one.program for one in construct_graph(graph, target, options, top_k))


def _require_program(program: object, device: Device, what: str) -> None:
    """ArgumentError unless `program` is one that `device` can run."""
    if not isinstance(program, RProgram):
        raise ArgumentError(f"{what} is {shown(program)}; expected an RProgram, as rg.construct makes")
    if program.device != device.name:
        try:
            check(program, device)
        except ProgramError as error:
            raise ArgumentError(
                f"{what} was constructed for {program.device}, and {device.name} cannot run it ({error}); expected one "
                f"that rg.construct(expr, {device.name!r}) makes"
            ) from None


def predict(
    program: RProgram, device: DeviceLike = None, *, starts_in: Mapping[str, str] | None = None
) -> Prediction:
    """Predicted time of one call of a program in ``seconds``, stage by stage and limiter by limiter.

    ``starts_in``: by the name of a tensor the layer in which its data lie when the kernel starts: the memory, or the
    cache in which a kernel before has left them, as far as they fit (``{"A": "l2"}``).  Of others the spec says it: for
    GPUs all lie in memory; for CPUs the last call's, as far as they fit, in the caches.

    Raises ArgumentError for a program of another device that `device` cannot run, and as `starts_in` for what is no
    mapping, tensors that the program does not have, and layers other than memory and caches that outlive a kernel.
    """
    target = resolve(device)
    _require_program(program, target, "program")
    return predict_program(program, target, {} if starts_in is None else starts_in)


def space(
    expr: Tensor | Sequence[Tensor], device: DeviceLike = None, *, options: BuildOptions = BuildOptions()
) -> Space:
    """All aligned programs of ``expr``'s heaviest stage: ``len(space)``, iteration, and ``space.sample(count, seed)``,
    which draws uniformly without repetition.

    Raises ExpressionError for what is no computed tensor, DeviceError for an unknown device.
    """
    target = resolve(device)
    return space_of_graph(planned(expr, target, options), target, options)


def profile(
    programs: Sequence[RProgram],
    device: DeviceLike = None,
    executor: Executor | FuturesExecutor | None = None,
    *,
    expr: Tensor | Sequence[Tensor] | None = None,
    time_budget_s: float = 60.0,
    options: BuildOptions = BuildOptions(),
) -> tuple[Outcome, ...]:
    """Checks and times programs of one expression; one outcome for each, in the order given.

    ``expr`` defines the right result; None: the tensor ops of the first program do, which hides an error that
    construction itself made.  ``executor``: any
    ``concurrent.futures.Executor``: candidates are compiled and checked by tasks of their own, and timed together by
    one; or what compiles and runs in this process; None: the device's own.  ``time_budget_s``: seconds of wall time
    after which no further candidate is started.
    Raises ArgumentError for a program of another device that `device` cannot run, DeviceError for an absent device,
    CheckFailedError if no program passes.
    """
    if not isinstance(programs, (list, tuple)):
        raise ArgumentError(f"programs is {shown(programs)}; expected RPrograms in a list, as rg.construct makes them")
    if not programs:
        raise ArgumentError("programs is empty; expected at least one RProgram")
    target, first = resolve(device), programs[0]
    for number, program in enumerate(programs):
        _require_program(program, target, f"programs[{number}]")
    if expr is None:
        oracle = program_oracle(first)
    else:
        tensors = (expr,) if isinstance(expr, Tensor) else tuple(expr)
        quantized = options.quantize_activations and planned(expr, target, options)
        oracle = graph_oracle(quantized, tensors) if quantized else expression_oracle(tensors, first.outputs)
    if isinstance(executor, FuturesExecutor):
        job = Job(target, first, oracle, replace(options, time_budget_s=time_budget_s))
        return measure_through(executor, job, propose(programs, target, caches=options.caches))
    with bench_for(target, executor or executor_for(target), first, oracle, options) as bench:
        candidates = propose(programs, target, caches=options.caches)
        return measure_on(bench, candidates, device=target, time_budget_s=time_budget_s)
