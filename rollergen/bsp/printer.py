"""Program -> a listing of what every tile does, superstep by superstep: the source of bulk-synchronous machines.

    program C float32 on ipu: 8(i) x 19(j) x 8(k_part) tiles, 2 supersteps
    stage products: tile t = (i, j, k_part) = (t//152, t//8%19, t%8); blocks i 128, j 56
      owners of A[128i:+128, 128k_part:+128]: dealt to the 19 tiles along j, at most 3456 B
      ...
    step 0  exchange  A <- the tiles along j  62088 B;  B <- the tiles along i  25088 B
            compute   C_parts[1, 128, 56] = amp_f32(A, B), 16 x 7 blocks; free A, B   149760 clk
    step 1  exchange  C_parts <- the 8 tiles of a block   25088 B
            compute   C share = sum of 8 C_parts, ascending   7260 clk
    tiles
      1152 with whole blocks ...
    predicted 187166 clk = 117.0 us: amp 80 %, exchange 15 %, ...

A matrix instruction's weights are its second operand.  Everything stands in the program or follows from the model;
nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.interpreter import interpret_bulk
from rollergen.bsp.model import BulkFacts, StepFacts, bulk_facts, predict_bulk
from rollergen.bsp.program import (
    block_extents,
    matrix_instruction,
    ranges_of,
    step_count,
    steps_of_load,
    superstep,
)
from rollergen.bsp.programs import grid_notes, tile_programs
from rollergen.emit.opencl import OpenCL
from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.expr.values import Load
from rollergen.hal.languages import Language, Machine
from rollergen.hal.runtime import host_runtime_for
from rollergen.hal.spec import Device, Instruction
from rollergen.lower.ir import Kernel
from rollergen.program.rprogram import GRID, Loop, RProgram, Stage
from rollergen.program.supersteps import FINISHED


class Tiles(OpenCL):
    """Its launches are those of the OpenCL text, in which one work-item is one tile's compute steps and operands are
    read where a machine with memory has them."""

    language = "bsp"

    def program(self, program: RProgram, device: Device, kernels: Iterable[Kernel]) -> str:
        return listing(program, device)


def has_tile_mappings(program: RProgram) -> bool:
    return bool(program.tile_mappings)


BSP = Language(
    name=Tiles.language, printer=lambda device: Tiles(), suffix="bsp", runtime=host_runtime_for,
    writes=has_tile_mappings, machine=Machine(tile_programs, grid_notes, predict_bulk, interpret_bulk),
)  # fmt: skip


def listing(program: RProgram, device: Device) -> str:
    """The program as text; the same program gives the same bytes.

    Raises ProgramError for a program without tile mappings.
    """
    if not program.tile_mappings:
        raise ProgramError("the program has no tile mappings; expected one of a machine of tiles, or another dialect")
    facts = bulk_facts(program, device)
    lines = [_heading(program, device, facts)]
    number = 0
    for stage in program.stages:
        steps = [step for step in facts.steps if step.stage == stage.name]
        lines += _stage(program, stage, facts)
        for at, step in enumerate(steps):
            if at < 2 or at == len(steps) - 1:
                lines += _step(program, stage, step, number + at, at == len(steps) - 1, device)
            elif at == 2:
                between = f"steps {number + 2} to {number + len(steps) - 2}"
                lines.append(f"{between} as step {number + 1}, each with its part")
        number += len(steps)
        if not superstep(stage).shares:
            lines += _classes(stage, steps, facts, list(program.stages).index(stage))
    lines.append(_total(facts, device))
    return "\n".join(lines) + "\n"


def _grid(stage: Stage) -> list[Loop]:
    return [loop for _, loop in stage.of_kind(GRID)]


def _tiles(stage: Stage) -> str:
    return " x ".join(f"{loop.extent}({loop.axis})" for loop in _grid(stage)) or "1"


def _heading(program: RProgram, device: Device, facts: BulkFacts) -> str:
    outputs = ", ".join(f"{b.name} {b.dtype}[{', '.join(map(str, b.shape))}]" for b in program.outputs)
    count = len(facts.steps)
    return (
        f"program {outputs} on {device.name}: {_tiles(program.stages[0])} tiles, {count} superstep{'s' * (count > 1)}, "
        f"peak {facts.peak} of {facts.capacity} B"
    )


def _stage(program: RProgram, stage: Stage, facts: BulkFacts) -> Iterator[str]:
    step = superstep(stage)
    if step.shares:
        yield f"stage {stage.name}: each tile finishes its share of its block of {step.shares}"
    else:
        blocks = ", ".join(f"{name} {size}" for name, size in block_extents(stage).items())
        yield f"stage {stage.name}: {_decoding(stage)}; blocks {blocks}"
    for mapping in program.tile_mappings:
        if mapping.stage != stage.name:
            continue
        most = int(facts.owned[mapping.buffer].max())
        if mapping.rule == FINISHED:
            yield f"  owners of {mapping.buffer}: where it is finished, at most {most} B"
        else:
            load = stage.op.loads()[mapping.load]
            yield f"  owners of {mapping.buffer}{_box(stage, load)}: {_dealt(stage, load)}, at most {most} B"


def _decoding(stage: Stage) -> str:
    """``tile t = (i, j) = (t//19, t%19)``."""
    loops = _grid(stage)
    if not loops:
        return "tile 0 alone"
    parts, inner = [], 1
    for loop in reversed(loops):
        text = "t" if inner == 1 else f"t//{inner}"
        inner *= loop.extent
        parts.append(text if inner == stage.blocks else f"{text}%{loop.extent}")
    names = ", ".join(loop.axis for loop in loops)
    return f"tile t = ({names}) = ({', '.join(reversed(parts))})"


def _box(stage: Stage, load: Load) -> str:
    """What a tile holds of a tensor: first element and length along each dimension."""
    return "[" + ", ".join(_interval(stage, index) for index in load.indices) + "]"


def _interval(stage: Stage, index: Index) -> str:
    if not index.is_affine:
        return f"{index}"
    blocks, strides = block_extents(stage), {loop.axis: loop.stride for loop in _grid(stage)}
    first, low, high = Index((), index.const), 0, 0
    for atom, coefficient in index.terms:
        reach = coefficient * (blocks[str(atom)] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
        if str(atom) in strides:
            first = first + Index.axis(str(atom)) * (coefficient * strides[str(atom)])
    return f"{first + low}:+{high - low + 1}".replace("*", "")


def _others(stage: Stage, load: Load) -> list[Loop]:
    return [loop for loop in _grid(stage) if loop.axis not in load.axes()]


def _dealt(stage: Stage, load: Load) -> str:
    others = _others(stage, load)
    if not others:
        return "each with the tiles that want it"
    return f"dealt to the {prod(loop.extent for loop in others)} tiles along {', '.join(x.axis for x in others)}"


def _step(
    program: RProgram, stage: Stage, step: StepFacts, number: int, last: bool, device: Device
) -> Iterator[str]:
    moved = [f"{_source(stage, name)}  {int(got.max())} B" for name, got in step.received_by if got.max() > 0]
    label = f"step {number}"
    if moved:
        yield f"{label:8}exchange  {';  '.join(moved)}   {step.exchange:.0f} clk, own shares {step.local:.0f} clk"
        label = ""
    yield f"{label:8}compute   {_computation(stage, step, last, device)}   {step.compute:.0f} clk"


def _source(stage: Stage, name: str) -> str:
    if superstep(stage).shares:
        return f"{name} <- the tiles of its block"
    load = next(load for load in stage.op.loads() if load.buffer.name == name)
    others = ", ".join(loop.axis for loop in _others(stage, load))
    return f"{name} <- the tiles along {others}" if others else f"{name} <- the tiles that hold it"


def _computation(stage: Stage, step: StepFacts, last: bool, device: Device) -> str:
    op, decided = stage.op, superstep(stage)
    output = op.output.name
    if decided.shares:
        parts = op.of_role("reduce")[0].extent
        return f"{output} share = {op.reductions[0].combiner.name} of {parts} {decided.shares}, ascending"
    names = [load.buffer.name for load in op.loads()]
    blocks = block_extents(stage)
    shape = ", ".join(str(blocks[axis.name]) for axis in op.of_role("spatial", "row"))
    freed = ", ".join(names[n] for n in decided.copied if last or steps_of_load(stage, op.loads()[n]))
    free = f"; free {freed}" if freed else ""
    instruction = matrix_instruction(stage, device)
    verb = stage.compute.instruction if instruction is not None else step.kind
    adds = "=" if step_count(stage) == 1 else "+="
    operands = ", ".join(_operands(names, decided.weights))
    return f"{output}[{shape}] {adds} {verb}({operands}){_instruction_blocks(stage, instruction)}{free}"


def _operands(names: list[str], weights: int) -> list[str]:
    """What an instruction multiplies: its weights behind what streams past them."""
    return [names[1], names[0], *names[2:]] if weights == 0 else names


def _instruction_blocks(stage: Stage, instruction: Instruction | None) -> str:
    if instruction is None:
        return ""
    blocks, decided = block_extents(stage), superstep(stage)
    for position in decided.steps:
        blocks[stage.loops[position].axis] = min(blocks[stage.loops[position].axis], stage.loops[position].stride)
    inputs, outputs = -(-blocks[decided.inputs] // instruction.k), -(-blocks[decided.outputs] // instruction.n)
    taps = prod(a.extent for a in stage.op.of_role("reduce") if a.name != decided.inputs)
    return f", {inputs} x {outputs} blocks" + (f" x {taps} taps" if taps > 1 else "")


def _classes(stage: Stage, steps: Sequence[StepFacts], facts: BulkFacts, row: int) -> Iterator[str]:
    """A line for each class of tiles whose blocks are equally long along every axis."""
    intervals, blocks = ranges_of(stage, whole=True).intervals, block_extents(stage)
    cut = {loop.axis for loop in _grid(stage)}
    names = [axis.name for axis in stage.op.axes if axis.name in cut]
    lengths = [np.broadcast_to(b - a + 1, (stage.blocks, 1))[:, 0] for a, b in (intervals[n] for n in names)]
    rows = np.stack(lengths, axis=1) if lengths else np.zeros((stage.blocks, 0), dtype=np.int64)
    kinds, which = np.unique(rows, axis=0, return_inverse=True)
    received: Any = sum(step.received for step in steps)
    sent: Any = sum(step.sent for step in steps)
    for number in reversed(range(len(kinds))):
        own = np.flatnonzero(which.reshape(-1) == number)
        short = [f"{n} {k} of {blocks[n]}" for n, k in zip(names, kinds[number], strict=True) if k < blocks[n]]
        yield (
            f"  {len(own)} tile{'s' * (len(own) > 1)} with {', '.join(short) or 'whole blocks'}: "
            f"receive {_span(received[own])} B, send {_span(sent[own])} B, hold {_span(facts.live[row][own])} B"
        )


def _span(values: Any) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"


def _total(facts: BulkFacts, device: Device) -> str:
    parts: dict[str, float] = {}
    for step in facts.steps:
        for name, clocks in ((step.kind, step.compute), ("exchange", step.exchange), ("local copies", step.local),
                             ("sync", step.sync)):  # fmt: skip
            parts[name] = parts.get(name, 0.0) + clocks
    shares = ", ".join(
        f"{name} {clocks / facts.clocks:.0%}" for name, clocks in sorted(parts.items(), key=lambda x: -x[1]) if clocks
    )
    return f"predicted {facts.clocks:.0f} clk = {facts.clocks / device.clock_mhz:.1f} us: {shares}"
