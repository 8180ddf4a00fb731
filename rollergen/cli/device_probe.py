"""``rollergen devices probe``: a spec from micro-benchmarks of the device that is present."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from rollergen.cli.output import console
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.load import save_device
from rollergen.hal.probes.cuda_probe import probe_cuda
from rollergen.hal.probes.device_probe import ProbedDevice, probe_opencl

_BOTH = "two devices to probe; expected either --opencl N or --cuda"


@click.command("probe")
@click.option("--opencl", "number", type=int, metavar="N", help="The OpenCL device of this number: a CPU.")
@click.option("--cuda", is_flag=True, help="The current CUDA GPU, through CuPy.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE.json")
@click.option("--force", is_flag=True, help="Overwrite FILE.json.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def probe_command(number: int | None, cuda: bool, output: Path, force: bool, as_json: bool) -> None:
    """Measure the device that is present and write its spec; takes a quarter of a minute, of a GPU about one.

    Measured: clock, peaks, bandwidths and latency of each layer, line, launch; of a GPU its banks too.  What cannot be
    measured is listed.

    \b
        rollergen devices probe --opencl 0 -o my.json && rollergen devices check my.json
        rollergen devices probe --cuda -o my-gpu.json
    """
    if cuda == (number is not None):
        raise ArgumentError("nothing to probe; expected either --opencl N or --cuda" if not cuda else _BOTH)
    name = re.sub(r"[^a-z0-9_-]+", "-", output.stem.lower()).strip("-_")[:64]
    if output.suffix != ".json" or not re.match("[a-z]", name):
        raise ArgumentError(f"{output} names no spec; expected a file such as my.json, which begins with a letter")
    if output.exists() and not force:
        raise ArgumentError(f"{output} exists; expected a new file, or --force")
    try:
        probed = probe_opencl(number, name) if number is not None else probe_cuda(name)
    except RuntimeUnavailableError as error:
        raise DeviceError(str(error)) from None
    save_device(probed.device, output)
    if as_json:
        facts = {"measured": list(map(asdict, probed.measured)), "not_measured": dict(probed.not_measured)}
        click.echo(json.dumps({"device": name, "file": str(output), **facts, "state": dict(probed.state)}))
    else:
        _show(probed, output)


def _show(probed: ProbedDevice, output: Path) -> None:
    title = f"{probed.device.name}: {probed.device.title}"
    table = Table("figure", "in the spec", "measured", "median over best", title=title)
    for one in probed.measured:
        table.add_row(one.path, f"{one.value:.4g}", f"{one.raw:.4g}", f"+{one.spread:.1%}")
    console.print(table, markup=False)
    for path, why in probed.not_measured:
        console.print(f"not measured: {path}: {why}", markup=False, highlight=False, soft_wrap=True)
    told = ", ".join(f"{key} {text}" for key, text in probed.state)
    console.print(f"{told}\nwritten to {output}", markup=False, highlight=False, soft_wrap=True)
