"""What is legal in a spec and likely wrong: findings across fields, each with a severity and its reason.

What cannot be meant at all is refused when a spec is loaded (`spec_rules`).  One function a lint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from rollergen.hal.changes import figures, json_path
from rollergen.hal.findings import NOTE, SLACK, WARNING, Finding
from rollergen.hal.instruction_lints import INSTRUCTION_LINTS, architecture_of
from rollergen.hal.load import device_hash
from rollergen.hal.masked_stores import KEY
from rollergen.hal.spec import Device, MemoryLayer

_LEAST_LAYER, _LEAST_STORE = 1 << 10, 1 << 20
"""Bytes; of the devices described here, 16 KB and 304 MB are the smallest."""
_MOST_WORK_PER_BYTE = 1000
_LEAST_ACHIEVED, _MOST_ACHIEVED = 0.55, 0.95
_LEAST_LAUNCH_US, _MOST_LAUNCH_US = 0.5, 200
_FAR = 16
"""Times beyond all known ones.  Units that are mistaken make a factor of 1000."""
_WAITING = ("exposed_staging_clocks", "exposed_direct_clocks", "exposed_stream_clocks")


def lint(device: Device, siblings: Iterable[Device] = ()) -> tuple[Finding, ...]:
    """All findings, warnings first; `siblings`: devices whose figures this one should not repeat."""
    found, siblings = [finding for rule in LINTS for finding in rule(device)], tuple(siblings)
    found += figures_are_near_those_of_others(device, siblings)
    for sibling in siblings:
        found += [*name_of_another(device, sibling), *figures_of_another(device, sibling)]
    return tuple(sorted(found, key=lambda finding: finding.severity != WARNING))


def chip_gb_s(device: Device, layer: MemoryLayer) -> float:
    """What all units together read from the layer at most, decimal GB/s."""
    rate = layer.bytes_per_clock * device.units * device.clock_mhz * 1e-3
    return layer.bandwidth_nominal_gb_s or layer.bandwidth_gb_s or rate


def outer_layers_are_slower(device: Device) -> Iterator[Finding]:
    for number in range(2, len(device.layers)):
        inner, outer = device.layers[number - 1], device.layers[number]
        fast, slow = chip_gb_s(device, inner), chip_gb_s(device, outer)
        if slow > fast * SLACK:
            yield Finding(
                WARNING, f"memory_layers[{number}]", f"{outer.name} moves {slow:.5g} GB/s, {inner.name} {fast:.5g}",
                "what lies further out is slower, or no tile pays; are the units GB/s and bytes per clock of one unit?",
            )  # fmt: skip


def rates_agree(device: Device) -> Iterator[Finding]:
    for number, layer in enumerate(device.layers):
        rate = layer.bytes_per_clock * device.units * device.clock_mhz * 1e-3
        printed = max(layer.bandwidth_nominal_gb_s, layer.bandwidth_gb_s)
        if printed and rate > printed * SLACK:
            shared, chip = layer.scope == "device", "units x bytes per clock x clock is the rate of the chip"
            yield Finding(
                NOTE if shared else WARNING, f"memory_layers[{number}].bytes_per_clock",
                f"makes {rate:.5g} GB/s of {device.units} units at {device.clock_mhz:g} MHz, {printed:.5g} are stated",
                f"right if one unit alone reads more than its share of {layer.name}; else {chip}" if shared else chip,
            )  # fmt: skip


def latencies_rise_outward(device: Device) -> Iterator[Finding]:
    known = [(number, layer) for number, layer in enumerate(device.layers) if layer.latency_clocks]
    for (_, inner), (number, outer) in pairwise(known):
        if inner.latency_clocks > outer.latency_clocks:
            yield Finding(
                WARNING, f"memory_layers[{number}].latency_clocks",
                f"is {outer.latency_clocks:g}, that of {inner.name} {inner.latency_clocks:g}",
                "what lies further out takes longer; are both in clocks?",
            )  # fmt: skip


def latencies_are_given(device: Device) -> Iterator[Finding]:
    if not device.kind.lockstep:
        return
    nearer = [(n, layer) for n, layer in enumerate(device.layers) if n and layer is not device.backing]
    if any(layer.latency_clocks for _, layer in nearer):
        for number, layer in nearer:
            if not layer.latency_clocks:
                yield Finding(
                    NOTE, f"memory_layers[{number}].latency_clocks", f"is 0 or missing, that of {layer.name}",
                    "others are given; a reader takes it for a layer that answers at once",
                )  # fmt: skip
    for number, one in enumerate(device.instructions):
        if not one.latency_clocks:
            yield Finding(
                NOTE, f"instructions[{number}].latency_clocks", f"is 0, of {one.name}",
                "one that waits for another's result starts at once; known ones take 4 to 32 clocks",
            )  # fmt: skip


def waiting_costs(device: Device) -> Iterator[Finding]:
    if not device.kind.lockstep:
        return
    costs = dict(device.costs)
    if free := [f"costs.{name}" for name in _WAITING if not costs.get(name)]:
        beside = f", as {'is' if len(free) == 2 else 'are'} {' and '.join(free[1:])}" if free[1:] else ""
        yield Finding(
            NOTE, free[0], f"is 0{beside}: a block waits for no tile or load",
            "few threads then seem as good as many; GPUs have 250 (direct), 450 to 945 (staging, stream) clocks",
        )  # fmt: skip


def launches_take_microseconds(device: Device) -> Iterator[Finding]:
    if device.kind.lockstep and not _LEAST_LAUNCH_US <= device.launch_us <= _MOST_LAUNCH_US:
        reason = f"launches take {_LEAST_LAUNCH_US:g} to {_MOST_LAUNCH_US} us from start to start; is it ns or ms?"
        yield Finding(WARNING, "launch_us", f"is {device.launch_us:g}", reason)


def spilling_costs(device: Device) -> Iterator[Finding]:
    costs = dict(device.costs)
    if not any(costs.get(name) for name in ("spill_accesses", "spill_clocks")):
        yield Finding(
            NOTE, "costs.spill_accesses", "is 0, as is costs.spill_clocks: registers too many are free",
            "tiles that do not fit them seem the best; known GPUs have spill_accesses 2, processors spill_clocks 2",
        )  # fmt: skip


def registers_are_as_many_as_bytes(device: Device) -> Iterator[Finding]:
    held, wanted = device.layers[0].capacity_bytes, 4 * device.limits.registers_per_thread
    if held < wanted:
        yield Finding(
            WARNING, "limits.registers_per_thread", f"is {wanted // 4}, and {device.layers[0].name} has {held} bytes",
            "a register has 4 bytes, and the layer those of one thread",
        )  # fmt: skip


def threads_have_registers_left(device: Device) -> Iterator[Finding]:
    reserved, has = dict(device.costs).get("reserved_registers", 0), device.limits.registers_per_thread
    if 2 * reserved > has:
        yield Finding(
            WARNING, "costs.reserved_registers", f"is {reserved:g} of the {has} registers of a thread",
            "what is left holds no tile, and programs spill; 24 is for GPUs' 255",
        )  # fmt: skip


def functions_cost(device: Device) -> Iterator[Finding]:
    if not any(value for name, value in device.costs if name.startswith("op_")):
        yield Finding(
            NOTE, "costs.op_exp", "is 0, as are those of all functions: exponentials, divisions and roots are free",
            "softmax and activations then seem bound by memory; see op_exp, op_div, ... of a built-in device",
        )  # fmt: skip


def all_threads_have_registers(device: Device) -> Iterator[Finding]:
    limits = device.limits
    if limits.registers_per_unit < 2 * limits.registers_per_thread:
        return  # a processor that runs the threads of a block one after another
    needed = limits.threads_per_unit * limits.register_allocation
    if needed > limits.registers_per_unit:
        yield Finding(
            WARNING, "limits.registers_per_unit",
            f"is {limits.registers_per_unit}; {limits.threads_per_unit} threads of {limits.register_allocation} "
            f"registers, the fewest, need {needed}", "a unit could never hold as many threads as it may",
        )  # fmt: skip


def outer_layers_are_larger(device: Device) -> Iterator[Finding]:
    """Among layers of the whole device; the sum of all units' caches may exceed the next one."""
    shared = [(n, layer) for n, layer in enumerate(device.layers) if layer.scope == "device"]
    for (_, inner), (number, outer) in pairwise(shared):
        if inner.capacity_bytes >= outer.capacity_bytes:
            yield Finding(
                WARNING, f"memory_layers[{number}].capacity_bytes",
                f"is {outer.capacity_bytes}, that of {inner.name} {inner.capacity_bytes}",
                "a cache is smaller than what it caches; are both in bytes?",
            )  # fmt: skip


