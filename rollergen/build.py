"""The pipeline, one line for each stage: read this first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.dropped import collected_drops, drop_notes
from rollergen.errors import ArgumentError, DeviceError, ExpressionError, refuse_top_k, shown
from rollergen.expr.checks import shallow_enough
from rollergen.expr.dims import has_dims
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import MendableError
from rollergen.hal.runtime import remembered_for
from rollergen.hal.runtimes.remembered import doubt
from rollergen.hal.spec import Device
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Outcome, Progress, watched
from rollergen.store.cache import Cache
from rollergen.targets import resolve
from rollergen.verify.judge import Judge, VerifierLike, judge_of

if TYPE_CHECKING:
    from rollergen.bundle.references import SelfTest
    from rollergen.construct import Ranked
    from rollergen.gate.comparison import Oracle
    from rollergen.program.rprogram import RProgram
    from rollergen.runtime.executor import RuntimeExecutor
    from rollergen.sizes.kernel import SizedKernel

_MODEL_FILES = (".onnx", ".pt", ".pth", ".pt2", ".safetensors", ".tflite")
CANDIDATES = 10
CANDIDATES_WHERE_COMPILING_IS_SLOW = 4


def build(
    expr: Tensor | Sequence[Tensor],
    device: str | Path | Device | None = None,
    *,
    inputs: Sequence[Tensor] | None = None,
    top_k: int | None = None,
    profile: bool | str = "auto",
    cache: bool = True,
    verifier: VerifierLike = None,
    options: BuildOptions = BuildOptions(),
    progress: Progress | None = None,
    sizes: Mapping[str, Iterable[int]] | None = None,
) -> Kernel:
    """A kernel that computes ``expr`` (one tensor, or several) on ``device``.

    device
        None: the best one present.  Else a name (``rollergen devices`` lists them), a path that ends
        in .json, or a `Device`.
    inputs
        The order of the kernel's arguments; None: in which tensors first appear.
    top_k
        How many of the model's best programs are candidates, which are emitted and measured where that is possible.
        None: 10, or 4 where compiling is slow (PoCL); of those that are measured, up to half are the best of other
        variants (`construct.variety`).
    profile
        "auto": check and measure them if the device is present; True: insist; False: take the model's
        first choice, which makes the result deterministic.
    cache
        Whether to take a kernel that was built before from the user's cache directory, and to keep this one there.
        `store.keys` says what a kernel is found by.  The environment variable ROLLERGEN_CACHE_DIR names another
        directory, ROLLERGEN_CACHE_LIMIT another size than 1GiB. A cache that cannot be used is a `CacheWarning`, never
        an error.
    verifier
        A learned ranker, which reorders a longer list of the model's best before the first ``top_k`` are emitted
        (`rollergen verify train` makes one): a path; "auto": the one released for this kind of device, if any; None:
        the model's order.
    progress
        A function, called with (what, done, of) while candidates are compiled and timed; None: no calls.
    sizes
        For an expression with dims (`rollergen.dim`): more sizes of each dim at which programs are constructed, beside
        the sampled ones.  The result is then a `sizes.kernel.SizedKernel`, for all values of the dims.

    Raises a `RollergenError` that names what is wrong: expression, device, options; CheckFailedError
    if every measured candidate is wrong.

    >>> import rollergen as rg
    >>> A, B = rg.tensor("A", (64, 32)), rg.tensor("B", (32, 48))
    >>> kernel = rg.build(rg.einsum("mk,kn->mn", A, B, name="C"), "v100", profile=False)
    >>> print(kernel.signature)
    kernel(A: float32[64, 32], B: float32[32, 48]) -> C: float32[64, 48]
    """
    check_settings(top_k, profile, cache, options)
    progress = watched(progress)
    if has_dims(expr):
        options = replace(options, quantize_activations=False)  # groups of rows would be those of one size
        own = partial(build, top_k=top_k, profile=False, cache=cache, verifier=verifier, options=options)
        return _sized(expr, device, inputs, sizes, own, profile, options, progress, cache)  # type: ignore[return-value]
    if sizes is not None:
        raise ArgumentError(f"sizes is {shown(sizes)}, but the expression has no dims; expected None")
    _check_kind(expr)
    if verifier is not None and options.rank is not None:
        raise ArgumentError("options.rank and verifier are both given; expected one of them")
    terms = terms_of(resolve(device), top_k, profile, options, verifier, later=cache)
    target = terms.device
    with shallow_enough("rg.build of the expression"):
        graph = planned(expr, target, options, inputs, terms.count)
    if not graph.tensor_ops:
        terms = replace(terms, executor=None, driver=None, varied=False)  # no element is to be checked or timed
    keeps = cache and options.rank is None  # nobody knows whether a function is the same as the last time
    kept = Cache(graph, target, options, terms.count, terms.driver, terms.judge.identity) if keeps else None

    def oracle() -> Oracle:
        from rollergen.gate.program_oracle import graph_oracle

        return graph_oracle(graph, _tensors(expr))

    found, executor = kept.find() if kept else None, terms.executor
    if found is None and executor is None and terms.driver is not None:
        executor = _executor(target, profile)
        if executor is None or executor.driver != terms.driver:  # what was remembered holds no longer
            doubt()
            return build(
                expr, device, inputs=inputs, top_k=top_k, profile=profile, cache=cache, verifier=verifier,
                options=options, progress=progress,
            )  # fmt: skip
    if found is None:
        # not where the kernel is found in the cache
        from rollergen.measure.candidates import measured, paused_collector, proposed, unmeasured

        with collected_drops():
            drafts = partial(terms.drafted, graph), terms.count, target, options
            if executor is None:
                with paused_collector():
                    candidates, chosen = unmeasured(*drafts, progress)
            else:
                with paused_collector():
                    candidates = proposed(*drafts)
                candidates, chosen = measured(candidates, target, options, progress, executor, oracle())
            if kept:
                kept.keep(candidates, chosen)
    else:
        candidates, chosen = found.candidates, found.chosen
    return terms.kernel(candidates, chosen, graph.cuts, lambda: (graph, oracle()))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a build goes by beside its expression; ``driver``: what measured times depend on, None where nothing is
    measured; ``executor``: what runs the candidates, None where nothing is to be run, or not yet; ``count``: how many
    are emitted; ``varied``: whether the best of other variants are among them."""

    device: Device
    options: BuildOptions
    driver: str | None
    executor: RuntimeExecutor | None
    count: int
    varied: bool
    judge: Judge

    def drafted(self, graph: Graph, wanted: int) -> Sequence[Ranked]:
        """Up to `wanted` programs of the stages, best first."""
        return self.judge.programs(graph, self.device, self.options, wanted, self.varied)

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """What construction and the judge did, for `explain`."""
        from rollergen.construct.notes import construction_notes

        drafted = self.judge.drafts(self.count, self.varied)
        by_judge = self.judge.notes(graph, self.device, self.options, self.count)
        return construction_notes(graph, self.device, self.options, drafted) + by_judge

    def kernel(
        self,
        candidates: tuple[Outcome, ...],
        chosen: Outcome,
        cuts: Sequence[str],
        defined: Callable[[], tuple[Graph, Oracle]],
    ) -> Kernel:
        """The kernel of a build by these terms; ``defined`` gives stages and definition where somebody asks for its
        notes or saves it."""
        checks = _check_notes(candidates, self.options, self.driver)
        unmeasured = replace(self, driver=None, executor=None)  # kernels keep no executor

        def references(program: RProgram) -> tuple[SelfTest, ...]:
            from rollergen.bundle.references import self_tests

            return self_tests(program, defined()[1])

        def notes() -> tuple[str, ...]:
            graph, _ = defined()
            with collected_drops() as dropped:
                unmeasured.drafted(graph, unmeasured.count)
                own = unmeasured.notes(graph)
            return own + checks + drop_notes(dropped)

        return Kernel(self.device, candidates, chosen, cuts, notes, references=references)


