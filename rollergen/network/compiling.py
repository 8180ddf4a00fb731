"""`rollergen.compile`: a model's network, its steps, and a kernel for each that differs from the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollergen.build import build, terms_of
from rollergen.construct.planning import row_limits
from rollergen.errors import ArgumentError, ConstructionError, ExpressionError, NonAffineIndexError, shown
from rollergen.expr.canonical import canonicalize
from rollergen.hal.spec import Device
from rollergen.importers import torch_models
from rollergen.importers.graph import Network
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Progress, silent
from rollergen.network.ahead import CompilingAhead
from rollergen.network.layouts import Laid, laid_out
from rollergen.network.model import Model
from rollergen.network.partition import Step, steps_of
from rollergen.network.stored import Stored
from rollergen.optional import optional
from rollergen.options import BuildOptions
from rollergen.runtime.executor import is_present
from rollergen.store.keys import expression_text
from rollergen.targets import resolve

UNMEASURED = 2
"""Programs of each kernel that are emitted where none is measured: the first, and what it is compared with."""


_NO_KERNEL = (ExpressionError, NonAffineIndexError, ConstructionError)
"""Why a step has no kernel, and its nodes are left to their own library; other errors are the caller's or ours."""


def compile(
    model: Any,
    example_inputs: Any = None,
    device: str | Path | Device | None = None,
    *,
    top_k: int | None = None,
    profile: bool | str = "auto",
    cache: bool = True,
    options: BuildOptions = BuildOptions(),
    progress: Progress | None = None,
) -> Model:
    """A whole model as kernels on ``device``.

    model
        A `torch.nn.Module` in eval mode, a `torch.export.ExportedProgram`, a path that ends in .onnx, an
        `onnx.ModelProto`, or a `Network` that was imported before.  Its weights become constants: they are read when it
        is compiled and at the first call, not after.
    example_inputs
        A tuple with the arguments of one call of the module, tensors or arrays: their shapes and dtypes are the
        compiled model's.  An exported program has its own, and so has an ONNX model whose extents are all numbers.
    device, top_k, profile, cache, options
        As `rollergen.build` takes them, for every kernel; where none is measured, ``top_k`` is 2 unless given.
    progress
        Called with (what, done, of) as steps have their kernels; None: nobody is.

    An operator without a counterpart in `rg.ops`, or for which no kernel can be constructed, is run by torch, or by
    ONNX's reference implementation, as a step of its own that `Model.layers` names.

    Raises ArgumentError for another kind of model, one in training mode, or one that changes a state; ShapeError for
    example inputs that do not fit an ONNX model; otherwise as `rollergen.build`.
    """
    if not isinstance(options, BuildOptions):
        raise ArgumentError(f"options is {shown(options)}; expected rg.BuildOptions(...)")
    target = resolve(device)
    network = _network(model, example_inputs)
    unmeasured = profile is False or not is_present(target)
    if top_k is None and unmeasured:
        top_k = UNMEASURED
    stored = Stored(network, terms_of(target, top_k, profile, options), cache)
    if (found := stored.find()) is not None:
        return found
    made: list[tuple[Step, Kernel | None]] = []
    progress = progress or silent
    settings: Any = {"top_k": top_k, "profile": profile, "cache": cache, "options": options}
    first_choices = settings | {"top_k": UNMEASURED, "profile": False}
    with CompilingAhead(target) as ahead:
        kernel_of = _kernels(target, settings, ahead if unmeasured else None)
        priced = kernel_of if unmeasured else _kernels(target, first_choices)
        steps, last = _steps(network, target, priced)
        for number, step in enumerate(steps):
            progress("steps", number, len(steps))
            if step.defined is None:
                made.append((step, None))
                continue
            try:
                made.append((step, kernel_of(step)))
            except _NO_KERNEL as error:
                made += [(Step((one,), one.inputs, one.outputs, reason=str(error)), None) for one in step.nodes]
    stored.keep(made, last)
    return Model(network, [step for step, _ in made], tuple(kernel for _, kernel in made), target)


def _steps(network: Network, target: Device, kernel_of: Callable[[Step], Kernel]) -> Laid:
    """Of CPUs, images in the layout that is predicted to be faster."""
    if target.kind.threads or target.kind.machine is not None:
        return steps_of(network, target.kind.machine is None), frozenset()

    def seconds(step: Step) -> float:
        if step.defined is None:
            return 0.0
        try:
            return kernel_of(step).predicted_time
        except _NO_KERNEL:
            return math.inf

    return laid_out(network, True, seconds)


def _kernels(
    target: Device, settings: dict[str, Any], ahead: CompilingAhead | None = None
) -> Callable[[Step], Kernel]:
    """Gives a step's kernel; those that one kernel can run have the same, and of those alike one is looked at.
    ``settings``: of their builds; ``ahead``: what compiles them meanwhile."""
    keys: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}

    def key_of(step: Step) -> str:
        if step.alike and step.alike in keys:
            return keys[step.alike]
        assert step.expression is not None
        key = expression_text(canonicalize(step.expression, step.given, row_limits(target)))
        if step.alike:
            keys[step.alike] = key
        return key

    def kernel_of(step: Step) -> Kernel:
        key = key_of(step)
        if key not in kernels:
            assert step.defined is not None
            expression, given = step.defined()
            kernels[key] = build(expression, target, inputs=given, **settings)
            if ahead is not None:
                ahead.begin(kernels[key])
        return kernels[key]

    return kernel_of


def _network(model: Any, example_inputs: Any) -> Network:
    if isinstance(model, Network):
        return model
    if torch_models.is_module(model):
        return torch_models.imported(torch_models.exported(model, example_inputs), type(model).__name__)
    if torch_models.is_exported(model):
        if example_inputs is not None:
            raise ArgumentError("example_inputs beside an exported program, which has its own; expected None")
        return torch_models.imported(model, "exported program")
    if is_onnx(model):
        onnx_models = optional("rollergen.importers.onnx_models", "onnx")
        proto, title = onnx_models.loaded(model)
        network: Network = onnx_models.imported(proto, example_inputs, title)
        return network
    raise ArgumentError(
        f"model is {shown(model)}; expected a torch.nn.Module or a torch.export.ExportedProgram "
        '(pip install "rollergen[torch]"), a path that ends in .onnx, or an onnx.ModelProto '
        '(pip install "rollergen[onnx]")'
    )


def is_onnx(model: object) -> bool:
    """Whether it is a path of an ONNX file, or an `onnx.ModelProto`; onnx is not imported."""
    path = isinstance(model, (str, Path)) and str(model).endswith(".onnx")
    return path or torch_models.is_a(model, "onnx.onnx_ml_pb2", "ModelProto")