def transactions_divide(device: Device) -> Iterator[Finding]:
    for number in range(2, len(device.layers)):
        inner, outer = device.layers[number - 1].transaction_bytes, device.layers[number].transaction_bytes
        if max(inner, outer) % min(inner, outer):
            yield Finding(
                WARNING, f"memory_layers[{number}].transaction_bytes", f"is {outer}, that of the layer above {inner}",
                "lines consist of whole sectors",
            )  # fmt: skip


def figures_are_those_of_the_architecture(device: Device) -> Iterator[Finding]:
    found, its = architecture_of(device), figures(device)
    for path, value in found.figures.items():
        if path in its and its[path] != value:
            yield Finding(
                WARNING, json_path(device, path), f"is {its[path]:.12g}; every {found.name} has {value:.12g}",
                f"{found.source}; is the architecture that of this device?",
            )  # fmt: skip


def banks_make_the_rate(device: Device) -> Iterator[Finding]:
    """Where the architecture does not say otherwise: Turing's 32 banks of 4 bytes share 64 bytes a clock."""
    known = architecture_of(device).figures
    for number, layer in enumerate(device.layers):
        width = layer.banks * layer.bank_bytes
        if f"{layer.name}.bytes_per_clock" in known:
            continue
        if width and layer.bytes_per_clock and not width / SLACK <= layer.bytes_per_clock <= width * SLACK:
            yield Finding(
                NOTE, f"memory_layers[{number}].bytes_per_clock",
                f"is {layer.bytes_per_clock:g}; {layer.banks} banks of {layer.bank_bytes} bytes serve {width}",
                "every bank serves one word a clock",
            )  # fmt: skip


