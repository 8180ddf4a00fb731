"""`rollergen.compile`: a model's network, its steps, and a kernel for each that differs from the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollergen.build import check_settings, terms_of
from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, shown
from rollergen.hal.spec import Device
from rollergen.importers import torch_models
from rollergen.importers.graph import Network, SizedNetwork
from rollergen.kernel import Kernel
from rollergen.measure.outcome import Progress, watched
from rollergen.network.ahead import CompilingAhead
from rollergen.network.building import NO_KERNEL, UNMEASURED, by_library, kernels_of, steps_for
from rollergen.network.model import Model
from rollergen.network.partition import Step
from rollergen.network.repeated import repeated
from rollergen.network.stored import Stored
from rollergen.optional import optional
from rollergen.runtime.executor import is_present
from rollergen.targets import resolve

if TYPE_CHECKING:
    from rollergen.network.sized_model import SizedModel


def compile(
    model: Any,
    example_inputs: Any = None,
    device: str | Path | Device | None = None,
    *,
    dims: Mapping[str, Any] | None = None,
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
        compiled model's.  Of an ONNX model arrays in the order of its inputs or a dictionary by their names: their
        shapes count.  An exported program has its own, and so has an ONNX model whose extents are all numbers.
    dims
        Of an ONNX model: for each extent with a name (``dim_param``) its range (low, high), an `rg.dim`, or a number.
        An exported program with dynamic shapes has its own ranges; ``dims`` narrows them, of x_0, dimension 0 of its
        input x.  The result is then a `network.sized_model.SizedModel`, for all sizes in these ranges.
    device, top_k, profile, cache, options
        As `rollergen.build` takes them, for every kernel; where none is measured, ``top_k`` is 2 unless given.
    progress
        A function, called with (what, done, of) for each step whose kernel is built; None: no calls.

    An operator without a counterpart in `rg.ops`, or for which no kernel can be constructed, is run by torch, or by
    ONNX's reference implementation, as a step of its own that `Model.layers` names.

    Raises ArgumentError for another kind of model, one in training mode, or one that changes a state; ShapeError for
    example inputs that do not fit an ONNX model; otherwise as `rollergen.build`.
    """
    check_settings(top_k, profile, cache, options)
    progress = watched(progress)
    target = resolve(device)
    network = _network(model, example_inputs, dims)
    if isinstance(network, SizedNetwork) and not network.dims:
        network = network.at({})
    unmeasured = profile is False or not is_present(target)
    if top_k is None and unmeasured:
        top_k = UNMEASURED
    if isinstance(network, SizedNetwork):
        return _sized(network, target, top_k, profile, cache, options, progress)  # type: ignore[return-value]
    terms = terms_of(target, top_k, profile, options)
    stored = Stored(network, terms, cache)
    if (found := stored.find()) is not None:
        return found
    made: list[tuple[Step, Kernel | None]] = []
    settings: Any = {"top_k": top_k, "profile": profile, "cache": cache, "options": options}
    first_choices = settings | {"top_k": UNMEASURED, "profile": False}
    with CompilingAhead(target) as ahead:
        kernel_of = kernels_of(target, settings, ahead if unmeasured else None)
        priced = kernel_of if unmeasured else kernels_of(target, first_choices)
        steps, last = steps_for(network, target, priced)
        again = repeated(network, steps, target)
        for number, step in enumerate(steps):
            progress("steps", number, len(steps))
            if step.defined is None:
                made.append((step, None))
                continue
            try:
                made.append((step, kernel_of(step, step.alike in again)))
            except NO_KERNEL as error:
                made += [(one, None) for one in by_library(step, error)]
    if not unmeasured:
        from rollergen.network.choosing import chosen_in_calls  # which imports NumPy

        made = list(chosen_in_calls(network, made, terms))
    stored.keep(made, last)
    return Model(network, [step for step, _ in made], tuple(kernel for _, kernel in made), target)


def _sized(
    network: SizedNetwork, target: Device, top_k: int | None, profile: bool | str, cache: bool, options: BuildOptions,
    progress: Progress,
) -> SizedModel:  # fmt: skip
    """The model for all sizes."""
    from rollergen.network.sized_model import SizedModel  # which models without dims need not wait for
    from rollergen.network.sizes import Networks, Steps

    settings = {"top_k": top_k, "profile": False, "cache": cache, "options": options}
    alone = lambda one: compile(one, None, target, top_k=top_k, profile=False, cache=cache, options=options)
    terms = terms_of(target, top_k, profile, options)
    steps = Steps(Networks(network), terms, settings, cache and options.rank is None, progress)
    return SizedModel(steps, target, alone)


def _network(model: Any, example_inputs: Any, dims: Mapping[str, Any] | None) -> Network | SizedNetwork:
    if dims is not None and example_inputs is not None:
        raise ArgumentError("example_inputs beside dims, which say what is fixed and what is not; expected one of them")
    if dims is not None and not (is_onnx(model) or torch_models.is_exported(model)):
        raise ArgumentError(
            f"dims beside {shown(model)}; expected them of an ONNX model, or of a torch.export.ExportedProgram with "
            "dynamic_shapes"
        )
    if isinstance(model, (Network, SizedNetwork)):
        return model
    if torch_models.is_module(model):
        return torch_models.imported(torch_models.exported(model, example_inputs), type(model).__name__)
    if torch_models.is_exported(model):
        if example_inputs is not None:
            raise ArgumentError("example_inputs beside an exported program, which has its own; expected None")
        return torch_models.imported(model, "exported program", dims)
    if is_onnx(model):
        onnx_models = optional("rollergen.importers.onnx_models", "onnx")
        proto, title = onnx_models.loaded(model)
        if dims is not None:
            return onnx_models.imported_with_dims(proto, dims, title)  # type: ignore[no-any-return]
        return onnx_models.imported(proto, example_inputs, title)  # type: ignore[no-any-return]
    raise ArgumentError(
        f"model is {shown(model)}; expected a torch.nn.Module or a torch.export.ExportedProgram "
        '(pip install "rollergen[torch]"), a path that ends in .onnx, or an onnx.ModelProto '
        '(pip install "rollergen[onnx]")'
    )


def is_onnx(model: object) -> bool:
    """Whether it is a path of an ONNX file, or an `onnx.ModelProto`; onnx is not imported."""
    path = isinstance(model, (str, Path)) and str(model).endswith(".onnx")
    return path or torch_models.is_a(model, "onnx.onnx_ml_pb2", "ModelProto")
