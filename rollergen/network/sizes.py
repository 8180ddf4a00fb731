"""Networks with dims at any sizes, cut into steps once, and the kernels of these steps for all sizes.

The largest sizes say which steps there are.  At other sizes a step computes the same values by the same nodes, so that
its expression is a function of the sizes: what `rollergen.build` takes dims for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rollergen.build import Terms, build
from rollergen.errors import RollergenError
from rollergen.expr.dims import Dim, Sized
from rollergen.expr.language import Tensor
from rollergen.hal.dataclass import dataclass
from rollergen.importers.graph import Network, NotExpressedError, SizedNetwork
from rollergen.kernel import Kernel
from rollergen.measure.outcome import silent
from rollergen.network.building import NO_KERNEL, kernels_of, steps_for, texts_of
from rollergen.network.partition import Step, steps_again
from rollergen.sizes.build import build_sized, differing_sizes
from rollergen.sizes.kernel import SizedKernel
from rollergen.sizes.regime import Expression

Sizes = Mapping[str, int]
_MOST_KEPT = 64
"""Sizes whose networks are kept while kernels are built: those at which programs are constructed."""
NOT_AT_ALL_SIZES = (*NO_KERNEL, NotExpressedError)
"""Why a step has no kernel for all sizes, or none at some."""


class Networks:
    """The networks of all sizes; `largest` is that of the largest, whose weights the others share."""

    def __init__(self, source: SizedNetwork) -> None:
        self.title, self.dims, self._at = source.title, source.dims, source.at
        self.differing = differing_sizes(source.dims)
        self._known: dict[tuple[int, ...], Network] = {}
        self.largest = self.at(self.differing[-1])
        self._shape = _structure(self.largest)
        every = [self.at(sizes) for sizes in self.differing]
        largest = self.largest.constants
        self.loose = frozenset(
            name for name in largest if any(one.constants.get(name) is not largest[name] for one in every)
        )

    def at(self, sizes: Sizes) -> Network:
        key = self.key(sizes)
        if key not in self._known:
            if len(self._known) > _MOST_KEPT:
                self.forget()
            found = self._at(sizes)
            if self._known:
                held = self.largest.constants
                constants = {n: held[n] if n in held and _same(held[n], a) else a for n, a in found.constants.items()}
                found = replace(found, constants=constants)
            self._known[key] = found
        return self._known[key]

    def forget(self) -> None:
        """Keeps the largest alone."""
        self._known = {self.key(self.differing[-1]): self.largest}

    def key(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self.dims)

    def is_like_the_largest(self, network: Network) -> bool:
        """Whether it differs from the largest in its sizes alone."""
        return _structure(network) == self._shape


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether they hold the same bits."""
    if one is other or (one.shape, one.dtype) != (other.shape, other.dtype):
        return one is other
    if one.dtype.hasobject:
        return bool(one.tolist() == other.tolist())
    bits = lambda array: np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.array_equal(bits(one), bits(other))


def _structure(network: Network) -> Any:
    """All of a network but its sizes."""
    rank = lambda value: (value.name, value.dtype, None if value.shape is None else len(value.shape))
    nodes = [(n.source, n.operator, n.inputs, tuple(map(rank, n.outputs))) for n in network.nodes]
    constants = sorted((name, one.dtype.name, one.ndim) for name, one in network.constants.items())
    return tuple(map(rank, network.inputs)), network.outputs, constants, nodes


@dataclass(frozen=True)
class Family:
    """A step at all sizes.  ``dims``: those on which it depends; ``kernel``: of all sizes of these, or the one kernel
    of a step that depends on none; None where each size has a kernel of its own, or the model's own library runs it,
    for the ``reason``."""

    dims: tuple[str, ...]
    kernel: SizedKernel | Kernel | None
    reason: str = ""


