"""``rollergen devices probe``: a spec from micro-benchmarks of the device that is present."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from rollergen.cli.output import console
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.files.user_specs import user_folder, user_specs
from rollergen.hal.load import every_spec, save_device
from rollergen.hal.runtimes.opencl_devices import Present, describes
from rollergen.hal.spec import Device

if TYPE_CHECKING:
    from rollergen.hal.probes.device_probe import ProbedDevice

_WAYS = "expected one of --cpu, --opencl P:D and --cuda"


@click.command("probe")
@click.option("--cpu", is_flag=True, help="This machine's CPU, as kernels for cpu use it: in the caller's arrays.")
@click.option("--opencl", "which", metavar="P:D", help="Any OpenCL device, as device='opencl:P:D' means it.")
@click.option("--cuda", is_flag=True, help="The current CUDA GPU, through CuPy.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json")
@click.option("--force", is_flag=True, help="Overwrite FILE.json.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def probe_command(cpu: bool, which: str | None, cuda: bool, output: Path | None, force: bool, as_json: bool) -> None:
    """Measure the device that is present and write its spec: a quarter of a minute, an OpenCL device two, a GPU one.

    Measured: clock, peaks, bandwidths and latency of each layer, line, launch; of a GPU its banks too.  What cannot be
    measured is listed.  P and D are numbers or parts of names; such a device works on copies in memory of its own, and
    without FILE.json its spec is kept among the user's, where device="opencl:P:D" finds it.

    \b
        rollergen devices probe --cpu -o my.json && rollergen devices check my.json
        rollergen devices probe --opencl 1:0
        rollergen devices probe --cuda -o my-gpu.json
    """
    if cpu + cuda + (which is not None) != 1:
        raise ArgumentError(f"{'two devices' if cpu or cuda else 'nothing'} to probe; {_WAYS}")

    from rollergen.hal.probes.cuda_probe import probe_cuda
    from rollergen.hal.probes.device_probe import probe_cpu
    from rollergen.hal.probes.opencl_probe import probe_device, probed_facts

    try:
        facts = None if which is None else probed_facts(which)
        output = output or _own_file(facts)
        name = _name(output.stem)
        if output.suffix != ".json" or not re.match("[a-z]", name):
            raise ArgumentError(f"{output} names no spec; expected a file such as my.json, which begins with a letter")
        if output.exists() and not force:
            raise ArgumentError(f"{output} exists; expected a new file, or --force")
        _refuse_unwritable(output)
        probed = probe_device(facts, name) if facts is not None else probe_cuda(name) if cuda else probe_cpu(name)
    except (RuntimeUnavailableError, BuildError) as error:
        raise DeviceError(str(error)) from None
    save_device(probed.device, output)
    if as_json:
        facts_ = {"measured": list(map(asdict, probed.measured)), "not_measured": dict(probed.not_measured)}
        click.echo(json.dumps({"device": name, "file": str(output), **facts_, "state": dict(probed.state)}))
    else:
        _show(probed, output)


def _refuse_unwritable(output: Path) -> None:
    """Makes the folder, and tries a file there: before what takes minutes."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = f"{output.parent}: {'no folder' if no_folder else error.strerror}"
        raise ArgumentError(f"{output} cannot be written ({reason}); expected a file in a folder that can be") from None


def _own_file(facts: Present | None) -> Path:
    """Among the user's own specs, by the device's name; by its units and platform too where another has that name."""
    if facts is None:
        raise ArgumentError("-o is missing; expected a file for the spec, such as -o my.json")
    name = _name(facts.board or facts.name)
    if any(Path(asked).stem == name and not _is_own(asked, spec, facts) for asked, spec in every_spec()):
        name = _name(f"{name}-{facts.units}-{facts.platform}")
    return user_folder() / f"{name}.json"


def _is_own(asked: str, spec: Device, facts: Present) -> bool:
    """Whether this is a file of the user's, known by its name, for this very device."""
    return asked in user_specs() and describes(spec, facts)


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:64]


def _show(probed: ProbedDevice, output: Path) -> None:
    title = f"{probed.device.name}: {probed.device.title}"
    table = Table("figure", "in the spec", "measured", "median over best", title=title)
    for one in probed.measured:
        table.add_row(one.path, f"{one.value:.4g}", f"{one.raw:.4g}", f"+{one.spread:.1%}")
    console.print(table, markup=False)
    for path, why in probed.not_measured:
        console.print(f"not measured: {path}: {why}", markup=False, highlight=False, soft_wrap=True)
    told = [", ".join(f"{key} {text}" for key, text in probed.state)] if probed.state else []
    console.print("\n".join([*told, f"written to {output}"]), markup=False, highlight=False, soft_wrap=True)
