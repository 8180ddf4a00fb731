"""Compiled models in the store: found by one look-up of the network, its device and the options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rollergen.build import Terms
from rollergen.expr.language import Tensor
from rollergen.importers.graph import Network, Value
from rollergen.kernel import Kernel
from rollergen.network.building import kernel_of_step
from rollergen.network.model import Model
from rollergen.network.partition import Layouts, Step, steps_of
from rollergen.store.models import Made, ModelCache, Whole

Definition = tuple[Tensor, tuple[Tensor, ...]]


class Stored:
    """The store of one compilation.  There is none unless ``cache`` is True, nor where it is unknown whether network
    and options are those of an earlier compilation."""

    def __init__(self, network: Network, terms: Terms, cache: object) -> None:
        self._network, self._terms = network, terms
        keeps = cache is True and network.text is not None and terms.options.rank is None
        self._cache = self._opened() if keeps else None

    def _opened(self) -> ModelCache:
        assert self._network.text is not None
        terms = self._terms
        return ModelCache(self._network.text(), terms.device, terms.options, terms.count, terms.driver)

    def find(self) -> Model | None:
        """The model, if it was compiled before: its expressions are made when somebody asks for them."""
        whole = None if self._cache is None else self._cache.find()
        if whole is None:
            return None
        rows, last = whole.steps["steps"], {name: tuple(halo) for name, halo in whole.steps["last"].items()}
        definitions = self._definitions(last)
        steps = [_step(self._network, row, definitions) for row in rows]
        first = {row["kernel"]: step for row, step in reversed(list(zip(rows, steps, strict=True)))}
        kernels = [
            kernel_of_step(first[number], self._terms, made.candidates, made.candidates[made.chosen], made.cuts)
            for number, made in enumerate(whole.kernels)
        ]
        of = tuple(None if row["kernel"] is None else kernels[row["kernel"]] for row in rows)
        return Model(self._network, steps, of, self._terms.device)

    def keep(self, made: Sequence[tuple[Step, Kernel | None]], last: Layouts) -> None:
        """Stores a model; ``last``: as `steps_of` has it."""
        if self._cache is None:
            return
        numbers = {node.source: number for number, node in enumerate(self._network.nodes)}
        kernels = {
            kernel: number for number, kernel in enumerate(dict.fromkeys(one for _, one in made if one is not None))
        }
        rows = [
            {
                "nodes": [numbers[node.source] for node in step.nodes],
                "inputs": step.inputs,
                "outputs": [[one.name, one.shape, one.dtype] for one in step.outputs],
                "kernel": None if kernel is None else kernels[kernel],
                "reason": step.reason,
            }
            for step, kernel in made
        ]
        parts = tuple(Made(one.outcomes, one.place, one.cuts) for one in kernels)
        self._cache.keep(Whole({"last": dict(sorted(last.items())), "steps": rows}, parts))

    def _definitions(self, last: Layouts) -> Callable[[], dict[str, Step]]:
        taking = self._terms.device.kind.machine is None
        return lru_cache(maxsize=1)(lambda: {one.outputs[0].name: one for one in steps_of(self._network, taking, last)})


def _step(network: Network, row: dict[str, Any], definitions: Callable[[], dict[str, Step]]) -> Step:
    """The step of one row of `Whole.steps`; ``definitions``: of those that have a kernel, by the name of the result."""
    outputs = tuple(
        Value(name, None if shape is None else tuple(shape), dtype) for name, shape, dtype in row["outputs"]
    )

    def defined() -> Definition:
        found = definitions()[outputs[0].name]
        assert found.expression is not None
        return found.expression, found.given

    nodes = tuple(network.nodes[number] for number in row["nodes"])
    return Step(nodes, tuple(row["inputs"]), outputs, None if row["kernel"] is None else defined, row["reason"])