def the_clock_is_in_mhz(device: Device) -> Iterator[Finding]:
    if not 50 <= device.clock_mhz <= 10_000:
        reason = "clocks run at 50 to 10,000 MHz; is it GHz or kHz?"
        yield Finding(WARNING, "clock_mhz", f"is {device.clock_mhz:g}", reason)


def capacities_are_in_bytes(device: Device) -> Iterator[Finding]:
    for number, layer in enumerate(device.layers):
        least = _LEAST_STORE if layer is device.backing else _LEAST_LAYER
        if number and layer.capacity_bytes < least:
            yield Finding(
                WARNING, f"memory_layers[{number}].capacity_bytes",
                f"is {layer.capacity_bytes}: {layer.name} has less than {least} bytes",
                "capacities are in bytes; is it KB, MB or GB?",
            )  # fmt: skip


def the_backing_store_keeps_up(device: Device) -> Iterator[Finding]:
    rate = device.read_bytes_per_clock(device.backing)
    plain = [i for i in device.instructions if i.k == 1 and i.dtype == i.accumulator_dtype == "float32"]
    work = max((2 * i.m * i.n * i.per_clock for i in plain), default=0.0)
    if rate and work > _MOST_WORK_PER_BYTE * rate:
        chip = chip_gb_s(device, device.backing)
        yield Finding(
            WARNING, f"memory_layers[{len(device.layers) - 1}].bandwidth_gb_s",
            f"makes {device.backing.name} bring a byte for every {work / rate:.3g} float32 operations, {chip:.5g} GB/s",
            f"known devices have 1 to 100, none {_MOST_WORK_PER_BYTE}; is it TB/s?",
        )  # fmt: skip


def achieved_is_near_nominal(device: Device) -> Iterator[Finding]:
    for number, layer in enumerate(device.layers):
        share = layer.bandwidth_gb_s / layer.bandwidth_nominal_gb_s if layer.bandwidth_nominal_gb_s else 0.0
        most = _MOST_ACHIEVED if layer is device.backing and device.kind.machine is None else 1.0
        if share and not _LEAST_ACHIEVED <= share <= most:
            yield Finding(
                NOTE, f"memory_layers[{number}].bandwidth_gb_s", f"is {share:.0%} of the nominal one",
                "known devices achieve 60 to 92 %",
            )  # fmt: skip


def figures_are_known(device: Device) -> Iterator[Finding]:
    assumed = [path for path, (kind, _) in device.provenance if kind == "assumed" and not path.startswith("costs.")]
    if assumed:
        beside = f" beside {', '.join(assumed[1:4])}" if assumed[1:] else ""
        more = f" and {len(assumed) - 4} more" if assumed[4:] else ""
        yield Finding(NOTE, assumed[0], f"is assumed{beside}{more}", "measure them; rollergen devices show tells which")