def terms_of(
    device: Device, top_k: int | None, profile: bool | str, options: BuildOptions, verifier: VerifierLike = None,
    *, later: bool = False,
) -> Terms:  # fmt: skip
    """The terms of `build` with these arguments, checked by `check_settings`.  ``later``: without an executor where its
    driver is known before it is opened."""
    host = remembered_for(device) if later and profile is not False else None
    if host is None:
        executor = _executor(device, profile)
        driver = None if executor is None else executor.driver
        slowly = executor is not None and executor.runtime.compiles_slowly
    else:
        executor, driver, slowly = None, host.driver, host.compiles_slowly
    count, varied = _count(top_k, slowly), driver is not None and top_k is None
    return Terms(device, options, driver, executor, count, varied, judge_of(verifier, device))


def _sized(
    expr: Any,
    device: str | Path | Device | None,
    inputs: Sequence[Any] | None,
    sizes: Mapping[str, Iterable[int]] | None,
    own: Callable[..., Kernel],
    profile: bool | str,
    options: BuildOptions,
    progress: Progress,
    cache: bool,
) -> SizedKernel:
    """The kernel of an expression with dims; ``own`` builds the kernel of a size that needs one of its own."""
    from rollergen.sizes.build import build_sized, expression_of  # which other builds need not wait for

    expression, target = expression_of(expr, inputs), resolve(device)
    _check_kind(expression.at({name: one.high for name, one in expression.dims.items()})[0])
    executor, keeps = _executor(target, profile), cache and options.rank is None
    alone = lambda outputs, inputs: own(outputs, target, inputs=inputs)
    return build_sized(expression, target, options, executor, sizes, alone, progress, keeps)


