"""Fills a spec from an OpenCL device that is present and has memory of its own: what its driver tells, what
micro-benchmarks measure with their spread, and what not and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rollergen.hal.changes import paths
from rollergen.hal.errors import BuildError
from rollergen.hal.probes.cuda_microbench import banks
from rollergen.hal.probes.device_probe import UNSTEADY, Measured, ProbedDevice
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.probes.opencl_bench import OpenCLBench, Sizes, widest
from rollergen.hal.probes.opencl_facts import UNKNOWN_CLOCK_MHZ, base_of, described, driver_figures
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import Present, chosen
from rollergen.hal.runtimes.opencl_platforms import present_devices
from rollergen.hal.spec import Device

MOST_THREADS = 256
PASSES = 2
"""Times that everything is measured, one after the other."""
_LESS_IS_BETTER = ("latency_clocks", "launch_us")
_LEAST_DRAM, _MOST_DRAM = 1 << 20, 1 << 27


@dataclass(slots=True)
class _Findings:
    """``how``: what each value was found by, "told" where the driver says it."""

    values: dict[str, float] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def figure(self, path: str, figure: Figure, source: str, scale: float = 1.0) -> None:
        """Keeps the better one of several: what else runs on the machine makes figures worse, and none better."""
        short = float(f"{figure.value * scale:.4g}")
        before = self.measured.get(path)
        if before is not None and (before.value < short) is path.endswith(_LESS_IS_BETTER):
            return
        self.values[path], self.how[path] = short, f"{source}, the median {figure.spread:.0%} off"
        self.measured[path] = Measured(path, short, figure.spread, short)


def probed_facts(which: str) -> Present:
    """The OpenCL device that "PLATFORM:DEVICE" means.  RuntimeUnavailableError where there is none."""
    return chosen(which, [facts for facts, _ in present_devices()])


def probe_device(facts: Present, name: str, sizes: Sizes | None = None) -> ProbedDevice:
    """A present OpenCL device as a spec called `name`; takes about half a minute.

    Raises BuildError where it compiles no kernel.
    """
    runtime = BufferRuntime(facts, dict(present_devices())[facts])
    base = base_of(runtime)
    found = _Findings()
    known = set(paths(base))
    found.values = {path: value for path, value in driver_figures(runtime, base) if path in known}
    found.how = dict.fromkeys(found.values, "told")
    units, mhz = int(found.values["units"]), float(found.values["clock_mhz"])
    threads = min(MOST_THREADS, int(found.values["limits.threads_per_block"]))
    bench = OpenCLBench(runtime, units, mhz, threads, sizes or _sizes(found))
    for _ in range(PASSES):
        _measure(found, base, bench)
    to, back = bench.copies_gb_s()
    state = (("copies", f"{to:.3g} GB/s to the device and {back:.3g} GB/s back"),)
    device = described(runtime, base, name, found.values, found.how)
    missing = [(path, why) for path, why in found.missing.items() if path not in found.measured]
    return ProbedDevice(device, tuple(found.measured.values()), (*missing, *_never(base, mhz)), state)


def _sizes(found: _Findings) -> Sizes:
    """In each layer by far, and no more than an eighth of the memory."""
    memory, cache = found.values["dram.capacity_bytes"], found.values.get("l2.capacity_bytes", 1 << 22)
    dram = 1 << int(min(memory / 8, max(4 * cache, _LEAST_DRAM), _MOST_DRAM)).bit_length() - 1
    l2 = 1 << int(min(1 << 20, cache / 4)).bit_length() - 1
    return Sizes(l2=l2, dram=dram)


def _measure(found: _Findings, base: Device, bench: OpenCLBench) -> None:
    by = bench.runtime.description
    for one in base.instructions:
        try:
            rate = bench.per_clock(one)
        except BuildError as error:
            found.missing[f"{one.name}.per_clock"] = str(error).splitlines()[0][:200]
        else:
            found.figure(f"{one.name}.per_clock", rate, f"{by}, chains of it in registers")
    for layer in ("l1", "l2", "dram"):
        rates = bench.reading_gb_s(layer)
        widths = ", ".join(f"{4 * width} bytes {rate.value:.4g}" for width, rate in rates.items())
        _bandwidth(found, base, bench, layer, widest(rates), f"{by}, all units reading; GB/s by loads of {widths}")
        latency = bench.latency_clocks(layer)
        if latency.spread > UNSTEADY:
            found.missing[f"{layer}.latency_clocks"] = f"not steady: the median is {latency.spread:.0%} off the best"
        else:
            found.figure(f"{layer}.latency_clocks", latency, f"{by}, random pointer chase")
    if base.backing.write_bytes_per_clock:
        _per_clock(found, bench, "dram.write_bytes_per_clock", bench.writing_gb_s(), f"{by}, all units writing")
    _shared(found, base, bench, by)
    found.figure("launch_us", bench.launch_us(), f"{by}, empty kernels in a row")


def _bandwidth(
    found: _Findings, base: Device, bench: OpenCLBench, layer: str, rate: Figure, source: str
) -> None:
    own = base.layer(layer)
    if own.bandwidth_gb_s:
        found.figure(f"{layer}.bandwidth_gb_s", rate, source)
    if own.bytes_per_clock:
        _per_clock(found, bench, f"{layer}.bytes_per_clock", rate, source)


def _per_clock(found: _Findings, bench: OpenCLBench, path: str, gb_s: Figure, source: str) -> None:
    found.figure(path, gb_s, source, 1e3 / (bench.units * bench.mhz))


def _shared(found: _Findings, base: Device, bench: OpenCLBench, by: str) -> None:
    """Banks are kept as the spec has them where a run shows none, or others."""
    rates, shared = bench.shared_bytes_per_clock(), base.layer("shared")
    found.figure("shared.bytes_per_clock", rates[1], f"{by}, lanes side by side")
    if shared.bandwidth_gb_s:
        found.figure("shared.bandwidth_gb_s", rates[1], f"{by}, lanes side by side", bench.units * bench.mhz * 1e-3)
    number, width = banks(rates)
    for path, seen, has in (("shared.banks", number, shared.banks), ("shared.bank_bytes", width, shared.bank_bytes)):
        if seen != has:
            told = f"reads show {seen}" if seen else "no stride is clearly dearer"
            found.missing[path] = f"{told}; kept as {base.name} has it: {has}"


def _never(base: Device, mhz: float) -> Iterator[tuple[str, str]]:
    unknown = mhz == UNKNOWN_CLOCK_MHZ
    yield "clock_mhz", f"no kernel reads a clock; {'none is told: clocks are nanoseconds' if unknown else 'as told'}"
    yield "l1.capacity_bytes", f"no driver tells it; as {base.name} has it"
    yield "limits.registers_per_thread, limits.registers_per_unit", f"no driver tells them; as {base.name} has them"
    yield "costs", f"constants of the model: no single benchmark tells them; as {base.name} has them"
