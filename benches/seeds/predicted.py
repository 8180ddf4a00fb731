"""Figures of devices that are absent: the model's, and what constructing for them takes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from benches.seeds.bounds import roofline_seconds
from benches.seeds.finding import MEASURED, MODEL, Finding, Row, mean_of
from rollergen.bench.suites import Entry
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.copies import copy_stage
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit_all, index_code
from rollergen.errors import ConstructionError, DoesNotFitError
from rollergen.expr import index
from rollergen.expr.canonical import canonicalize, drop_trivial, simplify, split_axes
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph, cut
from rollergen.hal.compilers.nvrtc import is_installed
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.measure.candidates import paused_collector
from rollergen.measure.compile_report import compile_report
from rollergen.program.assemble import nest
from rollergen.program.assemble.elementwise import elementwise_axes
from rollergen.program.model import predict, together
from rollergen.program.model.price import Prediction
from rollergen.tile.rules import AlignmentRules, contiguous_axis
from tests.forgetting import forget as forget_kept

Named = Iterable[tuple[str, Callable[[], Tensor]]]
RULES = ("execution_unit", "transaction", "bank", "tensor_shape")


def named(entries: Iterable[Entry]) -> list[tuple[str, Callable[[], Tensor]]]:
    return [(entry.id, entry.make) for entry in entries]


def absent(device: Device) -> str:
    return f"no {device.title} is present"


def first_choice(graph: Graph, device: Device, options: BuildOptions = BuildOptions()) -> Prediction:
    return predict(construct(graph, device, options, top_k=1)[0].program, device)


def operators(device_name: str, found: Named) -> Finding:
    """Each operator's first choice: predicted time, share of the roofline, and the layer that binds."""
    device = load_device(device_name)
    rows, unfit = [], 0
    for id, make in found:
        try:
            program = construct(canonicalize(make()), device, top_k=1)[0].program
        except DoesNotFitError:
            unfit += 1
            continue
        said = predict(program, device)
        heaviest = max(said.stages, key=lambda stage: stage.seconds)
        bound = roofline_seconds(cut(make(), None), program, device)
        rows.append({
            "operator": id, "predicted us": 1e6 * said.seconds, "share of the roofline": bound / said.seconds,
            "binds": str(heaviest.binding),
        })  # fmt: skip
    beyond = f"; {unfit} exceed the device's memory" if unfit else ""
    ours = f"{mean_of(rows, 'share of the roofline'):.2f} of the roofline over {len(rows)} operators{beyond}"
    return Finding(MODEL, ours, tuple(rows), absent(device))


def forget() -> None:
    """Drops what was found for operators; what was compiled for structures stays."""
    choice.cache_clear()
    copy_stage.cache_clear()
    together.price_cache.clear()
    contiguous_axis.cache_clear()
    elementwise_axes.cache_clear()
    forget_kept(index, index_code, nest)


def ten_sources(make: Callable[[], Tensor], device: Device, count: int = 10) -> tuple[float, float, int, Any]:
    """Seconds from an expression to (up to) ten sources, of the processor (which other work on the machine leaves
    comparable) and on the wall; how many sources; the first program."""
    forget()
    start, busy = time.perf_counter(), time.process_time()
    graph = canonicalize(make())
    with paused_collector():  # as in `rg.build`
        programs = [one.program for one in construct(graph, device, top_k=count)]
        texts = [source.text for source in emit_all(programs, device)]
        return time.process_time() - busy, time.perf_counter() - start, len(texts), programs[0]


def construction(device_name: str, found: Named, repeats: int = 3) -> Finding:
    """Time from expression to ten sources; where NVIDIA's compiler is installed, what compiling the first one adds."""
    device, rows = load_device(device_name), []
    compiles = is_installed() and any(target.language == "cuda" for target in device.targets)
    for id, make in found:
        busy, wall, sources, program = min((ten_sources(make, device) for _ in range(repeats)), key=lambda run: run[0])
        row: Row = {"operator": id, "construct ms": 1e3 * busy, "on the wall ms": 1e3 * wall, "sources": sources}
        if compiles:
            start = time.process_time()
            compile_report(program, device)
            row["compile one ms"] = 1e3 * (time.process_time() - start)
        rows.append(row)
    times = [row["construct ms"] for row in rows]
    ours = f"ten sources in {sum(times) / len(times):.1f} ms of one core on average, {max(times):.1f} ms at worst"
    if compiles:
        ours += f"; compiling one: {sum(row['compile one ms'] for row in rows) / len(rows):.0f} ms"
    return Finding(MEASURED, ours, tuple(rows))


def scaling(device_name: str, sizes: Sequence[int], make: Callable[[int], Tensor], what: str) -> Finding:
    """Predicted time and rate of one operator as one of its extents grows, and what constructing it takes."""
    device, rows = load_device(device_name), []
    for size in sizes:
        busy, _, _, program = ten_sources(lambda size=size: make(size), device)
        said = predict(program, device)
        work = sum(stage.flops for stage in said.stages)
        rows.append({
            what: size, "predicted us": 1e6 * said.seconds, "TFLOP/s": work / said.seconds / 1e12,
            "construct ms": 1e3 * busy,
        })  # fmt: skip
    ours = f"{rows[0]['TFLOP/s']:.2f} TFLOP/s at {what} {sizes[0]}, {rows[-1]['TFLOP/s']:.2f} at {sizes[-1]}"
    return Finding(MODEL, ours, tuple(rows), absent(device))


