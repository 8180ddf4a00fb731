"""Fills a spec from an OpenCL device that is present and has memory of its own: what its driver tells, what
micro-benchmarks measure with their spread, and what not and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from rollergen.hal.changes import paths
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.probes.cuda_microbench import banks
from rollergen.hal.probes.device_probe import Measured, ProbedDevice, machine_is_busy
from rollergen.hal.probes.meters import USUAL, Meter, Patience, Settled, in_turns
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.probes.opencl_bench import WIDTHS, OpenCLBench, Sizes, widest
from rollergen.hal.probes.opencl_facts import UNKNOWN_CLOCK_MHZ, base_of, described, driver_figures
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import NAME, Present, chosen
from rollergen.hal.runtimes.opencl_platforms import present_devices
from rollergen.hal.spec import Device

MOST_THREADS = 256
LEAST_MEMORY_BYTES = 1 << 26
DRAM_BYTES, CHASED_BYTES = 1 << 27, 1 << 29
GPU_MEMORY_TIMES = 4
"""So many times as much memory is read of a GPU: an MI300X keeps 256 MiB in the last of its caches (its spec has the
source), and what is read again and again lies in no cache of half the size."""
MOST_L2_BYTES = 1 << 21
"""Of a cache that several share, so few that the others leave them there: a chase through 2 MiB of 32 took 38 clocks in
each of two runs, through 1 MiB, half in a core's own, 25, through 8 MiB 152 and 331."""
CACHED = ("l1", "l2", "l3", "dram")
Key = tuple[str, str, int]
"""What a meter reads: "peak" of an instruction, "read" of a layer by a width, "latency" of a layer, "shared" by a
stride, "write", "launch", "copy" "to" the device or "back"."""


@dataclass(slots=True)
class _Findings:
    """``how``: what each value was found by, "told" where the driver says it."""

    values: dict[str, float] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def figure(self, path: str, figure: Figure, source: str, scale: float = 1.0) -> None:
        short = float(f"{figure.value * scale:.4g}")
        self.values[path], self.how[path] = short, f"{source}, the median {figure.spread:.0%} off"
        self.measured[path] = Measured(path, short, figure.spread, short)


def probed_facts(which: str) -> Present:
    """The OpenCL device that "PLATFORM:DEVICE" means, after "opencl:" or alone; "opencl" is the best that is no CPU, as
    it is for `build`.  RuntimeUnavailableError where there is none."""
    place = "" if which == NAME else which.removeprefix(f"{NAME}:")
    return chosen(place, [facts for facts, _ in present_devices()])


def probe_device(facts: Present, name: str, sizes: Sizes | None = None, patience: Patience = USUAL) -> ProbedDevice:
    """A present OpenCL device as a spec called `name`; takes a minute, and one more on a busy machine.

    Raises BuildError where it compiles no kernel, and RuntimeUnavailableError for a rate that does not settle.
    """
    runtime = BufferRuntime(facts, dict(present_devices())[facts])
    base = base_of(runtime)
    found = _Findings()
    known = set(paths(base))
    found.values = {path: value for path, value in driver_figures(runtime, base) if path in known}
    found.how = dict.fromkeys(found.values, "told")
    units, mhz = int(found.values["units"]), float(found.values["clock_mhz"])
    threads = _power(min(MOST_THREADS, found.values["limits.threads_per_block"]))
    bench = OpenCLBench(runtime, units, mhz, threads, sizes or _sizes(found, base, facts))
    settled = in_turns(dict(_meters(found, base, bench)), patience)
    _keep(found, base, bench, settled)
    device = described(runtime, base, name, found.values, found.how)
    missing = (*found.missing.items(), *_never(base, mhz))
    return ProbedDevice(device, tuple(found.measured.values()), missing, ())


def _sizes(found: _Findings, base: Device, facts: Present) -> Sizes:
    """A quarter of the cache that the driver tells, else `base`, `MOST_L2_BYTES` at most, and of a third level that
    `base` has; no more than an eighth of the memory.  Of memory so much that no cache holds it: the largest one is not
    what drivers call the cache (Intel's tells its second level)."""
    memory = found.values["dram.capacity_bytes"]
    if memory < LEAST_MEMORY_BYTES:
        raise RuntimeUnavailableError(f"{facts} has {memory:.0f} bytes; a probe needs {LEAST_MEMORY_BYTES} at least")
    times = 1 if "CPU" in facts.kinds else GPU_MEMORY_TIMES
    cache = found.values.get("l2.capacity_bytes", base.layer("l2").capacity_bytes)
    dram, chased = (_power(min(memory / 8, times * most)) for most in (DRAM_BYTES, CHASED_BYTES))
    third = next((one.capacity_bytes for one in base.layers if one.name == "l3"), cache)
    return Sizes(l2=_power(min(cache / 4, MOST_L2_BYTES)), l3=_power(third / 4), dram=dram, chased=chased)


def _power(most: float) -> int:
    """The largest power of two that is no more."""
    return 1 << int(most).bit_length() - 1


def _cached(base: Device) -> list[str]:
    """Caches, and the memory behind them."""
    return [layer.name for layer in base.layers if layer.name in CACHED]


