"""Cutting an expression into the stages that the model finds fastest on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

from rollergen.construct.options import BuildOptions
from rollergen.dropped import collected_drops, standing
from rollergen.errors import ConstructionError, DoesNotFitError, DtypeError
from rollergen.expr.activations import PAIR, with_quantized_activations
from rollergen.expr.canonical import canonicalize
from rollergen.expr.chains import chains_in
from rollergen.expr.dtypes import is_rounded_from_float64
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.stages import Graph, cut
from rollergen.expr.unpacked_words import with_unpacked_words
from rollergen.expr.values import Cast, Value, walk
from rollergen.hal.spec import Device
from rollergen.tile.rules import vector_lanes

_APART = 4096
"""Elements of a row that lie apart: with its neighbours in lines of 64 bytes, as much as the longest other rows."""


def row_limits(device: Device) -> RowLimits:
    """How long the rows may be that a device keeps while it reduces them and reads them again.

    Rows whose elements lie apart are kept where threads side by side take rows side by side.  A single thread reads
    them faster in separate passes along memory: elements a power of two apart share a set of its caches (measured: up
    to three times as fast on a CPU).
    """
    return RowLimits(apart=_APART) if device.kind.lockstep else RowLimits()


def planned(
    outputs: Tensor | Sequence[Tensor],
    device: Device,
    options: BuildOptions = BuildOptions(),
    inputs: Sequence[Tensor] | None = None,
    top_k: int = 1,
) -> Graph:
    """The stages of `outputs` for `device`, as `canonicalize` makes them.  An operand is stored first unless the model
    finds it faster to compute it where it is read; the same holds for contractions that share a stage and for chains.
    The stages of the last few expressions are remembered.  ``top_k``: how many programs the caller is going to
    construct of them: those of the cut that is chosen are then known.

    Raises DtypeError for float64 on a device that has no instruction for it.
    """
    wanted = outputs if isinstance(outputs, Tensor) else _listed(outputs)
    given = None if inputs is None else _listed(inputs)
    if wanted is None or (given is None and inputs is not None):
        return _planned(outputs, device, options, inputs, top_k)  # which says what is wrong
    return _remembered(wanted, device, options, given, top_k)


def _listed(tensors: object) -> tuple[Tensor, ...] | None:
    listed = isinstance(tensors, (list, tuple)) and all(isinstance(one, Tensor) for one in tensors)
    return tuple(tensors) if listed else None  # type: ignore[arg-type]


def _planned(
    outputs: Tensor | Sequence[Tensor], device: Device, options: BuildOptions, inputs: Sequence[Tensor] | None,
    top_k: int,
) -> Graph:  # fmt: skip
    seconds = partial(_seconds, device=device, options=options, top_k=top_k)
    found = cuts(outputs, device, options, inputs, top_k)
    fastest, *others = found
    least = seconds(fastest, math.inf) if others else math.inf
    for other in others:
        if (own := seconds(other, least)) < least:
            fastest, least = other, own
    return fastest if least < math.inf else found[-1]  # where none has a program, parts apart say what their tiles lack


def _seconds(graph: Graph, at_most: float, device: Device, options: BuildOptions, top_k: int) -> float:
    """As `Seconds`; infinity, too, where the graph has no program."""
    from rollergen.construct.choose import construct, takes_longer  # which nothing needs that has one cut

    def best(graph: Graph) -> float:
        longer = at_most < math.inf and takes_longer(at_most, graph, device, options, top_k)
        return math.inf if longer else construct(graph, device, options, top_k)[0].seconds

    try:
        with collected_drops():  # of the cuts that are chosen, who constructs the kernel tells
            return next((seconds for _, seconds in standing([graph], best, lambda graph: "a cut")), math.inf)
    except (ConstructionError, DoesNotFitError):
        return math.inf


def cuts(
    outputs: Tensor | Sequence[Tensor], device: Device, options: BuildOptions, inputs: Sequence[Tensor] | None,
    top_k: int = 1,
) -> list[Graph]:  # fmt: skip
    """The stages among which `planned` chooses: with chains whole, where there are any, and with their parts apart."""
    seconds = partial(_seconds, device=device, options=options, top_k=top_k)
    rows, bare = row_limits(device), device.kind.machine is not None
    if not (device.kind.float64 or bare):  # of a machine of tiles there is a listing, which no compiler refuses
        _refuse_float64(cut(outputs, inputs), device)
    lanes = vector_lanes(device, "float32")
    if options.quantize_activations and PAIR in device.kind.dot_products and not device.kind.threads:
        quantized = with_quantized_activations(cut(outputs, inputs, rows), lanes)
        if quantized is not None:
            return [quantized]
    apart = canonicalize(outputs, inputs, rows, seconds, bare)
    if lanes > 1 and any(one.packs and one.constant for one in apart.inputs):
        unpacked = with_unpacked_words(cut(outputs, inputs, rows), lanes)
        if unpacked is not None:
            return [unpacked, apart]
    if not (options.shapes.chains and chains_in(outputs)):
        return [apart]
    from rollergen.construct.chains import runs_chains, runs_lone_rows

    if not runs_chains(device):
        return [apart]
    whole = replace(rows, chains=True, lone_rows=runs_lone_rows(device))
    if not any(op.inner for op in canonicalize(outputs, inputs, whole).tensor_ops):
        return [apart]
    return [canonicalize(outputs, inputs, whole, seconds, bare), apart]


_remembered = lru_cache(maxsize=32)(_planned)


def _refuse_float64(graph: Graph, device: Device) -> None:
    for op in graph.tensor_ops:
        values = (op.result, *(body for reduction in op.reductions for body in reduction.bodies))
        if any(_needs_float64(node) for value in values for node in walk(value)):
            raise DtypeError(
                f"{op.output.name} is computed in float64, for which {device.name} has no instruction; expected "
                "float32 (integers of 32 and 64 bits cast to it before bfloat16), or a device that has one"
            )


def _needs_float64(node: Value) -> bool:
    return node.dtype == "float64" or (isinstance(node, Cast) and is_rounded_from_float64(node.x.dtype, node.dtype))
