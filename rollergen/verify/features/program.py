"""Group G: the decisions of the program itself."""

from __future__ import annotations

from rollergen.program.rprogram import GRID, GROUP, LANE, SERIAL, THREAD, UNROLL, Copy, Stage
from rollergen.verify.features.view import OPERANDS, StageView, slog

_KINDS = (GRID, GROUP, THREAD, SERIAL, UNROLL, LANE)
_COPY = ("copied to block", "copied to registers", "vector", "padding", "swizzle", "depth", "at loop")


def program_features(view: StageView) -> dict[str, float]:
    stage = view.stage
    loads = stage.definition.loads()
    found: dict[str, float] = {}
    for name in OPERANDS[:2]:
        chain = view.chains[name]
        copies = [c for c in stage.copies if chain is not None and loads[c.load] == chain.load]
        found |= {f"{name} {what}": value for what, value in _copies(view, copies).items()}
    found |= {f"{kind} loops": float(sum(x.kind == kind for x in view.loops)) for kind in _KINDS}
    found |= {f"{kind} guards": float(sum(g == kind for _, g in stage.guards)) for kind in ("mask", "peel")}
    store, accumulator = stage.store, stage.accumulator
    instruction = view.device.instruction(stage.compute.instruction)
    return found | {
        "instruction lanes": slog(stage.compute.lanes),
        "instruction size": slog(instruction.m * instruction.n * instruction.k),
        "accumulator depth": float(accumulator.at_loop),
        "carry": float(accumulator.carry),
        "separate chains": slog(_separate(stage)),
        "combine shuffle": float(accumulator.combine == "shuffle"),
        "combine tree": float(accumulator.combine == "tree"),
        "store vector": slog(store.vector),
        "store streaming": float(store.streaming),
        "store on lines": float(store.on_lines),
        "residents": float(len(stage.residents)),
        "block order": slog(stage.block_order.width),
        "launches": float(sum(not s.once for s in view.program.stages)),
        "launches once": float(sum(s.once for s in view.program.stages)),
        "temporaries": float(len(view.program.temporaries)),
        "innermost": slog(view.loops[-1].extent) if view.loops else 0.0,
        "registers wanted": slog(float(view.predicted.registers)),
        "registers spilled": slog(float(view.predicted.spilled)),
        "occupancy": float(view.predicted.occupancy),
    }


def _copies(view: StageView, copies: list[Copy]) -> dict[str, float]:
    registers = view.device.layers[0].name
    blocks = [c for c in copies if c.to_layer != registers]
    main = blocks[0] if blocks else copies[0] if copies else None
    if main is None:
        return dict.fromkeys(_COPY, 0.0)
    values = (
        float(bool(blocks)), float(len(blocks) < len(copies)), slog(main.vector), slog(main.padding),
        slog(main.swizzle), float(main.depth), float(main.at_loop),
    )  # fmt: skip
    return dict(zip(_COPY, values, strict=True))


def _separate(stage: Stage) -> int:
    total = 1
    for position in stage.accumulator.separate:
        total *= stage.loops[position].extent
    return total
