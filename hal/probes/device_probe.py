"""Fills a spec from the OpenCL device that is present: every figure with its spread, or the reason why it is not there.

CPUs only.  What a run cannot tell on such a device (costs of the model, translation buffers) stays as the built-in
`cpu` has it, assumed or fitted, and is listed as not measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.load import load_device
from rollergen.hal.probes import chases, microbench
from rollergen.hal.probes.host import HOST, completed
from rollergen.hal.probes.host_facts import CacheLevel, cache_levels, clock_state, cores, memory_bytes
from rollergen.hal.probes.host_probe import TABLES, Probe, better_of, figures_of, measure, working_sets
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.spec import Device

PATIENCE = 12
"""Rounds of a probe for each of those that complete `cpu`: the best of them repeats within a tenth on a machine that
others use, which the best of a few does not."""
REPEATS = 1.25
"""Two measurements of a figure differ by less on a calm machine, and by up to 8 times on a busy one."""
_REPEATS = {"wake_us": 2.0, "launch_us": 1.5}
_LEAST_US = {"wake_us": 20.0, "launch_us": 0.5}
"""How deeply threads sleep differs from time to time."""
UNSTEADY = 0.1
"""A spread beyond which a latency does not repeat: others use what is measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure: its path (as `devices show` has it), its value in the spec, and ``spread``: median over best time,
    less 1.  ``raw``: as it was measured, where the spec takes a whole number of it."""

    path: str
    value: float
    spread: float
    raw: float


@dataclass(frozen=True, slots=True)
class ProbedDevice:
    """A spec, what of it was measured, what was not and why, and the state of clock and heat meanwhile."""

    device: Device
    measured: tuple[Measured, ...]
    not_measured: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]


def probe_cpu(name: str) -> ProbedDevice:
    """The CPU that kernels run on here as a spec called `name`; takes a quarter of a minute.

    Raises RuntimeUnavailableError where there is none, and where a figure does not repeat.
    """
    runtime = OpenCLRuntime()
    caches = cache_levels()
    before = clock_state()
    figures = repeated(lambda: measure(runtime, caches, min(cores(), runtime.units), max(1, PATIENCE // 2)))
    device = replace(completed(load_device(HOST), caches, figures), name=name, verified=())
    device, more, missing = _with_chases(device, runtime, caches)
    device, wide, without = _with_float64(device, runtime, figures)
    limits = replace(device.limits, threads_per_block=min(runtime.limits.threads, device.limits.threads_per_unit))
    told = {"limits.threads_per_block": ("measured", f"what {runtime.description} says")}
    state = tuple(
        (f"{key} {when}", text) for when, now in (("before", before), ("after", clock_state())) for key, text in now
    )
    origins = {**dict(device.provenance), **told, "clock_mhz": _with_state(device, state)}
    device = replace(device, limits=limits, provenance=tuple(sorted(origins.items())))
    unknown = (*missing, *without, *_never_measured(device))
    return ProbedDevice(device, (*_of_probe(device, figures), *more, *wide), unknown, state)


def repeated(measured: Callable[[], Probe]) -> Probe:
    """The better figures of two measurements.  Raises RuntimeUnavailableError for one that does not repeat."""
    one, other = measured(), measured()
    again = figures_of(other)
    for path, first in figures_of(one).items():
        low, high = sorted((first, again[path]))
        if high > _REPEATS.get(path, REPEATS) * low and high - low > _LEAST_US.get(path, 0.0):
            values = f"{first:.4g} and then {again[path]:.4g}"
            raise RuntimeUnavailableError(f"{path} does not repeat: {values}; {machine_is_busy()}")
    return better_of(one, other)


def machine_is_busy() -> str:
    """What to do about a figure that does not repeat."""
    return f"the machine is busy{_load()}: end what else runs there, and probe again"


def _load() -> str:
    """How busy, where the system says so."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (load {os.getloadavg()[0]:.1f} on {cores()} cores)"


