"""``torch.compile(module, backend="rollergen")``: each graph that dynamo finds is a model of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any

from rollergen.build import check_settings
from rollergen.errors import ArgumentError, RollergenError
from rollergen.expr.dims import HIGHEST
from rollergen.importers.torch_models import exported
from rollergen.measure.outcome import watched
from rollergen.network.compiling import compile as compile_model
from rollergen.network.model import Model
from rollergen.runtime.interop import to_torch


def backend(
    graph: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """A function of the graph's inputs, compiled for the CPU at its first call.

    Sizes that torch leaves open (dynamic=True, mark_dynamic, and by itself from the second size of a call on) are dims
    of one model: in the range that torch knows, else up to eight times the size at hand, and 64.  Beyond it the graph
    is compiled anew, and for each size where torch cannot export it for a range; one warning tells of that.

    ``options``: of `torch.compile`, named arguments of `rollergen.compile` such as {"profile": False}; ArgumentError
    for others, and for a ``mode``, which is inductor's.  Parameters and buffers of modules are constants, packed once;
    where one was changed by what torch counts, or has other memory, the graph is compiled anew.  What wants gradients,
    gives views of its inputs or results that share memory, or cannot be compiled (training, memory of another device,
    no operator with a counterpart), is left to torch, with one warning for each graph.
    """
    import torch

    if mode is not None:
        raise ArgumentError(f"mode is {mode!r}, which is inductor's; expected options, such as {{'profile': False}}")
    for name in options or {}:
        if name not in _OPTIONS:
            near = "".join(f"; did you mean {one}?" for one in get_close_matches(str(name), _OPTIONS, 1))
            raise ArgumentError(
                f"options has {name!r}; expected {', '.join(_OPTIONS)}, as rg.compile takes them: graphs run on the "
                f"CPU{near}"
            )
    given = _DEFAULTS | dict(options or {})
    watched(given.pop("progress"))
    check_settings(**given)
    return torch.compiler.disable(_Graph(graph, dict(options or {})))  # type: ignore[no-any-return]


_DEFAULTS = {
    name: one.default for name, one in signature(compile_model).parameters.items()
    if one.kind is one.KEYWORD_ONLY and name != "dims"
}  # fmt: skip
_OPTIONS = tuple(_DEFAULTS)


_Ranges = Mapping[tuple[int, int], tuple[int, int]]
"""Of open extents, (input, axis): the least and the greatest size for which a model is."""


_FUSED = {
    "_transformer_encoder_layer_fwd": "; torch.backends.mha.set_fastpath_enabled(False) has torch trace its operators"
}


_ROOM, _LEAST = 8, 64
"""Where torch knows no bound of a size: times the size at hand, rounded up to a power of 2, and the least bound."""


_SIZES: dict[Any, list[Any]] = {}
"""For which shapes of its inputs each code was compiled (`_code`), since dynamo was reset, which then counts anew."""

backend.reset = _SIZES.clear  # type: ignore[attr-defined]  # torch._dynamo.reset calls it


class _Graph:
    def __init__(self, graph: Any, options: dict[str, Any]) -> None:
        self._graph, self._options = graph, options
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._sizes = _SIZES.setdefault(_code(graph), [])
        self._kept = [bool(_of_module(node)) for node in placeholders]
        self._open = _open_extents(placeholders, self._kept)
        self._numbers = _numbers(placeholders, self._open)
        self._ranges: list[_Ranges] = []
        self._why = "torch leaves no size open"
        self._models: dict[Any, Model] = {}
        self._left, self._shares = False, _shares_memory(graph)

    def __call__(self, *arguments: Any) -> Any:
        import torch

        if self._left:
            return self._graph(*arguments)
        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            return self._leave(arguments, "gradients are wanted; call it under torch.no_grad()")
        if any(one.device.type != "cpu" for one in tensors):
            return self._leave(arguments, "tensors lie on another device than the CPU")
        if self._shares:
            return self._leave(arguments, "results share memory with inputs or each other; writes would be lost")
        fixed = [kept or not isinstance(one, torch.Tensor) for kept, one in zip(self._kept, arguments, strict=True)]
        given = tuple(one.detach() for one, held in zip(arguments, fixed, strict=True) if not held)
        key = self._key(arguments, fixed)
        if key not in self._models:
            try:
                self._models = {k: v for k, v in self._models.items() if _same_weights(k, key)}
                model = self._model(arguments, fixed, given)
                if model.steps and all(one.defined is None for one in model.steps):
                    every = ", ".join(dict.fromkeys(one.operators for one in model.steps))
                    return self._leave(arguments, f"no kernel was made of {every}{_FUSED.get(every, '')}")
                key = self._key(arguments, fixed)
                self._models[key] = model
            except RollergenError as error:
                return self._leave(arguments, str(error))
        made = self._models[key](*given)
        return made if given else torch.utils._pytree.tree_map(to_torch, made)

    def _key(self, arguments: Sequence[Any], fixed: Sequence[bool]) -> tuple[Any, ...]:
        """What a model of these arguments is compiled for: open sizes of one range are the same."""
        ranges = self._ranges_of(arguments)
        return tuple(
            None if self._open and n in self._numbers else _identity(one, held, n, ranges)
            for n, (one, held) in enumerate(zip(arguments, fixed, strict=True))
        )

    def _ranges_of(self, arguments: Sequence[Any]) -> _Ranges:
        """Those for which a model was made that takes the sizes of these arguments, else new ones."""
        sizes = {(n, axis): int(arguments[n].shape[axis]) for n, axis in self._open}
        for one in self._ranges:
            if all(low <= sizes[place] <= high for place, (low, high) in one.items()):
                return one
        made = {}
        for place, (low, high) in self._open.items():
            room = max(_LEAST, _ROOM * 2 ** (sizes[place] - 1).bit_length())
            made[place] = (min(low, sizes[place]), max(room if high is None else high, sizes[place]))
        return made

    def _model(self, arguments: Sequence[Any], fixed: Sequence[bool], given: tuple[Any, ...]) -> Any:
        """For all sizes in a range, where sizes are open and torch can export the graph so, else for those at hand."""
        if self._open:
            ranges = self._ranges_of(arguments)
            try:
                model = self._compiled(arguments, fixed, given, ranges)
            except RollergenError as error:
                self._open, self._why = {}, str(error)
            else:
                if self._ranges and ranges not in self._ranges:
                    bounds = [[*one.values()] for one in (self._ranges[-1], ranges)]
                    self._tell(f"{bounds[1]} after {bounds[0]}", "torch._dynamo.mark_dynamic(x, axis, max=...)")
                self._ranges.append(ranges)
                return model
        sizes = [tuple(one.shape) for one in given]
        if sizes not in self._sizes:
            self._sizes.append(sizes)
            if len(self._sizes) == 2:
                before, now = ([list(one) for one in shapes] for shapes in self._sizes)
                self._tell(f"{now} after {before} ({self._why})", "few sizes, such as inputs padded to some multiple")
        return self._compiled(arguments, fixed, given, {})

    def _tell(self, sizes: str, wanted: str) -> None:
        warnings.warn(
            f"rollergen compiles the same code again for inputs of other sizes, {sizes}: each takes seconds at its "
            f"first call; expected {wanted}",
            stacklevel=5,
        )

    def _leave(self, arguments: Sequence[Any], why: str) -> Any:
        warnings.warn(f"rollergen leaves a graph to torch: {why}", stacklevel=4)
        self._left = True
        return self._graph(*arguments)

    def _compiled(
        self, arguments: Sequence[Any], fixed: Sequence[bool], given: tuple[Any, ...], ranges: _Ranges
    ) -> Model:
        """The model of these arguments, for all sizes in the ``ranges`` where there are such."""
        import torch

        graph, numbers = self._graph, self._numbers if ranges else {}
        places = [n for n, held in enumerate(fixed) if not held]

        class Bound(torch.nn.Module):
            """The graph as a module of the inputs that differ from call to call."""

            def __init__(self) -> None:
                super().__init__()
                for n, (one, held) in enumerate(zip(arguments, fixed, strict=True)):
                    if held and isinstance(one, torch.Tensor):
                        self.register_buffer(f"held_{n}", one.detach())

            def forward(self, *inputs: Any) -> Any:
                of = dict(zip(places, inputs, strict=True))
                for n, one in enumerate(arguments):
                    if n in numbers:
                        of[n] = of[numbers[n][0]].shape[numbers[n][1]]
                    elif fixed[n]:
                        of[n] = getattr(self, f"held_{n}") if isinstance(one, torch.Tensor) else one
                return graph(*(of[n] for n in range(len(arguments))))

        if not ranges:
            return compile_model(Bound().eval(), given, "cpu", **self._options)
        auto = lambda low, high: torch.export.Dim.AUTO(min=low, max=high)
        shapes = tuple({axis: auto(*ranges[n, axis]) for m, axis in ranges if m == n} for n in places)
        return compile_model(exported(Bound().eval(), given, (shapes,)), None, "cpu", **self._options)


def _open_extents(placeholders: Sequence[Any], kept: Sequence[bool]) -> dict[tuple[int, int], tuple[int, int | None]]:
    """(input, axis) of the extents that dynamo leaves open, with the bounds that it knows."""
    found: dict[tuple[int, int], tuple[int, int | None]] = {}
    for n, (one, held) in enumerate(zip(placeholders, kept, strict=True)):
        for axis, extent in enumerate(() if held else _shape(one)):
            if not isinstance(extent, int) and extent.node.maybe_as_int() is None:
                bounds = extent.node.shape_env.bound_sympy(extent.node.expr)
                high = int(bounds.upper) if bounds.upper.is_Integer and bounds.upper <= HIGHEST else None
                found[n, axis] = max(1, int(bounds.lower)), high
    return found


def _numbers(placeholders: Sequence[Any], extents: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Inputs that are such an extent, and where it is."""
    import torch

    found: dict[int, tuple[int, int]] = {}
    for n, one in enumerate(placeholders):
        value = one.meta.get("example_value")
        for m, axis in extents if isinstance(value, torch.SymInt) else ():
            if _shape(placeholders[m])[axis].node.expr == value.node.expr:
                found.setdefault(n, (m, axis))
    return found


