"""``rollergen devices list``: those built in or installed, and which of them is present."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import click
from rich.table import Table

from rollergen.cli.output import console, devices, refuse_unknown
from rollergen.errors import DeviceError
from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.load import every_spec
from rollergen.hal.runtimes.opencl_devices import describes
from rollergen.hal.runtimes.opencl_platforms import present_devices
from rollergen.hal.spec import Device

MODELLED = "modelled only"


@click.command("list")
@click.argument("names", nargs=-1, shell_complete=devices)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def list_devices(names: tuple[str, ...], as_json: bool) -> None:
    """List the devices (or just NAMES, which may be .json files) and what each one is."""
    asked: dict[str, str | Device] = {name: name for name in names} or dict(sorted(every_spec(), key=itemgetter(0)))
    described = {name: describe(device) for name, device in asked.items()}
    if as_json:
        click.echo(json.dumps(described))
        return
    table = Table("name", "title", "units", "peak, float32", "verified", "present")
    for name, one in described.items():
        peak = f"{one['peak_gflop_s'] / 1e3:.3g} TFLOP/s"
        seen = ", ".join(dict.fromkeys(x["how"] for x in one["verified"])) or MODELLED
        table.add_row(name, one["title"], str(one["units"]), peak, seen, "yes" if one["present"] else "no")
    console.print(table, markup=False)
    for line in () if names else present():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for name in names:
        console.print(details(name, described[name]), markup=False, highlight=False, soft_wrap=True)


def present() -> Iterator[str]:
    """A line for each OpenCL device that is present: how it is asked for, and by which spec, or what writes one."""
    try:
        found = [facts for facts, _ in present_devices()]
    except RuntimeUnavailableError as error:
        yield f"OpenCL: {error}"
        return
    if not found:
        yield "OpenCL: no platform has a device; a GPU's comes with its driver (AMD's: rocm-opencl-runtime)"
        return
    specs = list(every_spec())
    for facts in found:
        spec = next((asked for asked, device in specs if describes(device, facts)), "")
        if not spec:
            spec = f"no spec; rollergen devices probe --opencl {facts.platform_number}:{facts.number} writes one"
        kinds = " and ".join(sorted(facts.kinds))
        yield f"{facts.selector}: {facts.name}, {kinds} of {facts.platform}, in memory of its own: {spec}"


def details(name: str, one: dict[str, Any]) -> str:
    """What the table has no room for, in lines of text."""
    from rollergen.gate.footprint import bytes_text

    layers = (
        f"  {x['name']}: {bytes_text(x['capacity_bytes'])} per {x['scope']}, {'managed' if x['managed'] else 'cache'}"
        for x in one["layers"]
    )
    clock = f"{one['clock_mhz']:.0f} MHz, execution width {one['execution_width']}"
    state = "present" if one["present"] else f"not present: {one['missing']}"
    seen = [f"  {x['how']}: {x['what']}" for x in one["verified"]] or [f"  {MODELLED}"]
    return "\n".join([f"{name}: {clock}, source in {', '.join(one['languages'])}", *layers, *seen, f"  {state}"])


def describe(asked: str | Device) -> dict[str, Any]:
    """The device in plain data; ``present`` is whether kernels for it run here, ``missing`` why not."""
    if isinstance(asked, str):
        refuse_unknown(asked)  # before the imports, so that the error comes at once
    from rollergen.runtime.executor import executor_for
    from rollergen.targets import resolve

    device = resolve(asked)
    try:
        executor_for(device)
        missing = None
    except DeviceError as error:
        missing = str(error)
    floats = [i for i in device.instructions if i.dtype == i.accumulator_dtype == "float32"]
    per_clock = max((2 * max(i.m * i.n * i.k, i.lanes) * i.per_clock for i in floats), default=0.0)
    return {
        "title": device.title,
        "units": device.units,
        "execution_width": device.execution_width,
        "clock_mhz": device.clock_mhz,
        "layers": [
            {"name": x.name, "scope": x.scope, "managed": x.managed, "capacity_bytes": x.capacity_bytes}
            for x in device.layers
        ],
        "peak_gflop_s": per_clock * device.units * device.clock_mhz / 1e3,
        "verified": [{"how": one.how, "what": one.what} for one in device.verified],
        "languages": [target.language for target in device.targets],
        "present": missing is None,
        "missing": missing,
    }