def construction_scaling(device_name: str, sizes: Sequence[int], make: Callable[[int], Tensor], what: str) -> Finding:
    """Time from expression to ten sources as one extent grows, and how far apart the times are."""
    device, rows = load_device(device_name), []
    for size in sizes:
        busy, wall, _, _ = min(
            (ten_sources(lambda size=size: make(size), device) for _ in range(3)), key=lambda run: run[0]
        )
        rows.append({what: size, "construct ms": 1e3 * busy, "on the wall ms": 1e3 * wall})
    times = [row["construct ms"] for row in rows]
    ours = (
        f"{times[0]:.1f} ms of one core at {what} {sizes[0]}, {times[-1]:.1f} ms at {sizes[-1]}; the slowest, "
        f"{max(times):.1f} ms, takes {max(times) / min(times):.2f} times as long as the fastest"
    )
    return Finding(MEASURED, ours, tuple(rows))


def against_plain(device_name: str, found: Named, plain: BuildOptions, fused: BuildOptions, what: str) -> Finding:
    """Predicted time with ``plain`` options over that with ``fused`` ones."""
    device, rows = load_device(device_name), []
    for id, make in found:
        graph = canonicalize(make())
        slow, fast = (first_choice(graph, device, options).seconds for options in (plain, fused))
        rows.append({"operator": id, "without us": 1e6 * slow, "with us": 1e6 * fast, "gain": slow / fast})
    ours = f"{what}: {mean_of(rows, 'gain'):.2f} times faster over {len(rows)} operators"
    return Finding(MODEL, ours, tuple(rows), absent(device))


def unfused(make: Callable[[], Tensor]) -> Graph:
    """The canonical graph, its adjacent axes left apart."""
    graph = cut(make(), None)
    apart = tuple(split_axes(drop_trivial(simplify(one))) for one in graph.tensor_ops)
    return replace(graph, tensor_ops=apart)


def irregular(device_name: str, found: Named) -> Finding:
    """Predicted times without axis fusion and padding, with fusion alone, and with both.

    A missing time: no program divides the axes.  Gains are means over the operators that have both times.
    """
    device, rows = load_device(device_name), []
    no_padding = BuildOptions(padding=False)
    for id, make in found:
        times = {
            "neither us": _admitted(unfused(make), device, no_padding),
            "fusion us": _admitted(canonicalize(make()), device, no_padding),
            "fusion and padding us": _admitted(canonicalize(make()), device, BuildOptions()),
        }
        row: Row = {"operator": id, **times}
        for gain, slow, fast in _GAINS:
            row[gain] = times[slow] / times[fast] if times[slow] and times[fast] else None
        rows.append(row)
    without = sum(row["neither us"] is None for row in rows)
    gains = "; ".join(f"{gain} {mean_of(rows, gain):.2f}" for gain, _, _ in _GAINS if any(row[gain] for row in rows))
    ours = f"{gains or 'no gain can be told'}; {without} of {len(rows)} operators have no program without both"
    return Finding(MODEL, ours, tuple(rows), absent(device))


_GAINS = (("gain of fusion", "neither us", "fusion us"), ("gain of padding", "fusion us", "fusion and padding us"))


def _admitted(graph: Graph, device: Device, options: BuildOptions) -> float | None:
    """Predicted microseconds of the first choice; None where the options admit no program."""
    try:
        return float(1e6 * first_choice(graph, device, options).seconds)
    except ConstructionError:
        return None


def layers(device_name: str, found: Named) -> Finding:
    """Bytes that leave each layer in the predicted time: the throughput of each layer."""
    device, rows = load_device(device_name), []
    for id, make in found:
        said = first_choice(canonicalize(make()), device)
        for stage in said.stages:
            rates = {f"{layer} GB/s": sent / stage.seconds / 1e9 for layer, sent in stage.traffic_bytes}
            rows.append({"operator": id, "TFLOP/s": stage.flops / stage.seconds / 1e12, **rates})
    return Finding(MODEL, f"throughput of each layer for {len(rows)} launches", tuple(rows), absent(device))


def saturation(device_name: str, found: Named) -> Finding:
    """Share of the predicted time for which the busiest resource is busy."""
    device, rows = load_device(device_name), []
    for id, make in found:
        for stage in first_choice(canonicalize(make()), device).stages:
            busiest = max(stage.limiters, key=lambda one: one.seconds)
            rows.append({"operator": id, "saturated": busiest.name, "busy": busiest.seconds / stage.seconds})
    share = sum(row["busy"] for row in rows) / len(rows)
    return Finding(MODEL, f"the saturated layer is busy {100 * share:.0f} % of the time", tuple(rows), absent(device))


def rules(device_name: str, found: Named) -> Finding:
    """Predicted time of the first choice as the alignment rules are added one by one, over that of all rules."""
    device, rows = load_device(device_name), []
    steps, obeyed = {"none": AlignmentRules(**dict.fromkeys(RULES, False))}, {}
    for rule in RULES:
        obeyed[rule] = True
        steps["+ " + rule.replace("_", " ")] = AlignmentRules(**{one: one in obeyed for one in RULES})
    for id, make in found:
        graph = canonicalize(make())
        times = {step: first_choice(graph, device, BuildOptions(alignment=one)).seconds for step, one in steps.items()}
        rows.append({"operator": id, **{step: seconds / times["+ tensor shape"] for step, seconds in times.items()}})
    means = ", ".join(f"{step} {mean_of(rows, step):.2f}" for step in steps)
    return Finding(MODEL, f"time over that of all rules: {means}", tuple(rows), absent(device))
