"""What the operating system tells about this machine's processor: features, caches, clock, temperature, throttling."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rollergen.hal.dataclass import dataclass
from rollergen.hal.runtimes.pocl_cpu_name import host_flags

_CPU = Path("/sys/devices/system/cpu/cpu0")


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One level of the data caches: one instance of it."""

    level: int
    capacity_bytes: int
    line_bytes: int
    ways: int

    @property
    def name(self) -> str:
        return f"l{self.level}"


def cpu_model() -> str:
    """The processor's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def highest_clock_mhz(cpu: Path = _CPU) -> float:
    """The highest clock that the system may choose; 0 where it does not say."""
    try:
        return int((cpu / "cpufreq" / "cpuinfo_max_freq").read_text()) / 1e3
    except (OSError, ValueError):
        return 0.0


def cache_levels(cpu: Path = _CPU) -> tuple[CacheLevel, ...]:
    """Data and unified caches of the first core, innermost first; empty where the system says nothing."""
    found = {}
    for index in sorted((cpu / "cache").glob("index*")):
        try:
            told = {name: (index / name).read_text().strip() for name in _TOLD}
            if told["type"] == "Instruction":
                continue
            line, ways = int(told["coherency_line_size"]), int(told["ways_of_associativity"])
            cache = CacheLevel(int(told["level"]), _bytes(told["size"]), line, ways)
        except (OSError, ValueError):
            continue
        if min(cache.capacity_bytes, cache.line_bytes, cache.ways) > 0:
            found[cache.level] = cache
    return tuple(found[level] for level in sorted(found))


_TOLD = ("type", "level", "size", "coherency_line_size", "ways_of_associativity")


def _bytes(text: str) -> int:
    """48K, 2M, 512."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def widest_bits(flags: frozenset[str] | None = None) -> int:
    """Bits of the widest float vector."""
    flags = host_flags() if flags is None else flags
    return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128


def vector_registers(flags: frozenset[str] | None = None) -> int:
    """Vector registers of a thread, of whichever width."""
    flags = host_flags() if flags is None else flags
    return 32 if "avx512f" in flags or platform.machine() == "aarch64" else 16


NOT_READABLE = "not readable"
_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_THERMAL = Path("/sys/class/thermal/thermal_zone0/temp")
_THROTTLE = Path("/sys/devices/system/cpu/cpu0/thermal_throttle")


def clock_state(
    cpufreq: Path = _CPUFREQ, thermal: Path = _THERMAL, throttle: Path = _THROTTLE
) -> tuple[tuple[str, str], ...]:
    """Governor, clock, temperature and how often the core was throttled since it started, as the system tells them;
    `NOT_READABLE` where it does not."""
    files = {
        "governor": cpufreq / "scaling_governor",
        "clock": cpufreq / "scaling_cur_freq",
        "temperature": thermal,
        "throttled": throttle / "core_throttle_count",
    }
    units = {"clock": lambda text: f"{int(text) / 1e3:g} MHz", "temperature": lambda text: f"{int(text) / 1e3:g} C"}
    found = []
    for key, file in files.items():
        try:
            text = file.read_text().strip()
            found.append((key, units[key](text) if key in units else text))
        except (OSError, ValueError):
            found.append((key, NOT_READABLE))
    return tuple(found)
