"""Group G: the decisions of the program itself."""

from __future__ import annotations

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram, Stage
from rollergen.verify.features.batch import KINDS, NO_LOOP, Batch, slog
from rollergen.verify.features.table import OPERANDS, Table

_COPY = ("copied to block", "copied to registers", "vector", "padding", "swizzle", "depth", "at loop")
_NO_COPY = (0.0,) * len(_COPY)
_SLOG_COPY = ("vector", "padding", "swizzle")
_DECISIONS = (
    "instruction lanes", "instruction size", "accumulator depth", "carry", "separate chains", "combine shuffle",
    "combine tree", "store vector", "store streaming", "store on lines", "residents", "block order", "launches",
    "launches once", "temporaries",
)  # fmt: skip
_PREDICTED = ("registers wanted", "registers spilled", "occupancy")
PROGRAM = (
    *(f"{name} {what}" for name in OPERANDS[:2] for what in _COPY), *(f"{kind} loops" for kind in KINDS),
    "mask guards", "peel guards", *_DECISIONS, "innermost", *_PREDICTED,
)  # fmt: skip
_SLOG = {
    "instruction lanes", "instruction size", "separate chains", "store vector", "block order", "innermost",
    "registers wanted", "registers spilled", *(f"{name} {what}" for name in OPERANDS[:2] for what in _SLOG_COPY),
}  # fmt: skip
_IS_SLOG = np.array([name in _SLOG for name in PROGRAM])


def program_features(batch: Batch) -> np.ndarray:
    """(programs, `PROGRAM`)."""
    sizes: dict[str, int] = {}
    told = zip(batch.programs, batch.stages, batch.tables, strict=True)
    decided = np.array([_decided(*one, batch.device, sizes) for one in told], dtype=float)
    said = [(float(one.registers), float(one.spilled), float(one.occupancy)) for one in batch.predicted]
    kinds = np.stack([(batch.kind == kind).sum(axis=1) for kind in range(len(KINDS))], axis=1)
    innermost = np.where(batch.kind[:, -1:] != NO_LOOP, batch.extent[:, -1:], 0.0)
    copies = 2 * len(_COPY)
    found = np.concatenate([decided[:, :copies], kinds, decided[:, copies:], innermost, said], axis=1)
    found[:, _IS_SLOG] = slog(found[:, _IS_SLOG])
    return found


def _decided(program: RProgram, stage: Stage, table: Table, device: Device, sizes: dict[str, int]) -> tuple[float, ...]:
    """`_COPY` of both operands, guards, `_DECISIONS`.  ``sizes``: of instructions, filled as they are met."""
    name = stage.compute.instruction
    if name not in sizes:
        instruction = device.instruction(name)
        sizes[name] = instruction.m * instruction.n * instruction.k
    accumulator, store = stage.accumulator, stage.store
    guards = [how for _, how in stage.guards] if stage.guards else ()
    once = sum([s.once for s in program.stages])
    first, second = (_copies(stage, load, device) for load in table.loads) if stage.copies else (_NO_COPY, _NO_COPY)
    return (
        *first, *second, guards.count("mask"), guards.count("peel"),
        stage.compute.lanes, sizes[name], accumulator.at_loop, accumulator.carry,
        _separate(stage) if accumulator.separate else 1,
        accumulator.combine == "shuffle", accumulator.combine == "tree", store.vector, store.streaming, store.on_lines,
        len(stage.residents), stage.block_order.width, len(program.stages) - once, once, len(program.temporaries),
    )  # fmt: skip


def _copies(stage: Stage, load: int, device: Device) -> tuple[float, ...]:
    copies = [c for c in stage.copies if c.load == load]
    if not copies:
        return _NO_COPY
    registers = device.layers[0].name
    blocks = [c for c in copies if c.to_layer != registers]
    main = blocks[0] if blocks else copies[0]
    return (
        bool(blocks), len(blocks) < len(copies), main.vector, main.padding, main.swizzle, main.depth, main.at_loop,
    )  # fmt: skip


def _separate(stage: Stage) -> int:
    total = 1
    for position in stage.accumulator.separate:
        total *= stage.loops[position].extent
    return total
