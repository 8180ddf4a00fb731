"""Group G: the decisions of the program itself."""

from __future__ import annotations

import numpy as np

from rollergen.features.arrays import floats, integers
from rollergen.features.batch import KINDS, Batch
from rollergen.features.table import OPERANDS
from rollergen.hal.spec import Device
from rollergen.program.rprogram import RProgram, Stage

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
PROGRAM_LOGS = {
    "instruction lanes", "instruction size", "separate chains", "store vector", "block order", "innermost",
    "registers wanted", "registers spilled", *(f"{name} {what}" for name in OPERANDS[:2] for what in _SLOG_COPY),
}  # fmt: skip


def program_features(batch: Batch, out: np.ndarray) -> None:
    """Sets ``out``, (`PROGRAM`, programs)."""
    copies, out = out[: 2 * len(_COPY)], out[2 * len(_COPY) :]
    copies[:] = 0.0
    sizes: dict[str, int] = {}
    decided: list[int] = []
    for column, (program, stage) in enumerate(zip(batch.programs, batch.stages, strict=True)):
        decided += _decided(program, stage, batch.device, sizes)
        if stage.copies:
            first, second = (_copies(stage, load, batch.device) for load in batch.tables[column].loads)
            copies[:, column] = (*first, *second)
    kinds = len(KINDS)
    np.add.reduce(batch.of_kind, axis=1, out=out[:kinds])
    out[kinds : kinds + 2 + len(_DECISIONS)] = integers(decided).reshape(len(batch), -1).T
    np.multiply(batch.extent[-1], batch.has_loops, out=out[-1 - len(_PREDICTED)])
    out[-3] = floats([one.registers for one in batch.predicted])
    out[-2] = floats([one.spilled for one in batch.predicted])
    out[-1] = floats([one.occupancy for one in batch.predicted])


def _decided(program: RProgram, stage: Stage, device: Device, sizes: dict[str, int]) -> tuple[int, ...]:
    """Guards, `_DECISIONS`.  ``sizes``: of instructions, filled as they are met."""
    compute, accumulator, store, stages = stage.compute, stage.accumulator, stage.store, program.stages
    name = compute.instruction
    if name not in sizes:
        instruction = device.instruction(name)
        sizes[name] = instruction.m * instruction.n * instruction.k
    masks = peels = once = 0
    for _, how in stage.guards:
        masks += how == "mask"
        peels += how == "peel"
    for one in stages:
        once += one.once
    combine = accumulator.combine
    return (
        masks, peels, compute.lanes, sizes[name], accumulator.at_loop, accumulator.carry,
        _separate(stage) if accumulator.separate else 1,
        combine == "shuffle", combine == "tree", store.vector, store.streaming, store.on_lines,
        len(stage.kept_rows), stage.block_order.group_rows, len(stages) - once, once, len(program.temporaries),
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