def _shape(placeholder: Any) -> tuple[Any, ...]:
    return tuple(getattr(placeholder.meta.get("example_value"), "shape", ()))


def _code(graph: Any) -> Any:
    """The code that dynamo made the graph of: its frame, where its first operator is written, its tensors."""
    import torch

    nodes = list(graph.graph.nodes)
    frame = getattr(torch._guards.CompileContext.current_compile_id(), "frame_id", None)
    place = next((one.stack_trace for one in nodes if one.op.startswith("call")), None)
    return frame, place, tuple(one.name for one in nodes if isinstance(one.meta.get("example_value"), torch.Tensor))


def _of_module(node: Any) -> Any:
    """Whether dynamo marked an input of its graph as a parameter or buffer of a module."""
    import torch

    known = node.meta.get("tensor_dict", {})
    return known.get("_dynamo_static_input_type") or isinstance(node.meta.get("example_value"), torch.nn.Parameter)


def _shares_memory(graph: Any) -> bool:
    """Whether a result is a view of an input or of another result, as torch has traced it."""
    import torch

    nodes = list(graph.graph.nodes)
    results = torch.utils._pytree.tree_leaves(nodes[-1].args)
    inputs = [one for one in nodes if one.op == "placeholder"]

    def storages(some: Sequence[Any]) -> list[Any]:
        traced = [one.meta.get("example_value") for one in dict.fromkeys(some) if isinstance(one, torch.fx.Node)]
        return [one.untyped_storage()._cdata for one in traced if isinstance(one, torch.Tensor)]

    own = storages(results)
    return len(set(own)) < len(own) or not set(own).isdisjoint(storages(inputs))


def _identity(one: Any, held: bool, number: int, ranges: _Ranges) -> Any:
    """What a model is compiled for: of inputs shape, with ranges where there are such, and dtype, of weights the object
    and how often it was changed."""
    if not hasattr(one, "dtype"):
        return one
    if held:
        return "weight", id(one), one._version, one.data_ptr()
    return tuple(ranges.get((number, axis), extent) for axis, extent in enumerate(one.shape)), one.dtype


def _same_weights(known: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    weights = lambda key: [one for one in key if isinstance(one, tuple) and one[0] == "weight"]
    return weights(known) == weights(wanted)
