"""The command line: ``rollergen build | run | explain | devices | ops | cache | records | verify | campaign |
bench``."""

from __future__ import annotations

import click

from rollergen import __version__
from rollergen.cli.bench import bench
from rollergen.cli.build import build
from rollergen.cli.cache import cache
from rollergen.cli.campaign import campaign
from rollergen.cli.devices import devices
from rollergen.cli.errors import OneLineErrors
from rollergen.cli.explain import explain
from rollergen.cli.ops import ops
from rollergen.cli.records import records
from rollergen.cli.run import run
from rollergen.cli.verify import verify


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Construct, explain, check and run tensor kernels.

    A first one, on this machine: rollergen build matmul m=1024 n=1024 k=1024
    """


for command in (build, run, explain, devices, ops, cache, records, verify, campaign, bench):
    main.add_command(command)

if __name__ == "__main__":
    main()
