"""Why a kernel is as it is, as data: `text` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from rollergen.explain.chains import chain_text
from rollergen.explain.units import seconds_text
from rollergen.expr.show import show
from rollergen.expr.values import Buffer
from rollergen.gate.footprint import building, calling
from rollergen.hal.languages import language
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.program.loops import (
    AHEAD_BYTES,
    asks_for_tile,
    chain_lengths,
    next_rows,
    panel_part,
    prefetches_lines,
)
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model.prediction import predict
from rollergen.program.model.price import StagePrediction
from rollergen.program.rprogram import GRID, LANE, PARALLEL, UNROLL, KeptRow, Loop, RProgram, Stage
from rollergen.program.windows import window_shape
from rollergen.tile.closed_forms import explain_forms
from rollergen.tile.exact_traffic import traffic

Facts = dict[str, Any]


def explanation(chosen: Outcome, others: Sequence[Outcome], device: Device, cuts: Sequence[str] = ()) -> Facts:
    """Everything about the chosen candidate as plain dicts, lists, strings and numbers (seconds, bytes, clocks).

    ``others``: all candidates in the model's order; the runner-up is the best of them that was not
    chosen.  ``cuts``: where the expression was cut into stages, and why.
    """
    prediction = predict(chosen.program, device)
    second = runner_up(chosen, others)
    return {
        "device": {"name": device.name, "title": device.title, "units": device.units},
        "predicted_seconds": float(prediction.seconds),
        "measured_seconds": chosen.wall_s,
        "event_seconds": chosen.event_s,
        "profiling": profiling(chosen, others),
        "memory_bytes": dict(calling(chosen.program).parts),
        "cuts": list(cuts),
        "stages": [
            _stage(stage, one, chosen.program, device)
            for stage, one in zip(chosen.program.stages, prediction.stages, strict=True)
        ],
        "runner_up": None if second is None else _lost(chosen, second, device),
        "candidates": [_candidate(outcome, outcome is chosen) for outcome in others],
    }


def profiling(chosen: Outcome, others: Sequence[Outcome]) -> Facts | None:
    """What the build cost: seconds of compiling, checking and timing the candidates; bytes that the check copied to and
    from the device's memory; the most memory that check and timing allocate; and how times were taken.  None where
    nothing was run.

    Compilers that leave a part of their work for the first launch do it in checking.
    """
    tried = [one for one in others if one.state != "not run"]
    if chosen.wall_s is None or not tried:
        return None
    on_device = language(chosen.source.language).calls_take_device_arrays
    return {
        "candidates": len(tried),
        "compile_seconds": sum(one.compile_s or 0.0 for one in tried),
        "check_seconds": sum(one.check_s or 0.0 for one in tried),
        "memory_bytes": dict(building([one.program for one in tried], not on_device).parts),
        "sent_bytes": sum(one.sent_bytes for one in tried),
        "fetched_bytes": sum(one.fetched_bytes for one in tried),
        "timing_seconds": sum(sum(one.times_s) for one in tried),
        "rounds": chosen.rounds,
        "spread_seconds": chosen.spread_s,
        "caches": chosen.caches,
        "clock": chosen.note,
        "noisy": chosen.noisy,
    }


def runner_up(chosen: Outcome, others: Iterable[Outcome]) -> Outcome | None:
    """The best other candidate that has not failed: by measured time where there is one, else by the model."""
    rest = [o for o in others if o is not chosen and o.state != "failed"]
    unmeasured = float("inf")
    return min(rest, key=lambda o: (o.wall_s if o.wall_s is not None else unmeasured, o.rank), default=None)


def _candidate(outcome: Outcome, chosen: bool) -> Facts:
    return {
        "rank": outcome.rank,
        "chosen": chosen,
        "state": outcome.state,
        "predicted_seconds": outcome.predicted_s,
        "measured_seconds": outcome.wall_s,
        "event_seconds": outcome.event_s,
        "compile_seconds": outcome.compile_s,
        "compared_elements": outcome.compared,
        "problems": list(outcome.problems),
        "note": outcome.note,
        "tile": " then ".join(tile_text(block_tile(stage)) for stage in outcome.program.stages),
    }


def _stage(stage: Stage, predicted: StagePrediction, program: RProgram, device: Device) -> Facts:
    return {
        "name": stage.name,
        "once": stage.once,
        "axes": {axis.name: {"extent": axis.extent, "role": axis.role} for axis in stage.op.axes},
        "reads": [_buffer(b) for b in _distinct(read.buffer for read in stage.op.reads())],
        "writes": _buffer(stage.op.output),
        "tiles": tiles(stage),
        "loops": [f"{loop.kind} {loop.axis} {loop.extent} x {loop.stride}" for loop in stage.loops],
        "decisions": decisions(stage, device),
        "blocks": int(predicted.blocks),
        "threads": int(predicted.threads),
        "alone": bool(predicted.alone),
        "waves": float(predicted.waves),
        "resident_blocks": int(predicted.resident_blocks),
        "occupancy": float(predicted.occupancy),
        "registers": float(predicted.registers),
        "spilled_registers": float(predicted.spilled),
        "shared_bytes": int(predicted.shared_bytes),
        "flops": int(predicted.flops),
        "seconds": float(predicted.seconds),
        "binding": str(predicted.binding),
        "limiters": [
            {"name": x.name, "seconds": float(x.seconds), "clocks": float(x.clocks), "how": x.how}
            for x in predicted.limiters
        ],
        "traffic_bytes": {name: float(count) for name, count in predicted.traffic_bytes},
        "accesses": _accesses(stage, device.backing.transaction_bytes),
        "closed_forms": list(explain_forms(stage.op, block_tile(stage))),
    }


def _accesses(stage: Stage, transaction_bytes: int) -> list[Facts]:
    """What each access moves between the backing store and a block, exactly, every block fetching its own."""
    return [
        {"tensor": x.tensor, "role": x.role, "tiles": x.tiles, "bytes": x.transactions * transaction_bytes}
        for x in traffic(stage, transaction_bytes)
    ] + [
        {"tensor": take.row.buffer.name, "role": "take", "tiles": 0, "bytes": 0} for take in stage.op.takes()
    ]


def _distinct(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(buffers))


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


def _extents(stage: Stage, loops: Iterable[Loop]) -> dict[str, int]:
    """Elements along each axis that the loops cover together, at most the axis."""
    found: dict[str, int] = {}
    for loop in loops:
        found[loop.axis] = found.get(loop.axis, 1) * loop.extent
    return {a.name: min(found[a.name], a.extent) for a in stage.op.axes if a.name in found}


def block_tile(stage: Stage) -> dict[str, int]:
    """The tile of one block, reduce axes included."""
    return _extents(stage, (loop for loop in stage.loops if loop.kind != GRID))


def tiles(stage: Stage) -> list[Facts]:
    """The tile of every level, outermost first: tensor, block, staged copies, thread, registers, lanes."""
    deep = stage.accumulator.at_loop
    reduced = {axis.name for axis in stage.op.of_role("reduce")}
    kept = [(p, loop) for p, loop in enumerate(stage.loops) if loop.axis not in reduced]
    thread = [loop for _, loop in kept if loop.kind not in (GRID, *PARALLEL)]
    registers = [loop for p, loop in kept if p >= deep and loop.kind in (UNROLL, LANE)]
    found = [
        {"level": "tensor", "tile": {axis.name: axis.extent for axis in stage.op.axes}},
        {"level": "block", "tile": block_tile(stage)},
    ]
    for copy in stage.copies:
        shared = copy.from_layer != "registers" and copy.to_layer != "registers"
        shape = dict(zip(copy.order, stage.buffer_shape(copy, block=shared), strict=True))
        if copy.window:
            shape = {f"dimension {d}": extent for d, extent in enumerate(window_shape(stage, copy))}
        found.append({"level": f"{stage.load(copy).buffer.name} in {copy.to_layer}", "tile": shape})
    found.append({"level": "thread" if stage.threads > 1 else "work-item", "tile": _extents(stage, thread)})
    found.append({"level": "accumulators in registers", "tile": _extents(stage, registers)})
    return found


def _instruction_text(stage: Stage, device: Device) -> str:
    """``vfma, 16 lanes``, or ``wmma, 16 x 16 x 16 (m x n x k) by 32 threads together``."""
    one = matrix_instruction(stage, device)
    if one is None:
        return f"{stage.compute.instruction}, {stage.compute.lanes} lanes"
    return f"{one.name}, {one.m} x {one.n} x {one.k} (m x n x k) by {one.lanes} threads together, in {one.dtype}"


def tile_text(tile: dict[str, int]) -> str:
    """A tile as text: ``i 64 x j 128``."""
    return " x ".join(f"{axis} {extent}" for axis, extent in tile.items()) or "1 element"


def decisions(stage: Stage, device: Device) -> list[str]:
    """The other decisions of the stage, in words."""
    said = [_instruction_text(stage, device)]
    accumulator = stage.accumulator
    if stage.op.reductions:
        side_by_side = f"{stage.op.components} values side by side " if stage.op.components > 1 else ""
        said.append(f"accumulates {side_by_side}in {accumulator.dtype}")
    if stage.inner is not None:
        said += chain_text(stage)
    if accumulator.carry:
        said.append("partial sums wait in the output between reduction blocks")
    if accumulator.separate:
        said.append(f"{prod(stage.loops[p].extent for p in accumulator.separate)} independent chains")
    if accumulator.flush:
        lengths = ", then ".join(str(length) for length in chain_lengths(stage)[: len(accumulator.flush) + 1])
        said.append(f"sums in blocks of {lengths} terms")
    if accumulator.gathered:
        said.append(f"{prod(stage.loops[p].extent for p in accumulator.gathered)} elements at once")
    if accumulator.combine != "none":
        said.append(f"threads combined by {accumulator.combine}")
    for copy in stage.copies:
        said.append(_copy_text(stage, copy))
    said += [_kept_text(kept_row, device) for kept_row in stage.kept_rows]
    said += [f"tail of {axis}: {kind}" for axis, kind in stage.guards]
    if prefetches_lines(stage):
        ahead = f"lines are asked for {AHEAD_BYTES} bytes ahead of their use"
        said.append("the next rows are asked for while some are read" if next_rows(stage) else ahead)
    elif stage.prefetch >= 0 and stage.inner is None:
        panel = "panel" if panel_part(stage) is not None else "row"
        what = f"the next {panel} is" if stage.op.reductions else "what the next row takes is"
        said.append(f"{what} fetched while this one is computed")
    if stage.store.streaming:
        said.append("stores bypass the caches")
    if asks_for_tile(stage):
        said.append("where a tile's results will be written is prefetched when its last block begins")
    elif stage.store.prefetch_distance and stage.op.reductions:
        said.append("the result's row is prefetched before it is written")
    elif stage.store.prefetch_distance:
        said.append(f"lines are prefetched {stage.store.prefetch_distance} tiles before they are written")
    if stage.store.across_rows:
        said.append("threads exchange results before they store them, row by row")
    if stage.store.vector_loads:
        said.append(f"what results are put together with is read {stage.store.vector} elements at once")
    if stage.store.boxes:
        said.append(f"results leave in boxes, {stage.store.boxes} panels at a time")
    if stage.store.adds:
        said.append("results are added atomically, in any order")
    if stage.block_order.group_rows:
        said.append(f"blocks swizzled in groups of {stage.block_order.group_rows} rows")
    if stage.block_order.descending:
        said.append(f"blocks run from the last rows to the first, {stage.block_order.descending} beside each other")
    if stage.block_order.launched:
        said.append(f"{stage.block_order.launched} blocks are launched, each for several of them (persistent)")
    if stage.block_order.cluster:
        said.append(f"{stage.block_order.cluster} blocks below each other are a cluster and share what they read alike")
    if stage.once:
        said.append("runs once: its inputs are constant")
    return said


def _kept_text(kept_row: KeptRow, device: Device) -> str:
    """``kept0 stays in registers: exp(x[i, j] - r0)``; ``r0`` is the first reduction."""
    where = "the output" if kept_row.layer == device.backing.name else kept_row.layer
    return f"{kept_row.name} stays in {where}: {show(kept_row.value)}"


def _copy_text(stage: Stage, copy: Any) -> str:
    if copy.window:
        window = " x ".join(map(str, window_shape(stage, copy)))
        whose = "thread" if copy.to_layer == "registers" else "block"
        text = f"{stage.load(copy).buffer.name} read into {copy.to_layer} as the window {window} of a {whose}'s tile"
        return text + (f", rows padded by {copy.padding}" if copy.padding else "")
    text = f"{stage.load(copy).buffer.name} copied from {copy.from_layer} to {copy.to_layer}, {copy.vector} at a time"
    text += f", rows padded by {copy.padding}" if copy.padding else ""
    text += f", swizzled over {copy.swizzle} rows" if copy.swizzle > 1 else ""
    text += f", in panels of {copy.panel} columns" if copy.panel else ""
    text += f", in boxes of rows {copy.apart} apart" if copy.apart else ""
    text += f", a thread {' x '.join(map(str, copy.runs))} in a row" if copy.runs else ""
    return text + (f", {copy.depth} tiles deep" if copy.depth > 1 else "")


def _totals(program: RProgram, device: Device) -> dict[str, float]:
    """Seconds of each limiter, summed over the stages of a call."""
    found: dict[str, float] = {}
    for stage in predict(program, device).stages:
        for limiter in stage.limiters:
            if not stage.once:
                found[limiter.name] = found.get(limiter.name, 0.0) + float(limiter.seconds)
    return found


def _lost(chosen: Outcome, second: Outcome, device: Device) -> Facts:
    """How the runner-up differs: seconds of each limiter in both, largest loss first."""
    ours, theirs = _totals(chosen.program, device), _totals(second.program, device)
    names = dict.fromkeys([*ours, *theirs])
    differences = [_difference(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in names]
    differences.sort(key=lambda one: -one["difference"])
    differs = unlike(chosen.program, second.program, device)
    lost = {"limiters": differences, "differs": differs, "why": _why(chosen, second, differences)}
    return {**_candidate(second, False), **lost}


def unlike(one: RProgram, other: RProgram, device: Device) -> list[str]:
    """What another program decides otherwise, in words: its tiles inside a block beside this one's, and the rest."""
    if len(one.stages) != len(other.stages):
        return [f"{len(other.stages)} stages against {len(one.stages)}"]
    found: dict[str, None] = {}
    for mine, its in zip(one.stages, other.stages, strict=True):
        ours, theirs = ({tile["level"]: tile_text(tile["tile"]) for tile in tiles(stage)} for stage in (mine, its))
        both = [(level, tile, ours[level]) for level, tile in theirs.items() if level in ours and level != "block"]
        found |= dict.fromkeys(f"{level} {tile} against {own}" for level, tile, own in both if tile != own)
        if its.threads != mine.threads:
            found[f"{its.threads} threads against {mine.threads}"] = None
        found |= dict.fromkeys(_decided_otherwise(decisions(mine, device), decisions(its, device)))
    return list(found)


