"""Fills a spec from the CUDA GPU that is present, through CuPy: what was measured, with its spread, what not and why.

The spec begins as that of the same card where there is one, else as the nearest by compute capability; what is neither
measured nor told by the driver is then called assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from rollergen.hal.changes import changed, json_path, paths
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.load import device_names, load_device
from rollergen.hal.probes.cuda_microbench import CudaBench, Effort, WorkingSets, banks, sector_bytes
from rollergen.hal.probes.device_probe import UNSTEADY, Measured, ProbedDevice
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.runtimes.cuda_devices import capability, cuda_target, matches
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime, Gpu
from rollergen.hal.spec import Device, MemoryLayer, Target

_TOLD = {
    "units": "multiProcessorCount",
    "limits.threads_per_block": "maxThreadsPerBlock",
    "limits.threads_per_unit": "maxThreadsPerMultiProcessor",
    "limits.blocks_per_unit": "maxBlocksPerMultiProcessor",
    "limits.registers_per_unit": "regsPerMultiprocessor",
    "limits.block_memory_bytes": "sharedMemPerBlockOptin",
    "shared.capacity_bytes": "sharedMemPerMultiprocessor",
    "shared.block_reserved_bytes": "reservedSharedMemPerBlock",
    "l2.capacity_bytes": "l2CacheSize",
    "dram.capacity_bytes": "totalGlobalMem",
}
"""The driver's name (cudaDeviceProp) of what it tells by itself."""
LAYERS = ("registers", "shared", "l1", "l2", "dram")
THOROUGH = Effort()
_FIRST_CACHE_BYTES, _SHARED_BYTES = 8 << 10, 16 << 10
_DRAM_SHARE = 8


@dataclass(slots=True)
class _Findings:
    """What has been found so far: values by path with what they were measured by, what was not, and why."""

    values: dict[str, float] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    def told(self, path: str, value: float, source: str) -> None:
        self.values[path], self.sources[path] = value, source

    def figure(self, path: str, value: float, figure: Figure, source: str) -> None:
        short = float(f"{value:.4g}")
        self.told(path, short, f"{source}, the median {figure.spread:.0%} off")
        self.measured.append(Measured(path, short, figure.spread, short))


def probe_cuda(name: str, effort: Effort = THOROUGH) -> ProbedDevice:
    """The caller's current GPU as a spec called `name`; takes about a minute.

    Raises RuntimeUnavailableError where CuPy, a driver or a GPU is missing, or the micro-benchmarks do not compile.
    """
    runtime = CudaRuntime()
    gpu, base = runtime.gpu, base_of(runtime.gpu)
    found = _Findings()
    _tell(found, base, runtime)
    units = int(found.values.get("units", base.units))
    try:
        bench = CudaBench(runtime, units, _working_sets(base, gpu), effort)
    except BuildError as error:
        raise RuntimeUnavailableError(f"the micro-benchmarks do not compile for {gpu}: {error}") from None
    state = _measure(found, base, bench, runtime.description)
    return ProbedDevice(_assembled(base, gpu, name, found), tuple(found.measured), tuple(found.missing), state)


def base_of(gpu: Gpu) -> Device:
    """The built-in spec of the card itself, else the one of the highest capability that it has too."""
    known = [device for device in map(load_device, device_names()) if cuda_target(device) and _named(device)]
    same = [device for device in known if matches(device, gpu)]
    below = [device for device in known if capability(device) <= gpu.capability]
    if not same and not below:
        raise RuntimeUnavailableError(f"{gpu} is older than every CUDA spec; write one with rollergen devices new")
    return same[0] if same else max(below, key=lambda device: (capability(device), device.name))


def _named(device: Device) -> bool:
    return tuple(layer.name for layer in device.layers) == LAYERS


