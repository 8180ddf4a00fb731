"""The processor's clock, temperature and throttling, where the operating system tells them (Linux: sysfs)."""

from __future__ import annotations

from pathlib import Path

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