def _decided_otherwise(said: list[str], does: list[str]) -> Iterator[str]:
    """Of a decision about the same thing, which stands before the first comma, the parts that differ."""
    about = {text.partition(", ")[0]: text.split(", ") for text in said}
    for text in does:
        what, *parts = text.split(", ")
        own = about.pop(what, None)
        if own is None:
            yield text
        elif own[1:] != parts:
            new = ", ".join(part for part in parts if part not in own) or "no more"
            old = ", ".join(part for part in own[1:] if part not in parts) or "no more"
            yield f"{what}: {new} against {old}"
    yield from (f"without: {', '.join(parts)}" for parts in about.values())


def _difference(name: str, chosen: float, second: float) -> Facts:
    return {"name": name, "chosen": chosen, "runner_up": second, "difference": second - chosen}


def _why(chosen: Outcome, second: Outcome, differences: Sequence[Facts]) -> str:
    slower = second.predicted_s - chosen.predicted_s
    parts = []
    if chosen.wall_s is not None and second.wall_s is not None:
        parts.append(f"measured {seconds_text(second.wall_s)} against {seconds_text(chosen.wall_s)}")
    if slower > 0 and differences and differences[0]["difference"] > 0:
        worst = differences[0]
        parts.append(
            f"the model gives it {seconds_text(slower)} more, most of all in {worst['name']} "
            f"({seconds_text(worst['runner_up'])} against {seconds_text(worst['chosen'])})"
        )
    elif slower > 0:
        parts.append(f"the model gives it {seconds_text(slower)} more")
    elif slower == 0:
        parts.append("the model finds both equal; the tie fell by the programs' text")
    else:
        parts.append(f"the model had preferred it by {seconds_text(-slower)}")
    return "; ".join(parts)