def _with_state(device: Device, state: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    kind, source = dict(device.provenance)["clock_mhz"]
    return kind, f"{source}; {', '.join(f'{key} {text}' for key, text in state)}"


def _with_chases(
    device: Device, runtime: OpenCLRuntime, caches: tuple[CacheLevel, ...]
) -> tuple[Device, list[Measured], list[tuple[str, str]]]:
    """Latencies, and the line size as a run sees it, held against what the operating system says."""
    sizes = working_sets(caches, memory_bytes())
    origins, layers, found, missing = dict(device.provenance), list(device.layers), [], []
    for layer, figure in chases.latencies_ns(runtime, sizes, 5 * PATIENCE).items():
        if figure.spread > UNSTEADY:
            missing.append((f"{layer}.latency_clocks", f"not steady: the median is {figure.spread:.0%} off the best"))
            continue
        at = next(number for number, one in enumerate(layers) if one.name == layer)
        clocks = float(f"{figure.value * device.clock_mhz / 1e3:.4g}")
        layers[at] = replace(layers[at], latency_clocks=clocks)
        source = (
            f"{runtime.description}, random pointer chase with its translation misses, median {figure.spread:.0%} off"
        )
        origins[f"memory_layers[{at}].latency_clocks"] = ("measured", source)
        found.append(Measured(f"{layer}.latency_clocks", clocks, figure.spread, clocks))
    second = next((cache for cache in caches if cache.level == 2), None)
    line, times = chases.line_bytes(runtime, sizes[second.name], 5 * PATIENCE) if second else (0, {})
    first = next((one for one in layers[1:] if not one.managed), None)
    if first is not None and line == first.transaction_bytes:
        spread = max(one.spread for one in times.values())
        found.append(Measured(f"{first.name}.transaction_bytes", line, spread, line))
    elif first is not None:
        seen = f"misses show {line} bytes" if line else "no step in the time of misses"
        missing.append((f"{first.name}.transaction_bytes", f"{seen}; kept as the operating system says"))
    return replace(device, layers=tuple(layers), provenance=tuple(sorted(origins.items()))), found, missing


def _with_float64(
    device: Device, runtime: OpenCLRuntime, figures: Probe
) -> tuple[Device, list[Measured], list[tuple[str, str]]]:
    at = next(number for number, one in enumerate(device.instructions) if one.dtype == "float64")
    one = device.instructions[at]
    try:
        dialect = microbench.Dialect(figures.lanes, figures.attribute)
        peak = microbench.peak_gflop_s(runtime, dialect, "double", 5 * PATIENCE)
    except BuildError:
        return device, [], [(f"{one.name}.per_clock", f"{runtime.description} compiles no double")]
    raw = _per_clock(peak.value, one.lanes, device)
    per_clock = float(max(1, round(raw)))
    instructions = list(device.instructions)
    instructions[at] = replace(one, per_clock=per_clock)
    origins = dict(device.provenance)
    text = f"{runtime.description}, {peak.value:.4g} GFLOP/s of one core, the median {peak.spread:.0%} off"
    origins[f"instructions[{at}].per_clock"] = ("measured", text)
    changed = replace(device, instructions=tuple(instructions), provenance=tuple(sorted(origins.items())))
    return changed, [Measured(f"{one.name}.per_clock", per_clock, peak.spread, raw)], []


def _per_clock(gflop_s: float, lanes: int, device: Device) -> float:
    """Vector multiply-adds of one core in a clock."""
    return float(f"{gflop_s * 1e3 / (2 * lanes * device.clock_mhz):.4g}")


def _of_probe(device: Device, figures: Probe) -> Iterator[Measured]:
    yield Measured("clock_mhz", device.clock_mhz, figures.spread["clock"], device.clock_mhz)
    yield Measured("launch_us", device.launch_us, figures.spread["launch"], device.launch_us)
    if device.wake_us:
        yield Measured("wake_us", device.wake_us, figures.spread["wake"], device.wake_us)
    fma = next(one for one in device.instructions if one.lanes > 1 and one.dtype == "float32")
    raw = _per_clock(figures.peak_gflop_s, figures.lanes, device)
    yield Measured(f"{fma.name}.per_clock", fma.per_clock, figures.spread["peak"], raw)
    measured = {name: getattr(figures, field) for field, name in TABLES.items()}
    for layer in device.layers[1:]:
        for field, by_layer in measured.items():
            value = getattr(layer, field)
            if value and layer.name in figures.read_gb_s:
                yield Measured(f"{layer.name}.{field}", value, figures.spread[layer.name], by_layer[layer.name])


def _never_measured(device: Device) -> Iterator[tuple[str, str]]:
    yield "banks, bank_bytes", "no memory of a CPU is banked for the program to see"
    yield "instructions.latency_clocks", "assumed: the loop for the peak hides it"
    if device.tlbs:
        yield "tlbs", "assumed: as another core has them"
    yield "costs", "constants of the model, as fitted on another core: no single benchmark tells them"
