"""Completes the `cpu` spec from the machine it runs on: cores, lanes, caches, probed rates, code dialect.

What the operating system tells is read; what only a run can tell is probed once with short OpenCL
kernels and kept in the user's cache directory.  Without an OpenCL runtime the probed figures are derived
from public ones (kind derived), so that source and predictions exist all the same.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import platformdirs

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.pocl_cpu_name import host_flags
from rollergen.hal.spec import Device, Instruction, MemoryLayer, Target

PROBE_VERSION = 4
_COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One level of the data caches as the operating system describes it."""

    level: int
    capacity_bytes: int
    line_bytes: int
    ways: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """Measured on this machine: MHz, GFLOP/s of one core, bytes per clock and GB/s by layer, microseconds."""

    runtime: str
    clock_mhz: float
    peak_gflop_s: float
    lanes: int
    attribute: str
    read_bytes_per_clock: dict[str, float]
    write_bytes_per_clock: dict[str, float]
    read_gb_s: dict[str, float]
    launch_us: float


def complete(device: Device) -> Device:
    """`device` with everything about this host filled in; a completed spec comes back unchanged."""
    if dict(device.targets[0].dialect).get(_COMPLETED):
        return device
    caches = cache_levels()
    units = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = probe(caches, units)
    return _completed(device, caches, units, found)


def cpu_model() -> str:
    """The processor's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cache_levels(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[CacheLevel, ...]:
    """Data and unified caches of the first core, innermost first; empty where the system says nothing."""
    found = []
    for index in sorted(root.glob("index*")):
        read = lambda name, index=index: (index / name).read_text().strip()
        try:
            if read("type") == "Instruction":
                continue
            size = read("size")
            shared = len(read("shared_cpu_list").replace("-", ",").split(",")) > 1
            line, ways = int(read("coherency_line_size")), int(read("ways_of_associativity"))
            found.append(CacheLevel(int(read("level")), int(size[:-1]) * 1024, line, ways, shared))
        except (OSError, ValueError):
            continue
    return tuple(sorted(found, key=lambda cache: cache.level))


def widest_bits(flags: frozenset[str] | None = None) -> int:
    """Bits of the widest float vector of the host."""
    flags = host_flags() if flags is None else flags
    return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128


def probe(caches: tuple[CacheLevel, ...], units: int) -> Probe | None:
    """The kept figures for this machine and runtime, else measured now and kept; None without a runtime."""
    path = Path(platformdirs.user_cache_dir("rollergen")) / "host.json"
    try:
        from rollergen.hal.opencl_runtime import OpenCLRuntime

        runtime = OpenCLRuntime()
    except RuntimeUnavailableError:
        return None
    key = f"{PROBE_VERSION} | {cpu_model()} | {runtime.description} | {units} units | {widest_bits()} bits"
    kept = _read_json(path)
    if key in kept:
        return Probe(**kept[key])
    found = _measure(runtime, caches, units)
    _write_json(path, {**_read_json(path), key: asdict(found)})
    return found


def _measure(runtime, caches: tuple[CacheLevel, ...], units: int) -> Probe:  # type: ignore[no-untyped-def]
    from rollergen.hal import microbench

    rates = microbench.peak_gflop_s(runtime, microbench.dialects(widest_bits()))
    best = choose_dialect({d: figure.value for d, figure in rates.items()})
    sizes = {f"l{cache.level}": cache.capacity_bytes // 2 for cache in caches}
    outermost = max((cache.capacity_bytes for cache in caches), default=1 << 25)
    sizes["dram"] = min(4 * outermost, 1 << 28)
    clock = microbench.clock_mhz(runtime).value
    bands = microbench.bandwidth_gb_s(runtime, best, sizes, units)
    per_clock = lambda kind: {layer: bands[layer, kind, 1].value / clock * 1e3 for layer in sizes}
    return Probe(
        runtime=runtime.description,
        clock_mhz=clock,
        peak_gflop_s=rates[best].value,
        lanes=best.lanes,
        attribute=best.attribute,
        read_bytes_per_clock=per_clock("read"),
        write_bytes_per_clock=per_clock("write"),
        read_gb_s={layer: bands[layer, "read", units].value for layer in sizes},
        launch_us=microbench.launch_us(runtime).value,
    )


def choose_dialect(rates):  # type: ignore[no-untyped-def]
    """The dialect with the highest rate; within 10 % of it, the one that states its width, then the widest."""
    top = max(rates.values())
    near = [d for d, rate in rates.items() if rate >= 0.9 * top]
    return max(near, key=lambda d: (bool(d.attribute), d.lanes))


def _completed(device: Device, caches: tuple[CacheLevel, ...], units: int, found: Probe | None) -> Device:
    lanes = found.lanes if found else widest_bits() // 32
    clock = found.clock_mhz if found else device.clock_mhz
    per_clock = max(1, round(found.peak_gflop_s * 1e3 / (2 * lanes * clock))) if found else 2
    registers = 32 if "avx512f" in host_flags() else 16
    layers = [replace(device.layers[0], capacity_bytes=registers * lanes * 4, transaction_bytes=lanes * 4)]
    layers += [_cache_layer(device, cache, found) for cache in caches]
    layers += [_backing_layer(device, found)]
    dialect = {_COMPLETED: cpu_model(), "vector_width": str(lanes)}
    if found and found.attribute:
        dialect["kernel_attribute"] = found.attribute
    kind = ("measured", found.runtime) if found else ("derived", "no OpenCL runtime: public figures of such CPUs")
    probed = ("clock_mhz", "instructions", "launch_us", "memory_layers.bytes_per_clock", "targets.dialect")
    return replace(
        device,
        title=cpu_model(),
        units=units,
        execution_width=lanes,
        clock_mhz=round(clock, 1),
        layers=tuple(layers),
        instructions=tuple(_host_instruction(i, lanes, per_clock) for i in device.instructions),
        limits=replace(device.limits, registers_per_thread=registers, registers_per_unit=registers),
        launch_us=round(found.launch_us, 2) if found else device.launch_us,
        targets=(Target(device.targets[0].language, device.targets[0].arch, tuple(sorted(dialect.items()))),),
        provenance=tuple(sorted({**dict(device.provenance), **dict.fromkeys(probed, kind)}.items())),
    )


def _host_instruction(instruction: Instruction, lanes: int, per_clock: int) -> Instruction:
    """Vector entries take the host's width (in elements of their dtype); scalar ones stay."""
    if instruction.lanes == 1:
        return replace(instruction, per_clock=per_clock)
    width = lanes // 2 if instruction.dtype == "float64" else lanes
    return replace(instruction, n=width, lanes=width, per_clock=per_clock)


