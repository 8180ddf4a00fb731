"""What becomes of an expression on a device: its programs constructed, written, run here and held to the definition."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.chains import runs_chains
from rollergen.construct.options import BuildOptions
from rollergen.dropped import every_drop_raises
from rollergen.emit import Source, emit
from rollergen.errors import ConstructionError, DoesNotFitError, RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.stages import Graph
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.spec import Device
from rollergen.measure.bench import Lost
from rollergen.measure.isolation import Worker
from rollergen.measure.outcome import Outcome
from rollergen.measure.worker import Limits, Setup
from rollergen.program.chains import chain_roles
from rollergen.targets import resolve
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.fuzzing.recipes import Recipe
from tests.fuzzing.sizes import SizedRecipe

LIMITS = Limits(compile_s=45.0, run_s=20.0)
PATIENT = Limits(compile_s=8 * LIMITS.compile_s, run_s=8 * LIMITS.run_s)
"""Once more, where a limit was reached in little processor time: others use this machine."""

_KILLED = "was ended by SIGKILL"
"""By nobody here: by the system, for memory that others may have taken."""

TOP_K = 2
PLAIN = BuildOptions(shapes=CodeShapes(matrix_instructions=False))
"""What runs here has a spelling in OpenCL."""


def drawn_options(seed: int) -> BuildOptions:
    """Mostly `PLAIN`; now and then some ways of writing kernels, alignment rules or units of the device left out."""
    random = Random(seed)
    if random.random() < 0.7:
        return PLAIN
    shapes = {field.name: random.random() < 0.7 for field in fields(CodeShapes)} | {"matrix_instructions": False}
    rules = {name: random.random() < 0.8 for name in ("execution_unit", "transaction", "bank", "tensor_shape")}
    units = random.choice([None, None, 1, 2, 7])
    return BuildOptions(shapes=CodeShapes(**shapes), alignment=AlignmentRules(**rules), max_units=units)


@dataclass(frozen=True)
class Failure:
    """``kind``: what to compare failures by; ``text``: the whole story."""

    kind: str
    text: str


def cut(outputs: tuple[Any, ...], device: Device, options: BuildOptions) -> Graph:
    """The stages of the outputs: chains of contractions are one wherever they can be, faster or not."""
    if options.shapes.chains and runs_chains(device):
        graph = canonicalize(outputs, rows=RowLimits(chains=True))
        if all(op.inner is None or chain_roles(op) for op in graph.tensor_ops):
            with contextlib.suppress(ConstructionError):  # chains of halves on a CPU have no program, and are cut apart
                construct(graph, device, options, 1)
                return graph
    return canonicalize(outputs)


class Trials:
    """Runs recipes in a process of their own, which is replaced where one ends it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self.spent: dict[str, float] = {}
        self.never_compiled = 0
        self.too_slow: list[str] = []
        """Why programs were skipped that this machine, which others use, gave too little time."""

    def failure(self, recipe: Recipe, device: str, options: BuildOptions = PLAIN) -> Failure | None:
        """What is wrong, if anything: an error that is none of rollergen's own, or a refusal, or a wrong result."""
        spec, start = resolve(device), time.perf_counter()
        try:
            with every_drop_raises():
                outputs = recipe.outputs()
                graph = cut(outputs, spec, options)
                emit(construct(graph, spec, top_k=1)[0].program, spec)
                ranked = construct(graph, spec, options, TOP_K)
                sources = [emit(one.program, spec, "opencl") for one in ranked]
        except DoesNotFitError:
            return None
        except RollergenError as error:
            refused = "exchanges decided before the call", "is a scan in which the order counts"
            if spec.kind.machine is not None and any(why in str(error) for why in refused):
                return None  # machines of tiles take no elements at places that are read, and have no scans
            return Failure(f"refused: {type(error).__name__}", str(error))
        except RecursionError as error:
            return Failure("raised: RecursionError", str(error))
        except Exception as error:
            return Failure(f"raised: {type(error).__name__}", f"{type(error).__name__}: {error}")
        finally:
            self.spent["constructed"] = self.spent.get("constructed", 0.0) + time.perf_counter() - start
        oracle = expression_oracle(outputs, graph.outputs)
        for one, source in zip(ranked, sources, strict=True):
            problems = self._problems(Setup(resolve("cpu"), one.program, oracle, limits=LIMITS), source)
            if problems:
                return Failure(_kind(problems[0]), "; ".join(problems))
        return None

    def sized_failure(self, sized: SizedRecipe, device: str) -> Failure | None:
        """What is wrong with the kernel for all sizes, at some of them; ``device``: one whose language is OpenCL C."""
        spec, start = resolve(device), time.perf_counter()
        try:
            kernel = rg.build(sized.opened.outputs(), spec, profile=False, cache=False)
            for size in sized.sizes():
                one = kernel.at(S=size)
                oracle = expression_oracle(sized.at(size).outputs(), one.program.outputs)
                problems = self._problems(Setup(resolve("cpu"), one.program, oracle, limits=LIMITS), one._chosen.source)
                if problems:
                    return Failure(f"at a size: {_kind(problems[0])}", f"S = {size}: {'; '.join(problems)}")
        except RollergenError as error:
            return Failure(f"refused for all sizes: {type(error).__name__}", str(error))
        except Exception as error:
            return Failure(f"raised for all sizes: {type(error).__name__}", f"{type(error).__name__}: {error}")
        finally:
            self.spent["all sizes"] = self.spent.get("all sizes", 0.0) + time.perf_counter() - start
        return None

    def _problems(self, setup: Setup, source: Source, *, again: bool = False) -> tuple[str, ...]:
        """``again``: the second time, with patience."""
        start, had = time.perf_counter(), _ended_s() + _processor_s(self._worker)
        try:
            return self._opened(setup).ask("check", Outcome(0, setup.program, source, 0.0)).problems
        except (Lost, RollergenError) as error:
            lost = error if isinstance(error, Lost) else error.__cause__
            if not isinstance(lost, Lost):
                return (f"{type(error).__name__}: {error}",)
        finally:
            self.spent["checked"] = self.spent.get("checked", 0.0) + time.perf_counter() - start
        self.close()
        compiling = "compiling" in str(lost)
        starved = lost.cause == "time" and _ended_s() - had < LIMITS.seconds("compiling" if compiling else "running")
        if not again and (starved or _KILLED in str(lost)):
            return self._problems(replace(setup, limits=PATIENT), source, again=True)
        if starved:
            self.too_slow.append(str(lost))
            return ()
        if lost.cause == "time" and compiling:  # PoCL's compiler, on loops made for a GPU
            self.never_compiled += 1
            return ()
        return (f"lost: {lost}",)

    def _opened(self, setup: Setup) -> Worker:
        """The worker, told of the setup; a new one where the limits are others."""
        if self._worker is not None and self._worker.limits != setup.limits:
            self.close()
        if self._worker is None:
            self._worker = Worker(setup)
        else:
            self._worker.ask("open", setup)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


def _ended_s() -> float:
    """Seconds of processor time of all processes that this one began and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _processor_s(worker: Worker | None) -> float:
    """Seconds of processor time of a worker that runs."""
    if worker is None:
        return 0.0
    with open(f"/proc/{worker.pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _kind(problem: str) -> str:
    if problem.startswith("DeviceError: not launched"):
        return "not launched"
    return problem.partition(":")[0]
