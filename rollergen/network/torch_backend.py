"""``torch.compile(module, backend="rollergen")``: each graph that dynamo finds is a model of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any

from rollergen.errors import ArgumentError, RollergenError
from rollergen.network.compiling import compile as compile_model
from rollergen.network.model import Model
from rollergen.runtime.interop import to_torch


def backend(
    graph: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """A function of the graph's inputs, compiled for the CPU at its first call with arrays of each size.

    ``options``: of `torch.compile`, named arguments of `rollergen.compile` such as {"profile": False}; ArgumentError
    for others, and for a ``mode``, which is inductor's.  Parameters and buffers of modules are constants, packed once;
    where one was changed by what torch counts, or has other memory, the graph is compiled anew.  What wants gradients,
    gives views of its inputs or results that share memory, or cannot be compiled (training, memory of another device,
    no operator with a counterpart), is left to torch, with one warning for each graph.  One warning tells where code
    is compiled for inputs of a second size.
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
    return torch.compiler.disable(_Graph(graph, dict(options or {})))  # type: ignore[no-any-return]


_OPTIONS = tuple(
    name for name, one in signature(compile_model).parameters.items()
    if one.kind is one.KEYWORD_ONLY
)  # fmt: skip


_FUSED = {
    "_transformer_encoder_layer_fwd": "; torch.backends.mha.set_fastpath_enabled(False) has torch trace its operators"
}


_SIZES: dict[Any, list[Any]] = {}
"""For which shapes of its inputs each code was compiled (`_code`)."""


class _Graph:
    def __init__(self, graph: Any, options: dict[str, Any]) -> None:
        self._graph, self._options = graph, options
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._sizes = _SIZES.setdefault(_code(graph), [])
        self._kept = [bool(_of_module(node)) for node in placeholders]
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
        key = tuple(_identity(one, held) for one, held in zip(arguments, fixed, strict=True))
        if key not in self._models:
            try:
                self._tell_sizes([tuple(one.shape) for one in given])
                self._models = {k: v for k, v in self._models.items() if _same_weights(k, key)}
                model = self._compiled(arguments, fixed, given)
                if not model.kernels and model.layers:
                    every = ", ".join(dict.fromkeys(one.operators for one in model.layers))
                    return self._leave(arguments, f"no kernel was made of {every}{_FUSED.get(every, '')}")
                self._models[key] = model
            except RollergenError as error:
                return self._leave(arguments, str(error))
        made = self._models[key](*given)
        return made if given else torch.utils._pytree.tree_map(to_torch, made)

    def _tell_sizes(self, sizes: list[tuple[int, ...]]) -> None:
        """Warns where they are the second ones of this code."""
        if sizes in self._sizes:
            return
        self._sizes.append(sizes)
        if len(self._sizes) == 2:
            before, now = ([list(one) for one in shapes] for shapes in self._sizes)
            warnings.warn(
                f"rollergen compiles the same code again for inputs of other sizes, {now} after {before}: each takes "
                "seconds at its first call, and dynamic=True or mark_dynamic do not change that; expected few sizes, "
                "such as inputs padded to some multiple",
                stacklevel=4,
            )

    def _leave(self, arguments: Sequence[Any], why: str) -> Any:
        warnings.warn(f"rollergen leaves a graph to torch: {why}", stacklevel=4)
        self._left = True
        return self._graph(*arguments)

    def _compiled(self, arguments: Sequence[Any], fixed: Sequence[bool], given: tuple[Any, ...]) -> Model:
        import torch

        graph = self._graph

        class Bound(torch.nn.Module):
            """The graph as a module of the inputs that differ from call to call."""

            def __init__(self) -> None:
                super().__init__()
                for n, (one, held) in enumerate(zip(arguments, fixed, strict=True)):
                    if held and isinstance(one, torch.Tensor):
                        self.register_buffer(f"held_{n}", one.detach())

            def forward(self, *inputs: Any) -> Any:
                left = iter(inputs)
                held = lambda n, one: getattr(self, f"held_{n}") if isinstance(one, torch.Tensor) else one
                return graph(*(held(n, one) if fixed[n] else next(left) for n, one in enumerate(arguments)))

        return compile_model(Bound().eval(), given, "cpu", **self._options)


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


def _identity(one: Any, held: bool) -> Any:
    """What a model is compiled for: of inputs shape and dtype, of weights the object and how often it was changed."""
    if not hasattr(one, "dtype"):
        return one
    return ("weight", id(one), one._version, one.data_ptr()) if held else (tuple(one.shape), one.dtype)


def _same_weights(known: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    weights = lambda key: [one for one in key if isinstance(one, tuple) and one[0] == "weight"]
    return weights(known) == weights(wanted)