def _check_kind(expr: object) -> None:
    if (isinstance(expr, (str, Path)) and str(expr).endswith(_MODEL_FILES)) or _is_torch_module(expr):
        raise ExpressionError(
            f"expr is {shown(expr)}, a whole model, which rg.build does not read; expected a tensor that rg.ops or "
            "rg.compute makes: one layer, such as rg.ops.linear(x, w); rg.compile takes modules of torch and "
            "files of ONNX"
        )
    if isinstance(expr, (str, Path, Device)):
        raise ExpressionError(f"expr is {shown(expr)}: the arguments look swapped: rg.build(expr, device)")


def check_settings(top_k: object, profile: object, cache: object, options: object) -> None:
    """Raises ArgumentError for values that neither `build` nor `rollergen.compile` takes."""
    refuse_top_k(top_k)
    if not isinstance(profile, bool) and not (isinstance(profile, str) and profile == "auto"):
        raise ArgumentError(f'profile is {shown(profile)}; expected "auto", True or False')
    if not isinstance(options, BuildOptions):
        raise ArgumentError(f"options is {shown(options)}; expected rg.BuildOptions(...)")
    if not isinstance(cache, bool):
        raise ArgumentError(
            f"cache is {shown(cache)}; expected True or False (ROLLERGEN_CACHE_DIR names another directory)"
        )


def _is_torch_module(expr: object) -> bool:
    return any(f"{one.__module__}.{one.__qualname__}" == "torch.nn.modules.module.Module" for one in type(expr).__mro__)


def _executor(device: Device, profile: bool | str) -> RuntimeExecutor | None:
    """What runs the candidates; None where nothing is to be run."""
    if profile is False:
        return None
    from rollergen.runtime.executor import executor_for  # not where the kernel is found in the cache

    try:
        return executor_for(device)
    except DeviceError as error:
        if profile is True or isinstance(error.__cause__, MendableError):  # then the device is there
            raise
        return None


def _check_notes(candidates: Sequence[Outcome], options: BuildOptions, driver: str | None) -> tuple[str, ...]:
    """What `explain` says of the compile check, where one was asked for."""
    if not options.compile_check:
        return ()
    from rollergen.measure.compile_check import MEASURED, check_notes

    return (MEASURED,) if driver is not None else check_notes(candidates)


def _count(top_k: int | None, compiles_slowly: bool) -> int:
    """How many candidates are emitted, and compiled and measured where the device is present."""
    if top_k is None:
        return CANDIDATES_WHERE_COMPILING_IS_SLOW if compiles_slowly else CANDIDATES
    return top_k


def _tensors(expr: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (expr,) if isinstance(expr, Tensor) else tuple(expr)
