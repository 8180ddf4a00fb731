"""Kernels for all sizes in the store: one entry for each, found by one look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rollergen.construct.options import BuildOptions
from rollergen.expr.dims import Dim
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.sizes.facts import facts_of_map, map_of_facts
from rollergen.sizes.plan import Plan
from rollergen.sizes.regime import PROGRAMS_OF_SEVERAL, RegimeMap
from rollergen.store.keys import as_text, expression_text
from rollergen.store.models import ModelCache, Whole


class MapCache:
    """The store as one build of an expression with dims sees it.

    ``graphs``: the expression at the ends and between, the largest sizes last; ``extra``: sizes that the caller wants
    sampled; ``driver``: of what checks programs, None where nothing does; ``quick``: as `regime_map` has it.
    """

    def __init__(
        self, graphs: Sequence[tuple[Mapping[str, int], Graph]], dims: Mapping[str, Dim],
        extra: Mapping[str, Iterable[int]] | None, device: Device, options: BuildOptions, driver: str | None,
        quick: bool,
    ) -> None:  # fmt: skip
        text = as_text({
            "dims": [[one.name, one.low, one.high] for one in dims.values()],
            "quick": quick,
            "extra": {name: sorted(set(own)) for name, own in (extra or {}).items()},
            "graphs": [[dict(sizes), expression_text(graph), _names(graph)] for sizes, graph in graphs],
        })  # fmt: skip
        self._entry = ModelCache(text, device, options, PROGRAMS_OF_SEVERAL, driver)

    def find(self) -> tuple[RegimeMap, tuple[str, ...]] | None:
        """The map whose plans passed the gate, and the notes of its build; None where there is none."""
        whole = self._entry.find()
        if whole is None:
            return None
        return map_of_facts(whole.steps), tuple(whole.steps["notes"])

    def keep(self, regime: RegimeMap, plans: Sequence[Plan], notes: Sequence[str]) -> None:
        """Stores the map with these of its plans."""
        self._entry.keep(Whole({**facts_of_map(regime, plans), "notes": list(notes)}, ()))


def _names(graph: Graph) -> list[list[str]]:
    return [[one.name for one in group] for group in (graph.inputs, graph.outputs, graph.temporaries)]