def _working_sets(base: Device, gpu: Gpu) -> WorkingSets:
    """In each layer by far: an eighth of the L2 past the first cache, memory four times the L2."""
    dram = min(max(4 * gpu.l2_bytes, 1 << 28), gpu.memory_bytes // _DRAM_SHARE)
    shared = min(_SHARED_BYTES, base.limits.block_memory_bytes)
    return WorkingSets(shared, _FIRST_CACHE_BYTES, max(1 << 16, gpu.l2_bytes // 4), max(1 << 16, dram))


def _tell(found: _Findings, base: Device, runtime: CudaRuntime) -> None:
    properties = runtime.cupy.cuda.runtime.getDeviceProperties(runtime.gpu.number)
    for path, key in _TOLD.items():
        if properties.get(key):
            found.told(path, int(properties[key]), f"{runtime.description} says {key}")
        elif key not in properties:
            found.missing.append((path, f"the driver says no {key}; as {base.name} has it"))


def _measure(found: _Findings, base: Device, bench: CudaBench, by: str) -> tuple[tuple[str, str], ...]:
    before = bench.clock_mhz()
    found.figure("clock_mhz", before.value, before, f"{by}, ticks of a chain with all units at work")
    mhz = before.value
    _peaks(found, base, bench, mhz, by)
    _bandwidths(found, base, bench, mhz, by)
    _latencies(found, bench, by)
    _shapes(found, base, bench, by)
    launch = bench.launch_us()
    found.figure("launch_us", launch.value, launch, f"{by}, empty kernels in a row")
    found.missing += list(_never(base))
    after = bench.clock_mhz()
    clocks = (("clock before", f"{before.value:.4g} MHz"), ("clock after", f"{after.value:.4g} MHz"))
    return (*clocks, ("temperature", "not readable through CuPy"))


def _peaks(found: _Findings, base: Device, bench: CudaBench, mhz: float, by: str) -> None:
    for one in base.instructions:
        try:
            rate = bench.per_clock(one, mhz)
        except BuildError as error:
            found.missing.append((f"{one.name}.per_clock", str(error).splitlines()[0][:200]))
            continue
        found.figure(f"{one.name}.per_clock", rate.value, rate, f"{by}, chains of it in registers")


def _bandwidths(found: _Findings, base: Device, bench: CudaBench, mhz: float, by: str) -> None:
    each = bench.units * mhz * 1e-3  # GB/s of one byte a clock and unit
    for layer in ("l1", "l2", "dram"):
        rate = bench.reading_gb_s(layer)
        own = base.layer(layer)
        if own.bandwidth_gb_s:
            found.figure(f"{layer}.bandwidth_gb_s", rate.value, rate, f"{by}, all units reading")
        if own.bytes_per_clock:
            found.figure(f"{layer}.bytes_per_clock", rate.value / each, rate, f"{by}, all units reading")
    writing = bench.writing_gb_s()
    if base.backing.write_bytes_per_clock:
        found.figure("dram.write_bytes_per_clock", writing.value / each, writing, f"{by}, all units writing")


def _latencies(found: _Findings, bench: CudaBench, by: str) -> None:
    for layer in LAYERS[1:]:
        clocks, path = bench.latency_clocks(layer), f"{layer}.latency_clocks"
        if clocks.spread > UNSTEADY:
            found.missing.append((path, f"not steady: the median is {clocks.spread:.0%} off the best"))
        else:
            found.figure(path, clocks.value, clocks, f"{by}, random pointer chase")


def _shapes(found: _Findings, base: Device, bench: CudaBench, by: str) -> None:
    """Banks and sectors: kept as the spec has them where a run shows none, or others."""
    rates = bench.shared_bytes_per_clock()
    shared, spread = base.layer("shared"), max(one.spread for one in rates.values())
    found.figure("shared.bytes_per_clock", rates[1].value, rates[1], f"{by}, eight warps, lanes side by side")
    number, width = banks(rates)
    for path, seen, has in (
        ("shared.banks", number, shared.banks), ("shared.bank_bytes", width, shared.bank_bytes),
        ("dram.transaction_bytes", *_sectors(bench, base.backing)),
    ):  # fmt: skip
        if seen == has:
            found.figure(path, has, Figure(has, spread), f"{by}, strided reads")
        else:
            told = f"reads show {seen}" if seen else "no stride is clearly dearer"
            found.missing.append((path, f"{told}; kept as {base.name} has it: {has}"))


def _sectors(bench: CudaBench, backing: MemoryLayer) -> tuple[int, int]:
    return sector_bytes(bench.seconds_apart()), backing.transaction_bytes


def _never(base: Device) -> Iterator[tuple[str, str]]:
    yield "l1.capacity_bytes", f"no driver tells it; as {base.name} has it"
    yield "instructions.latency_clocks", "the chains for the peak hide it"
    yield "limits.registers_per_thread, limits.register_allocation", f"of the architecture; as {base.name} has them"
    yield "costs", f"constants of the model: no single benchmark tells them; as {base.name} has them"


def _assembled(base: Device, gpu: Gpu, name: str, found: _Findings) -> Device:
    known = {path: value for path, value in found.values.items() if path in set(paths(base))}
    whole = {path: int(value) if _counts(path) else value for path, value in known.items()}
    device = changed(base, whole)
    own = matches(base, gpu)
    kept: Callable[[tuple[str, str]], tuple[str, str]] = lambda origin: (
        origin if own else ("assumed", f"as {base.name} has it")
    )
    origins = {path: kept(origin) for path, origin in device.provenance}
    origins |= {json_path(device, path): ("measured", found.sources[path]) for path in known}
    if not own:
        device = replace(device, instructions=tuple(replace(i, peak_dense_tflop_s=0.0) for i in device.instructions))
        origins = {path: origin for path, origin in origins.items() if not path.endswith("peak_dense_tflop_s")}
    written = cuda_target(device)
    targets = tuple(_target(target, gpu) if target is written else target for target in device.targets)
    return replace(
        device, name=name, title=gpu.name, verified=(), targets=targets, provenance=tuple(sorted(origins.items()))
    )  # fmt: skip


def _counts(path: str) -> bool:
    return path in _TOLD or path.endswith(("banks", "bank_bytes", "transaction_bytes"))


def _target(target: Target, gpu: Gpu) -> Target:
    return replace(target, arch=gpu.arch, dialect=tuple(sorted({**dict(target.dialect), "gpu": gpu.name}.items())))