def wide_vectors_are_masked(device: Device) -> Iterator[Finding]:
    for number, target in enumerate(device.targets):
        dialect = dict(target.dialect)
        if "min_vector_width(512)" in dialect.get("kernel_attribute", "") and KEY not in dialect:
            yield Finding(
                WARNING, f"targets[{number}].dialect", f"asks for vectors of 512 bits and has no {KEY}",
                f'AVX-512 stores chosen lanes, which "{KEY}": "512" says; complete anew what was completed earlier',
            )  # fmt: skip


LINTS: tuple[Callable[[Device], Iterator[Finding]], ...] = (
    *INSTRUCTION_LINTS,
    outer_layers_are_slower,
    rates_agree,
    latencies_rise_outward,
    latencies_are_given,
    waiting_costs,
    launches_take_microseconds,
    spilling_costs,
    registers_are_as_many_as_bytes,
    threads_have_registers_left,
    functions_cost,
    all_threads_have_registers,
    outer_layers_are_larger,
    transactions_divide,
    figures_are_those_of_the_architecture,
    banks_make_the_rate,
    the_clock_is_in_mhz,
    capacities_are_in_bytes,
    the_backing_store_keeps_up,
    achieved_is_near_nominal,
    figures_are_known,
    wide_vectors_are_masked,
)


def name_of_another(device: Device, sibling: Device) -> Iterator[Finding]:
    """A name that asks for another device wherever names are asked for."""
    if device.name == sibling.name and device_hash(device) != device_hash(sibling):
        yield Finding(
            NOTE, "name", f"is {device.name}, which is a built-in device with other figures",
            f"device={device.name!r} means that one, and results of both would bear one name; call this one otherwise",
        )  # fmt: skip


_MEASURABLE = ("bandwidth_gb_s", "latency_clocks")


def figures_of_another(device: Device, sibling: Device) -> Iterator[Finding]:
    """Figures that only a measurement gives, and that equal those of a device with another chip.

    Admitted copies (assumed, derived) are not reported, here or there.
    """
    if device.name == sibling.name or {t.arch for t in device.targets} & {t.arch for t in sibling.targets} - {""}:
        return
    kinds, its = ({path: kind for path, (kind, _) in one.provenance} for one in (device, sibling))
    others = {layer.name: (n, layer) for n, layer in enumerate(sibling.layers)}
    for number, layer in enumerate(device.layers):
        for field in _MEASURABLE:
            value, path = getattr(layer, field), f"memory_layers[{number}].{field}"
            at, other = others.get(layer.name, (0, None))
            admitted = {kinds.get(path), its.get(f"memory_layers[{at}].{field}")} & {"assumed", "derived"}
            if value and other and value == getattr(other, field) and not admitted:
                yield Finding(
                    NOTE, path, f"is {value:g}, as that of {sibling.name}",
                    "two devices seldom measure the same: where it was carried over, call it assumed",
                )  # fmt: skip


def figures_are_near_those_of_others(device: Device, siblings: Iterable[Device]) -> Iterator[Finding]:
    """Costs, latencies and sizes that no rule can hold against others of the device, of threads in lockstep."""
    known: dict[str, list[float]] = {}
    for sibling in siblings:
        for _, what, value in _comparable(sibling):
            known.setdefault(what, []).append(value)
    for path, what, value in _comparable(device):
        others = known.get(what, [value])
        if not min(others) / _FAR <= value <= max(others) * _FAR:
            said = f"is {value:.12g}; {what} is {min(others):.12g} to {max(others):.12g} in the devices known"
            yield Finding(NOTE, path, said, "is it in its unit?")


def _comparable(device: Device) -> Iterator[tuple[str, str, float]]:
    """Of each such figure that is given its path, what it is in any device, and its value."""
    if not device.kind.lockstep:
        return
    found = [(f"costs.{name}", name, value) for name, value in device.costs]
    for number, one in enumerate(device.instructions):
        found.append((f"instructions[{number}].latency_clocks", "an instruction's latency", one.latency_clocks))
    for number, layer in enumerate(device.layers[1:], 1):
        what = "the backing store" if layer is device.backing else f"a layer of scope {layer.scope}"
        found.append((f"memory_layers[{number}].latency_clocks", f"the latency of {what}", layer.latency_clocks))
        found.append((f"memory_layers[{number}].capacity_bytes", f"the capacity of {what}", layer.capacity_bytes))
    yield from (one for one in found if one[2])