def _cache_layer(device: Device, cache: CacheLevel, found: Probe | None) -> MemoryLayer:
    """A cache beyond the first is indexed by physical pages: only the sets within a page are known."""
    name = f"l{cache.level}"
    base = next((layer for layer in device.layers if layer.name == name), device.layers[-2])
    page_sets = 4096 // cache.line_bytes
    lines = cache.capacity_bytes // cache.line_bytes
    sets = lines // cache.ways if cache.level == 1 else page_sets
    reads = found.read_bytes_per_clock.get(name, base.bytes_per_clock) if found else base.bytes_per_clock
    writes = found.write_bytes_per_clock.get(name, reads) if found else base.write_bytes_per_clock
    indexed = cache.level <= 2
    return replace(
        base,
        name=name,
        scope="device" if cache.level >= 3 else "unit",
        capacity_bytes=cache.capacity_bytes,
        transaction_bytes=cache.line_bytes,
        bytes_per_clock=round(reads, 2),
        write_bytes_per_clock=round(writes, 2),
        sets=sets if indexed else 0,
        ways=lines // sets if indexed else 0,
    )


def _backing_layer(device: Device, found: Probe | None) -> MemoryLayer:
    base = device.layers[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else base.capacity_bytes
    base = replace(base, capacity_bytes=memory)
    if found is None:
        return base
    return replace(
        base,
        bytes_per_clock=round(found.read_bytes_per_clock["dram"], 2),
        write_bytes_per_clock=round(found.write_bytes_per_clock["dram"], 2),
        bandwidth_gb_s=round(found.read_gb_s["dram"], 2),
        bandwidth_nominal_gb_s=0.0,
    )


def _read_json(path: Path) -> dict:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def _write_json(path: Path, content: dict) -> None:
    """Written whole or not at all; a cache directory that cannot be written costs a new probe next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(content, file, indent=1)
        os.replace(file.name, path)
    except OSError:
        pass
