"""A device with some figures changed: what if it had another memory, more units, a wider instruction?

    >>> changed(load_device("v100"), {"dram.bandwidth_gb_s": 1500}).layer("dram").bandwidth_gb_s
    1500.0
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import inf
from numbers import Integral, Real
from typing import Any

from rollergen.hal.costs import COSTS
from rollergen.hal.declared import declarations
from rollergen.hal.errors import SpecError
from rollergen.hal.files.bounded import shown
from rollergen.hal.load import device_names, device_to_json, is_figure, load_device, parse_device
from rollergen.hal.spec import Device, Instruction, Limits, MemoryLayer

ORIGIN = {"kind": "assumed", "source": "changed by hand"}
_WORD = re.compile(r"[a-z0-9]+")


def changed(device: Device, settings: Mapping[str, float]) -> Device:
    """`device` with the figures at these paths: ``units``, ``dram.bandwidth_gb_s`` (a layer's or an instruction's
    figure), ``limits.threads_per_block``, ``costs.loop_instructions``.

    A bandwidth above its nominal one raises that too; how `device` was verified is left out.  Raises SpecError for an
    unknown path (with the nearest), for a value that is no number, and for a device that contradicts itself.
    """
    document = device_to_json(device)
    if settings:
        document.pop("verified", None)  # nobody has seen this one
    for path, asked in settings.items():
        part, key = _place(device, document, path)
        value = _in_json(asked)
        part[key] = {"value": value, **ORIGIN}
        nominal = part.get("bandwidth_nominal_gb_s")
        known = nominal is not None and isinstance(value, (int, float))
        if key == "bandwidth_gb_s" and known and _bare(nominal) < value:
            part["bandwidth_nominal_gb_s"] = {"value": value, **ORIGIN}
    more = f" and {len(settings) - 3} figures more" if len(settings) > 3 else ""
    named = ", ".join(list(settings)[:3])
    return parse_device(json.dumps(document).encode(), f"{device.name} with {named}{more}")


def replaced(device: Device, **figures: float) -> Device:
    """`device` with other figures: ``replaced(device, dram_gb_s=1500, units=120, fma_per_clock=128)``; raises as
    `changed`."""
    return changed(device, {path_of(device, name): value for name, value in figures.items()})


def _in_json(value: Any) -> Any:
    """The value as a file would have it, NumPy's numbers too; what is no number as what the schema refuses."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if not isinstance(value, Real):
        return f"{value!r:.60}"
    if isinstance(value, Integral) and abs(int(value)) < 1 << 64:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return inf


def path_of(device: Device, name: str) -> str:
    """The path that a Python name means: ``dram_gb_s`` is ``dram.bandwidth_gb_s``, ``fma_lanes`` is ``fma.lanes``.

    Raises SpecError for a name that means none.
    """
    known = {path.replace(".", "_").replace("-", "_"): path for path in paths(device)}
    known |= {f"{layer.name}_gb_s": f"{layer.name}.bandwidth_gb_s" for layer in device.layers}
    if name in known:
        return known[name]
    raise SpecError(f"{device.name} has no figure {shown(name)}; {_advice(name, known)}")


def paths(device: Device) -> Iterator[str]:
    """The paths of all figures that the spec has; `changed` also takes costs that it does not name."""
    yield from _figures(Device)
    for named, kind in ((device.layers, MemoryLayer), (device.instructions, Instruction)):
        yield from (f"{one.name}.{key}" for one in named for key in _figures(kind))
    yield from (f"limits.{key}" for key in _figures(Limits))
    yield from (f"costs.{name}" for name, _ in device.costs)


def _figures(kind: type) -> list[str]:
    return [key for key, (one, _) in declarations(kind).items() if one.type in ("int", "float")]


def _place(device: Device, document: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    require_path(device, path)
    owner, dot, key = path.rpartition(".")
    if not dot:
        return document, path
    if owner in ("limits", "costs"):
        return document.setdefault(owner, {}), key
    named = (*document["memory_layers"], *document["instructions"])
    return next(one for one in named if one["name"] == owner), key


def require_path(device: Device, path: str) -> None:
    """SpecError, with the nearest, for a path that `changed` does not take: one of `paths`, or a cost that the spec
    does not name."""
    known = [*paths(device), *(f"costs.{name}" for name in COSTS if name not in dict(device.costs))]
    if path not in known:
        raise SpecError(f"{device.name} has no figure {shown(path)}; {_advice(path, known)}")


def _advice(name: str, known: Any) -> str:
    names = list(known)
    words = set(_WORD.findall(name))
    common = {one: len(words & set(_WORD.findall(one))) for one in names}
    sharing = sorted((one for one in names if common[one]), key=lambda one: -common[one])
    near = get_close_matches(name, names, n=3, cutoff=0.8) or sharing[:3] or get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one such as {', '.join(names[:8])}"


def _bare(figure: Any) -> float:
    return float(figure["value"] if is_figure(figure) else figure)


def figures(device: Device) -> dict[str, float]:
    """The value at every path that `changed` takes."""
    return {path: float(figure(device, path)) for path in paths(device)}


def figure(device: Device, path: str) -> float | int:
    """The value at a path that `changed` takes; an integer where only whole numbers are meant."""
    owner, dot, key = path.rpartition(".")
    if owner == "costs":
        return dict(device.costs)[key] if key in dict(device.costs) else COSTS[key].neutral
    parts: dict[str, Any] = {one.name: one for one in device.layers} | {one.name: one for one in device.instructions}
    value: float | int = getattr(device.limits if owner == "limits" else parts[owner] if dot else device, key)
    return value


def json_path(device: Device, path: str) -> str:
    """Where the file has the figure: ``dram.bandwidth_gb_s`` is ``memory_layers[4].bandwidth_gb_s``."""
    owner, dot, key = path.rpartition(".")
    names = {
        "memory_layers": [layer.name for layer in device.layers],
        "instructions": [instruction.name for instruction in device.instructions],
    }
    found = (f"{part}[{known.index(owner)}].{key}" for part, known in names.items() if dot and owner in known)
    return next(found, path)


def with_present_costs(measured: Device) -> Device:
    """`measured`, whose machine's figures (clock, bandwidths, caches) stay, with the constants that the built-in device
    of its name has now; a device of another name, whose constants are its own, as it is."""
    if measured.name not in device_names():
        return measured
    return replace(measured, costs=load_device(measured.name).costs)