class Steps:
    """The steps of a network at all sizes; ``families``: of each the kernels.  ``settings``: of the builds of kernels
    for one size."""

    def __init__(
        self, networks: Networks, terms: Terms, settings: Mapping[str, Any], cache: bool, progress: Any = silent
    ) -> None:
        self.networks, self._terms, self._settings, self._cache = networks, terms, dict(settings), cache
        self._text_of = texts_of(terms.device)
        self._kernel_of = kernels_of(terms.device, self._settings)
        self._known: dict[tuple[int, ...], tuple[Step, ...]] = {}
        priced = kernels_of(terms.device, self._settings)
        # Kernels of all sizes store no frame apart (`sizes.regime`).
        self.largest, self._last = steps_for(networks.largest, terms.device, priced, networks.loose, within_zeros=False)
        made: dict[Any, Family] = {}
        self.families: list[Family] = []
        for number in range(len(self.largest)):
            progress("steps", number, len(self.largest))
            self.families.append(self._family(number, made))
        self.forget()

    def forget(self) -> None:
        """What was made of sizes other than the largest."""
        self.networks.forget()
        self._known.clear()

    def at(self, sizes: Sizes) -> tuple[Step, ...]:
        key = self.networks.key(sizes)
        if key not in self._known:
            if len(self._known) > _MOST_KEPT:
                self._known.clear()
            network = self.networks.at(sizes)
            self._known[key] = steps_again(network, self.largest, self._last, self.networks.loose)
        return self._known[key]

    def kernel(self, number: int, sizes: Sizes) -> Kernel | None:
        """Of a step at these sizes; None where the model's own library runs it.  Raises one of `NOT_AT_ALL_SIZES`
        where it has none at these sizes."""
        step, family = self.at(sizes)[number], self.families[number]
        if step.defined is None:
            return None
        if family.kernel is None or not self._is_pinned(number, sizes):
            return self._kernel_of(step)
        if isinstance(family.kernel, Kernel):
            return family.kernel
        return family.kernel.at(**{name: sizes[name] for name in family.dims})

    def _is_pinned(self, number: int, sizes: Sizes) -> bool:
        """Whether the step is at these sizes what it is at the largest of the dims on which it does not depend."""
        pinned = self._pinned(self.families[number].dims, sizes)
        return pinned == dict(sizes) or self._text(number, sizes) == self._text(number, pinned)

    def _pinned(self, dims: Sequence[str], sizes: Sizes) -> dict[str, int]:
        largest = self.networks.differing[-1]
        return {name: sizes[name] if name in dims else largest[name] for name in largest}

    def _text(self, number: int, sizes: Sizes) -> str | None:
        """Of the step's expression; None where it has none at these sizes."""
        try:
            return self._text_of(self.at(sizes)[number])
        except (NotExpressedError, RollergenError, LookupError):
            return None

    def _family(self, number: int, made: dict[Any, Family]) -> Family:
        """Of a step; ``made``: those of others, by their texts at sizes that differ."""
        if self.largest[number].defined is None:
            return Family((), None, self.largest[number].reason)
        *texts, largest = (self._text(number, sizes) for sizes in self.networks.differing)
        dims = tuple(
            name
            for name, one in self.networks.dims.items()
            if any(
                text != largest and sizes[name] != one.high
                for text, sizes in zip(texts, self.networks.differing, strict=False)
            )
        )
        key = (dims, *texts, largest)
        if None in key:
            return Family(dims, None, "it is another expression at some sizes")
        if key not in made:
            made[key] = self._built(number, dims)
        return made[key]

    def _built(self, number: int, dims: tuple[str, ...]) -> Family:
        try:
            if not dims:
                return Family((), self._kernel_of(self.largest[number]))
            expression, terms = self._expression(number, dims), self._terms
            own = lambda outputs, inputs: build(outputs, terms.device, inputs=inputs, **self._settings)
            kernel = build_sized(
                expression, terms.device, terms.options, terms.executor, None, own, silent, self._cache,
                quick=True,
            )  # fmt: skip
        except NOT_AT_ALL_SIZES as error:
            return Family(dims, None, str(error))
        if kernel.programs:
            return Family(dims, kernel)
        tiles = terms.device.kind.machine is not None
        why = "a machine of tiles has no maps" if tiles else "more than a count of rows depends on the sizes"
        return Family(dims, kernel, why)

    def _expression(self, number: int, dims: tuple[str, ...]) -> Expression:
        """The step's expression with the dims."""
        own: dict[str, Dim] = {name: self.networks.dims[name] for name in dims}

        def defined(*sizes: int) -> tuple[Tensor, tuple[Tensor, ...]]:
            step = self.at(self._pinned(dims, dict(zip(dims, sizes, strict=True))))[number]
            assert step.defined is not None
            return step.defined()

        pair: Any = Sized(defined, tuple(own.values()), {})
        given = tuple(pair[1][n] for n in range(len(self.largest[number].inputs)))
        return Expression(pair[0], given, own)
