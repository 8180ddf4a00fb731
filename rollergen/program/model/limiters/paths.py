"""Load/store paths: data in wavefronts or bytes, and ports."""

from __future__ import annotations

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model.access import Access
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import gathered_accesses
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, is_nothing, most
from rollergen.program.model.services import path_layer
from rollergen.program.model.work import Work


def path_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> list[tuple[str, Number]]:
    """Clocks of each load/store path for one block: data in wavefronts or bytes, and ports.

    Banked layers are one SRAM with one path; any other layer has its own.  What is gathered is not among them
    (`gathering_clocks`).
    """
    apart = gathered_accesses(nest, device, work.accesses)
    data: dict[str, Number] = {}
    ports: dict[str, Number] = {"load": 0, "store": 0}
    rates = {"load": costs.load_ports, "store": costs.store_ports}
    for access in work.accesses:
        layer = served_by(device, access)
        stored = nest.lockstep == 1 and access.role in ("write", "read_back") and work.reduces
        if layer is None or stored or access in apart:
            continue
        name = "shared path" if layer.banks else f"{layer.name} path"
        issued = nest.warps * access.count
        data[name] = data.get(name, 0) + issued * access_clocks(nest, device, costs, layer, access)
        side = "load" if "read" in access.role else "store"
        if rates[side]:
            ports[side] = ports[side] + issued
    spills = nest.warps * costs.spill_accesses * work.spilled * work.steps
    banked = next((x for x in device.layers if x.banks), None)
    if banked is not None:
        wave = banked.banks * banked.bank_bytes / device.read_bytes_per_clock(banked)
        if costs.load_store_lanes:
            wave = max(wave, nest.lockstep / costs.load_store_lanes)
        data["shared path"] = data.get("shared path", 0) + spills * wave
    found = list(data.items())
    for side, rate in rates.items():
        if rate:
            found.append((f"{side} ports", ports[side] / rate))
    return _wider_of_load_paths(found, device)


def result_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> Number:
    """Clocks in which one block's results are exchanged and stored, or written to where a copy engine reads them."""
    clocks: Number = 0
    for access in work.accesses:
        layer = served_by(device, access)
        if layer is not None and access.load < 0 and access.role in ("write", "exchange"):
            clocks = clocks + nest.warps * access.count * access_clocks(nest, device, costs, layer, access)
    return clocks


def _wider_of_load_paths(found: list[tuple[str, Number]], device: Device) -> list[tuple[str, Number]]:
    """Bytes and ports of the same loads are one limiter: whichever is more."""
    named = dict(found)
    layer = path_layer(device)
    name = f"{layer.name} path" if layer is not None and not layer.banks else ""
    if "load ports" in named and name in named:
        named["load ports"] = most(named["load ports"], named.pop(name))
    return list(named.items())


def served_by(device: Device, access: Access) -> MemoryLayer | None:
    layer = device.layer(access.layer)
    if access.layer == device.backing.name or (layer.scope == "unit" and not layer.managed):
        return path_layer(device)
    return layer


def access_clocks(nest: Nest, device: Device, costs: Costs, layer: MemoryLayer, access: Access) -> Number:
    writes = "write" in access.role
    rate = device.written_bytes_per_clock(layer) if writes else device.read_bytes_per_clock(layer)
    if layer.banks:
        clocks = access.service * layer.banks * layer.bank_bytes / rate
    elif nest.lockstep > 1:
        clocks = access.service * layer.transaction_bytes / rate
    else:
        clocks = access.width_bytes * access.split / rate
    if costs.load_store_lanes:
        clocks = most(clocks, nest.lockstep / costs.load_store_lanes)
    if not is_nothing(access.broken):
        alone = costs.gather_clocks * nest.lanes
        clocks = clocks * (1 - access.broken) + access.broken * alone
    return clocks + costs.gather_clocks if access.gathered else clocks
