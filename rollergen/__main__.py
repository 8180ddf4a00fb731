"""The command line: ``rollergen build | run | explain | devices | ops | cache | records | verify | campaign |
bench``."""

from __future__ import annotations

import click

from rollergen import __version__
from rollergen.cli.commands import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Construct, explain, check and run tensor kernels.

    A first one, on this machine: rollergen build matmul m=1024 n=1024 k=1024
    """


if __name__ == "__main__":
    main()