def _meters(found: _Findings, base: Device, bench: OpenCLBench) -> Iterator[tuple[Key, Meter]]:
    """What is read, and, as missing, what the device has not."""
    for one in base.instructions:
        try:
            yield ("peak", one.name, 0), bench.per_clock(one)
        except BuildError as error:
            found.missing[f"{one.name}.per_clock"] = str(error).splitlines()[0][:200]
    for layer in _cached(base):
        for width, meter in bench.reading_gb_s(layer).items():
            yield ("read", layer, width), meter
        yield ("latency", layer, 0), bench.latency_clocks(layer)
    if base.backing.write_bytes_per_clock:
        yield ("write", "dram", 0), bench.writing_gb_s()
    for stride, meter in bench.shared_bytes_per_clock().items():
        yield ("shared", "shared", stride), meter
    yield ("launch", "", 0), bench.launch_us()
    for way, meter in bench.copies_gb_s().items():
        yield ("copy", way, 0), meter


def _keep(found: _Findings, base: Device, bench: OpenCLBench, settled: Settled[Key]) -> None:
    """What was read, as figures of the spec.  RuntimeUnavailableError for a rate that has not settled."""
    by, figures = bench.runtime.description, settled.figures
    for what, name, _ in (key for key in figures if key[0] == "peak"):
        found.figure(f"{name}.per_clock", _steady(settled, (what, name, 0)), f"{by}, chains of it in registers")
    for layer in _cached(base):
        rates = {width: figures["read", layer, width] for width in WIDTHS}
        widths = ", ".join(f"{4 * width} bytes {rate.value:.4g}" for width, rate in rates.items())
        rate = _steady(settled, ("read", layer, widest(rates)))
        _bandwidth(found, base, bench, layer, rate, f"{by}, all units reading; GB/s by loads of {widths}")
        latency = "latency", layer, 0
        _keep_steady(found, settled, latency, f"{layer}.latency_clocks", f"{by}, random pointer chase")
    if ("write", "dram", 0) in figures:
        rate = _steady(settled, ("write", "dram", 0))
        _per_clock(found, bench, "dram.write_bytes_per_clock", rate, f"{by}, all units writing")
    _shared(found, base, bench, settled)
    found.figure("launch_us", _steady(settled, ("launch", "", 0)), f"{by}, empty kernels in a row")
    for way in ("to", "back"):
        source = f"{by}, of arrays in the host's memory"
        _keep_steady(found, settled, ("copy", way, 0), f"copy_{way}_gb_s", source)


def _keep_steady(found: _Findings, settled: Settled[Key], key: Key, path: str, source: str) -> None:
    """Keeps a figure that a spec can do without; one that has not settled is listed as not measured."""
    if key in settled.unsettled:
        found.missing[path] = f"not steady: {_apart(settled, key)}"
    else:
        found.figure(path, settled.figures[key], source)


def _steady(settled: Settled[Key], key: Key) -> Figure:
    if key in settled.unsettled:
        raise RuntimeUnavailableError(
            f"the {_in_words(key)} does not settle: {_apart(settled, key)}; {machine_is_busy()}"
        )
    figure = settled.figures[key]
    if key[0] == "peak" and key in settled.disturbed:
        raise RuntimeUnavailableError(
            f"half of the readings of the {_in_words(key)} are {figure.spread:.0%} off the best; {machine_is_busy()}"
        )
    return figure


def _in_words(key: Key) -> str:
    what, name, number = key
    return {
        "peak": f"rate of {name}", "read": f"rate of reads of {4 * number} bytes from {name}",
        "write": f"rate of writes to {name}", "shared": "rate of reads from shared memory",
        "launch": "time of a launch",
    }[what]  # fmt: skip


def _apart(settled: Settled[Key], key: Key) -> str:
    return f"what the first and the second half of its rounds reached lies {settled.unsettled[key]:.0%} apart"


def _bandwidth(found: _Findings, base: Device, bench: OpenCLBench, layer: str, rate: Figure, source: str) -> None:
    own = base.layer(layer)
    if own.bandwidth_gb_s:
        found.figure(f"{layer}.bandwidth_gb_s", rate, source)
    if own.bytes_per_clock:
        _per_clock(found, bench, f"{layer}.bytes_per_clock", rate, source)


def _per_clock(found: _Findings, bench: OpenCLBench, path: str, gb_s: Figure, source: str) -> None:
    found.figure(path, gb_s, source, 1e3 / (bench.units * bench.mhz))


def _shared(found: _Findings, base: Device, bench: OpenCLBench, settled: Settled[Key]) -> None:
    """Banks are kept as the spec has them where a run shows none, or others."""
    rates = {stride: figure for (what, _, stride), figure in settled.figures.items() if what == "shared"}
    rate, shared = _steady(settled, ("shared", "shared", 1)), base.layer("shared")
    by = f"{bench.runtime.description}, lanes side by side"
    found.figure("shared.bytes_per_clock", rate, by)
    if shared.bandwidth_gb_s:
        found.figure("shared.bandwidth_gb_s", rate, by, bench.units * bench.mhz * 1e-3)
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
