"""Completes the `cpu` spec from the machine it runs on: cores, lanes, caches, probed rates, code dialect.

What the operating system tells is read (`host_facts`); what only a run can tell is probed once with short
OpenCL kernels and kept (`host_probe`).  Without an OpenCL runtime the probed figures are derived from the
vector width (kind derived), so that source and predictions exist all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rollergen.hal import masked_stores
from rollergen.hal.dot_products import OF_X86, SUMMED
from rollergen.hal.dtypes import sum_of
from rollergen.hal.files.stamp import Stamp, stamp
from rollergen.hal.probes.host_facts import (
    CacheLevel,
    cache_levels,
    cores,
    cpu_model,
    highest_clock_mhz,
    memory_bytes,
    vector_registers,
    widest_bits,
)
from rollergen.hal.probes.host_probe import Probe, kept_in, probe
from rollergen.hal.runtimes.remembered import Host, remembered
from rollergen.hal.spec import Device, Instruction, MemoryLayer, Target

__all__ = ["HOST", "complete", "completed_on", "cpu_model"]

HOST = "cpu"
"""Name of the one device whose spec stands for the machine that reads it."""
_COMPLETED = "completed"
_PAGE_BYTES = 4096
_NOT_PROBED = "no OpenCL runtime to measure with: from the vector width"

_COMPLETED_SPECS: dict[tuple[Device, int, Host | None, Stamp | None], Device] = {}
"""The last one, by what it was completed from."""

Origins = dict[str, tuple[str, str]]


def complete(device: Device) -> Device:
    """`device` with everything about this host filled in.

    Other devices, and a spec that has been completed (here or elsewhere), come back unchanged.  The first
    call on a machine takes about 2 seconds; what it measured is kept in the user's cache directory.  While the file
    there stays as it is, a process looks once.
    """
    if device.name != HOST or completed_on(device) is not None:
        return device
    told = device, cores(), remembered(), stamp(kept_in())
    if told not in _COMPLETED_SPECS:
        caches = cache_levels()
        found = completed(device, caches, probe(caches))
        if told[-1] is None:
            return found
        _COMPLETED_SPECS.clear()
        _COMPLETED_SPECS[told] = found
    return _COMPLETED_SPECS[told]


def completed_on(device: Device) -> str | None:
    """Model of the processor that the spec was completed on; None for one that describes no host."""
    return dict(device.targets[0].dialect).get(_COMPLETED)


def completed(device: Device, caches: tuple[CacheLevel, ...], found: Probe | None) -> Device:
    """`device` on a host with these caches and figures: the same ones give the same spec."""
    lanes = found.lanes if found else widest_bits() // 32
    registers = vector_registers()
    clock = found.clock_mhz if found else highest_clock_mhz() or device.clock_mhz
    per_clock = _multiply_adds_per_clock(found) if found else 2.0
    instructions = (*(_instruction(i, lanes, per_clock) for i in device.instructions), *_dot_products(found))
    registers_layer = replace(device.layers[0], capacity_bytes=registers * lanes * 4, transaction_bytes=lanes * 4)
    middle = [_cache_layer(device, cache, lanes, found) for cache in caches] or list(device.layers[1:-1])
    layers = (registers_layer, *middle, _backing_layer(device, found))
    return replace(
        device,
        title=cpu_model(),
        units=found.units if found else cores(),
        execution_width=lanes,
        clock_mhz=clock,
        layers=layers,
        instructions=instructions,
        limits=replace(device.limits, registers_per_thread=registers, registers_per_unit=registers),
        launch_us=found.launch_us if found else device.launch_us,
        wake_us=found.wake_us if found else device.wake_us,
        targets=(_target(device.targets[0], lanes, found),),
        provenance=tuple(sorted({**_kept(device), **dict(_origins(device, layers, found, instructions))}.items())),
    )


def _multiply_adds_per_clock(found: Probe) -> float:
    """Vector multiply-adds that start in one clock: as many as the pipes, a whole number."""
    return float(max(1, round(_measured_per_clock(found))))


def _measured_per_clock(found: Probe) -> float:
    return found.peak_gflop_s * 1e3 / (2 * found.lanes * found.clock_mhz)


def _target(target: Target, lanes: int, found: Probe | None) -> Target:
    attribute = found.attribute if found else f"__attribute__((min_vector_width({lanes * 32})))"
    dialect = {_COMPLETED: cpu_model(), "vector_width": str(lanes)}
    if attribute:
        dialect["kernel_attribute"] = attribute
        if str(lanes * 32) in masked_stores.BITS:  # without the attribute PoCL compiles for narrower vectors
            dialect[masked_stores.KEY] = str(lanes * 32)
    return replace(target, dialect=tuple(sorted(dialect.items())))


def _instruction(instruction: Instruction, lanes: int, per_clock: float) -> Instruction:
    """Vector entries take the host's width (in elements of their dtype); scalar ones stay."""
    if instruction.lanes == 1:
        return replace(instruction, per_clock=per_clock)
    width = lanes // 2 if instruction.dtype == "float64" else lanes
    return replace(instruction, n=width, lanes=width, per_clock=per_clock)


