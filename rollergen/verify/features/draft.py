"""Group D: Pruner's draft model (ASPLOS 2025, section 4.1): symbols, penalties, latency.

The penalties are those of its code: register reuse ``r / (1 + r)`` (the printed form exceeds 1), overflowing
registers divide the compute throughput, blocks and warps fill units together; traffic is in bytes and the terms of
statements are summed.  On a CPU a warp is a vector, one thread runs on a core, and the limits are the spec's.
"""

from __future__ import annotations

from math import ceil

from rollergen.program.model.prediction import flops_of
from rollergen.tile.rules import block_layer, main_instruction
from rollergen.verify.features.operator import peak_gflop_s
from rollergen.verify.features.view import StageView, region, slog


def draft_features(view: StageView) -> dict[str, float]:
    symbols = _symbols(view)
    penalties = _penalties(view, symbols)
    compute, memory = _latencies(view, symbols, penalties)
    return {
        **{name: slog(value) for name, value in symbols.items()},
        **penalties,
        "draft latency": slog((compute + memory) * 1e9),
        "micro latency": slog(float(view.prediction.seconds) * 1e9),
        "compute over memory": slog(compute / max(memory, 1e-12)),
    }


def draft_seconds(view: StageView) -> float:
    """The draft model's latency of the heaviest stage."""
    symbols = _symbols(view)
    return sum(_latencies(view, symbols, _penalties(view, symbols)))


def _symbols(view: StageView) -> dict[str, float]:
    inputs = [chain for name, chain in view.chains.items() if chain is not None and name != "out"]
    out = view.chains["out"]
    assert out is not None
    held = sum(region(chain.load, view.register_tile) for chain in (*inputs, out))
    staged = sum(region(chain.load, view.block_tile) for chain in inputs)
    steps = _steps(view)
    flops = float(flops_of(view.stage))
    grid, threads = view.stage.blocks, view.stage.threads
    moved = sum(region(c.load, view.block_tile) * c.itemsize * steps * grid for c in inputs)
    moved += view.definition.output.elements * out.itemsize
    return {
        "S1 register elements": held,
        "S2 thread operations": flops / max(1, grid * threads),
        "S3 staged elements": staged,
        "S4 threads": threads,
        "S5 traffic": moved,
        "S6 blocks": grid,
        "S7 contiguous": min(
            (view.contiguous(chain.load) for chain in inputs), default=view.contiguous(out.load)
        ),
        "S8 operations": flops,
    }  # fmt: skip


def _steps(view: StageView) -> int:
    """Iterations of the outermost serial reduce loop: block tiles that a block goes through."""
    return view.outermost_step.extent if view.outermost_step is not None else 1


def _penalties(view: StageView, s: dict[str, float]) -> dict[str, float]:
    device = view.device
    single = block_layer(device) is None
    lanes = main_instruction(device, "float32").lanes if single else device.execution_width
    registers = device.limits.registers_per_thread * (lanes if single else 1)
    staging = block_layer(device)
    room = (device.layer(staging) if staging else device.layers[1]).capacity_bytes / 4
    warps = 1 if single else ceil(s["S4 threads"] / lanes)
    per_unit = 1 if single else device.schedulers
    few = s["S6 blocks"] < device.units
    busy = s["S6 blocks"] * min(warps, per_unit) if few else s["S6 blocks"]
    slots = device.units * (per_unit if few else 1)
    reuse = s["S2 thread operations"] / max(1.0, s["S1 register elements"])
    line = device.backing.transaction_bytes / 4
    used = view.stage.threads * (lanes if single else 1)
    return {
        "P registers memory": min(registers / max(1.0, s["S1 register elements"]), 1.0),
        "P registers compute": reuse / (1 + reuse),
        "P staged memory": min(room / max(1.0, s["S3 staged elements"]), 1.0),
        "P units": busy / (ceil(busy / slots) * slots),
        "P warps": warps / (ceil(warps / per_unit) * per_unit),
        "alpha lanes": used / (warps * lanes) if not single else 1.0,
        "P transactions": s["S7 contiguous"] / (ceil(s["S7 contiguous"] / line) * line),
    }


def _latencies(view: StageView, s: dict[str, float], p: dict[str, float]) -> tuple[float, float]:
    """Seconds of arithmetic, and of memory."""
    device = view.device
    overflow = max(1.0, 1 / max(p["P registers memory"], 1e-9))
    rate = peak_gflop_s(device) * 1e9 * p["P registers compute"] * p["P units"] * p["alpha lanes"] / overflow
    gb_s = device.backing.bandwidth_gb_s or device.backing.bytes_per_clock * device.clock_mhz * device.units / 1e3
    return s["S8 operations"] / max(rate, 1.0), s["S5 traffic"] / (gb_s * 1e9)
