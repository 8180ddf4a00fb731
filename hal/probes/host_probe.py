"""The figures of this machine that only a run can tell: measured once, kept in the user's cache directory.

A kept figure is used as it is, whatever noise it has: the same machine then gives the same spec, and the
same source, every time.  Deleting the file measures anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollergen.hal.dataclass import dataclass
from rollergen.hal.dot_products import OF_X86
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.files.kept import read_kept, write_kept
from rollergen.hal.files.user_cache import user_directory
from rollergen.hal.probes.host_facts import CacheLevel, cores, cpu_model, memory_bytes, widest_bits
from rollergen.hal.runtimes.remembered import Host, remembered

if TYPE_CHECKING:
    from rollergen.hal.probes.microbench import Dialect, Figure
    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

VERSION = 13
"""Counts changes of what is measured, or how."""
_BACKING = "dram"


@dataclass(frozen=True, slots=True)
class Probe:
    """Measured on this machine: MHz, GFLOP/s of one core, bytes per clock of one core and GB/s of all by layer,
    microseconds.  ``spread``: median over best time, less 1, by what was measured.  ``wake_us``: see `Device`.
    ``dot_products_per_clock``: vectors of dot products that start in a clock, by instruction."""

    runtime: str
    units: int
    clock_mhz: float
    peak_gflop_s: float
    lanes: int
    attribute: str
    read_bytes_per_clock: dict[str, float]
    write_bytes_per_clock: dict[str, float]
    read_gb_s: dict[str, float]
    launch_us: float
    wake_us: float
    spread: dict[str, float]
    dot_products_per_clock: dict[str, float] = field(default_factory=dict)

    def origin(self, name: str) -> str:
        """Who measured a figure, and how it scattered."""
        text = f"{self.runtime}, best of several rounds"
        return f"{text}, the median {self.spread[name]:.0%} off" if name in self.spread else text


def kept_in() -> Path:
    """The file with the kept figures."""
    return user_directory() / "host.json"


def probe(caches: tuple[CacheLevel, ...]) -> Probe | None:
    """The kept figures for this machine and runtime, else measured now and kept; None without a runtime
    that compiles."""
    path, known = kept_in(), remembered()
    found = None if known is None else _parsed(read_kept(path).get(_key(known, caches)))
    if found is not None:
        return found
    try:
        from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

        runtime = OpenCLRuntime()
    except RuntimeUnavailableError:
        return None
    key = _key(runtime.host, caches)
    found = _parsed(read_kept(path).get(key))
    if found is not None:
        return found
    try:
        return _keep(path, key, measure(runtime, caches, min(cores(), runtime.units)))
    except BuildError:
        return None


def _key(host: Host, caches: tuple[CacheLevel, ...]) -> str:
    """What figures are kept under."""
    sizes, units = " ".join(str(cache.capacity_bytes) for cache in caches), min(cores(), host.units)
    return f"{VERSION} | {cpu_model()} | {host.description} | {units} units | {widest_bits()} bits | {sizes}"


def working_sets(caches: tuple[CacheLevel, ...], memory: int) -> dict[str, int]:
    """Bytes to walk for each layer: half of a cache; for memory four times the outermost, or twice a huge one."""
    sizes = {cache.name: cache.capacity_bytes // 2 for cache in caches}
    outermost = max((cache.capacity_bytes for cache in caches), default=1 << 25)
    wanted = max(2 * outermost, min(4 * outermost, 1 << 28))
    return {**sizes, _BACKING: min(wanted, memory // 8) if memory else wanted}


def choose_dialect(rates: Mapping[Dialect, float]) -> Dialect:
    """The dialect with the highest rate; within 10 % of it, one that states its width, then the widest: a kernel
    that PoCL does not inline is compiled for narrower vectors unless it says otherwise."""
    top = max(rates.values())
    near = [dialect for dialect, rate in rates.items() if rate >= 0.9 * top]
    return max(near, key=lambda d: (bool(d.attribute), d.lanes))


def measure(runtime: OpenCLRuntime, caches: tuple[CacheLevel, ...], units: int, patience: int = 1) -> Probe:
    """Measured now, whatever is kept: the CPU of `runtime`, with these caches and so many cores at work.

    ``patience``: so many times as many rounds, and up to four places of memory: where others use caches and memory
    too, the best of more repeats.
    """
    from rollergen.hal.probes import microbench

    clock, rates = microbench.clock_and_peaks(runtime, microbench.dialects(widest_bits()), 7 * patience)
    best = choose_dialect({dialect: figure.value for dialect, figure in rates.items()})
    sizes = working_sets(caches, memory_bytes())
    bands = microbench.bandwidths_gb_s(runtime, best, sizes, units, 5 * patience, min(4, patience))
    launch = microbench.launch_us(runtime, 10 * patience)
    wake = microbench.wake_us(runtime, units, 10 * patience)
    dots = {name: microbench.dot_products_per_clock(runtime, best, one.op, clock.value, 5 * patience)
            for name, one in OF_X86.items()}  # fmt: skip
    per_clock = lambda kind: falling({x: _short(bands[x, kind, 1].value / clock.value * 1e3) for x in sizes})
    return Probe(
        runtime=runtime.description,
        units=units,
        clock_mhz=_short(clock.value),
        peak_gflop_s=_short(rates[best].value),
        lanes=best.lanes,
        attribute=best.attribute,
        read_bytes_per_clock=per_clock("reading"),
        write_bytes_per_clock=per_clock("writing"),
        read_gb_s=falling({layer: _short(bands[layer, "reading", units].value) for layer in sizes}),
        launch_us=_short(launch.value),
        wake_us=_short(wake.value),
        spread=_spreads(clock, rates[best], (launch, wake), {layer: bands[layer, "reading", 1] for layer in sizes})
        | {name: round(rate.spread, 3) for name, rate in dots.items()},
        dot_products_per_clock={name: _short(rate.value) for name, rate in dots.items()},
    )


TABLES = {
    "read_bytes_per_clock": "bytes_per_clock",
    "write_bytes_per_clock": "write_bytes_per_clock",
    "read_gb_s": "bandwidth_gb_s",
}
"""Figures of each layer, and what they are called in a spec."""


def figures_of(found: Probe) -> dict[str, float]:
    """Everything measured, by the path that a spec would give it."""
    names = ("clock_mhz", "peak_gflop_s", "launch_us", "wake_us")
    single = {name: getattr(found, name) for name in names}
    dots = {f"{name}.per_clock": rate for name, rate in found.dot_products_per_clock.items()}
    return single | dots | {
        f"{layer}.{name}": value for field, name in TABLES.items() for layer, value in getattr(found, field).items()
    }


def better_of(one: Probe, other: Probe) -> Probe:
    """The higher rates and the shorter times of two measurements of one machine: others only ever slow it down."""
    rates = lambda field: {x: max(value, getattr(other, field)[x]) for x, value in getattr(one, field).items()}
    first = one if one.peak_gflop_s >= other.peak_gflop_s else other
    return replace(
        first,
        clock_mhz=max(one.clock_mhz, other.clock_mhz),
        launch_us=min(one.launch_us, other.launch_us),
        wake_us=min(one.wake_us, other.wake_us),
        read_bytes_per_clock=rates("read_bytes_per_clock"),
        write_bytes_per_clock=rates("write_bytes_per_clock"),
        read_gb_s=rates("read_gb_s"),
        dot_products_per_clock=rates("dot_products_per_clock"),
        spread={name: max(value, other.spread.get(name, 0.0)) for name, value in one.spread.items()},
    )


def falling(rates: Mapping[str, float]) -> dict[str, float]:
    """Rates of layers, innermost first, each at least that of the next: what a cache holds comes no later than what
    lies beyond it, and a measurement that says so met noise (a cache that a virtual machine shares with others:
    32.6 GB/s, the memory 33.1)."""
    found: dict[str, float] = {}
    for layer in reversed(list(rates)):
        found[layer] = max(rates[layer], *found.values()) if found else rates[layer]
    return {layer: found[layer] for layer in rates}


def _spreads(
    clock: Figure, peak: Figure, launches: tuple[Figure, Figure], layers: Mapping[str, Figure]
) -> dict[str, float]:
    figures = {"clock": clock, "peak": peak, "launch": launches[0], "wake": launches[1], **layers}
    return {name: round(figure.spread, 3) for name, figure in figures.items()}


def _short(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")


def _parsed(kept: Any) -> Probe | None:
    """A kept probe; None if it is not one (written by another version, or damaged)."""
    if not isinstance(kept, dict) or kept.keys() != {field.name for field in fields(Probe)}:
        return None
    numbers = [kept[name] for name in ("units", "clock_mhz", "peak_gflop_s", "lanes", "launch_us")]
    tables = [kept[name] for name in (*TABLES, "spread", "dot_products_per_clock")]
    texts = [kept["runtime"], kept["attribute"]]
    whole = all(isinstance(table, dict) for table in tables) and all(isinstance(text, str) for text in texts)
    positive = all(isinstance(n, (int, float)) and n > 0 for n in numbers)
    waking = isinstance(kept["wake_us"], (int, float)) and kept["wake_us"] >= 0
    return Probe(**kept) if whole and positive and waking else None


def _keep(path: Path, key: str, found: Probe) -> Probe:
    """Kept for the next time; if another process was faster, its figures hold for this one too."""
    kept = read_kept(path)
    earlier = _parsed(kept.get(key))
    if earlier is not None:
        return earlier
    write_kept(path, {**kept, key: asdict(found)})
    return found