def _dot_products(found: Probe | None) -> tuple[Instruction, ...]:
    """The instructions for dot products, where they run at an instruction's rate (as many in its place reach an
    eighth of it): beside multiply-adds, which the same noise slows down.  A pipe starts one of them in each clock; of
    two instructions that share pipes, half as many."""
    if found is None:
        return ()
    made = []
    for name, one in OF_X86.items():
        share = found.dot_products_per_clock.get(name, 0.0) / _measured_per_clock(found)
        per_clock = round(share * _multiply_adds_per_clock(found) * one.instructions) / one.instructions
        if per_clock >= 1:
            made.append(Instruction(name, one.dtype, sum_of(one.dtype), 1, found.lanes, SUMMED[one.dtype], found.lanes,
                                    float(per_clock), one.latency_clocks, issued=one.instructions))  # fmt: skip
    return tuple(made)


def _cache_layer(device: Device, cache: CacheLevel, lanes: int, found: Probe | None) -> MemoryLayer:
    """A cache beyond the first is indexed by physical pages: only the sets within a page are known."""
    base = _base_layer(device, cache.name)
    reads, writes, chip = base.bytes_per_clock, base.write_bytes_per_clock, base.bandwidth_gb_s
    if cache.level == 1:
        reads, writes = 2.0 * lanes * 4, 1.0 * lanes * 4
    if found:
        reads, writes = found.read_bytes_per_clock[cache.name], found.write_bytes_per_clock[cache.name]
        chip = found.read_gb_s[cache.name] if cache.level >= 3 else 0.0
    if found and cache.level == 1:
        reads, writes = _whole_vectors(reads, lanes), _whole_vectors(writes, lanes)
    lines = cache.capacity_bytes // cache.line_bytes
    sets = lines // cache.ways if cache.level == 1 else _PAGE_BYTES // cache.line_bytes
    exact = cache.level <= 2 and sets * (lines // sets) * cache.line_bytes == cache.capacity_bytes
    return replace(
        base,
        name=cache.name,
        scope="device" if cache.level >= 3 else "unit",
        capacity_bytes=cache.capacity_bytes,
        transaction_bytes=cache.line_bytes,
        bytes_per_clock=reads,
        write_bytes_per_clock=writes,
        bandwidth_gb_s=chip,
        sets=sets if exact else 0,
        ways=lines // sets if exact else 0,
    )


def _whole_vectors(bytes_per_clock: float, lanes: int) -> float:
    """A port of the first cache moves a whole vector in a clock; a quarter of one more shows another port, for
    entering and leaving the measuring loop costs the rest."""
    return max(1, int(bytes_per_clock / (lanes * 4) + 0.75)) * lanes * 4.0


def _base_layer(device: Device, name: str) -> MemoryLayer:
    return next((layer for layer in device.layers if layer.name == name), device.layers[-2])


def _backing_layer(device: Device, found: Probe | None) -> MemoryLayer:
    base = replace(device.layers[-1], capacity_bytes=memory_bytes() or device.layers[-1].capacity_bytes)
    if found is None:
        return base
    return replace(
        base,
        bytes_per_clock=found.read_bytes_per_clock[base.name],
        write_bytes_per_clock=found.write_bytes_per_clock[base.name],
        bandwidth_gb_s=found.read_gb_s[base.name],
        bandwidth_nominal_gb_s=0.0,
    )


def _kept(device: Device) -> Origins:
    """Origins of what stays as the spec has it; translation buffers that were measured elsewhere are a guess here."""
    moved = ("units", "execution_width", "clock_mhz", "memory_layers", "instructions", "launch_us", "limits.registers")
    stay = {path: origin for path, origin in device.provenance if not path.startswith(moved)}
    return {p: ("assumed", o[1]) if p.startswith("tlbs") and o[0] == "measured" else o for p, o in stay.items()}


def _origins(
    device: Device, layers: tuple[MemoryLayer, ...], found: Probe | None, instructions: tuple[Instruction, ...]
) -> Iterator[tuple[str, tuple[str, str]]]:
    system = ("measured", "what the operating system says about this host")
    figure = lambda name: ("measured", found.origin(name)) if found else ("derived", _NOT_PROBED)
    yield "units", system
    yield "execution_width", figure("peak")
    yield "clock_mhz", figure("clock")
    yield "launch_us", figure("launch") if found else dict(device.provenance).get("launch_us", figure("launch"))
    if found and found.wake_us:
        yield "wake_us", figure("wake")
    yield "limits.registers_per_thread", system
    yield "limits.registers_per_unit", system
    for number, layer in enumerate(layers):
        where = f"memory_layers[{number}]"
        yield f"{where}.capacity_bytes", system
        yield f"{where}.transaction_bytes", system
        if number:
            yield f"{where}.bytes_per_clock", figure(layer.name)
            yield f"{where}.write_bytes_per_clock", figure(layer.name)
        if layer.bandwidth_gb_s:
            yield f"{where}.bandwidth_gb_s", figure(layer.name)
        if layer.sets:
            yield f"{where}.sets", system
            yield f"{where}.ways", system
    for number, instruction in enumerate(instructions):
        told = ("m", "n", "k", "lanes", "per_clock") if instruction.is_dot_product else ("n", "lanes", "per_clock")
        for name in told:
            yield f"instructions[{number}].{name}", figure(instruction.name if instruction.is_dot_product else "peak")
        latency = f"instructions[{number}].latency_clocks"
        if latency in dict(device.provenance):
            yield latency, dict(device.provenance)[latency]
