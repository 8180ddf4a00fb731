"""``rollergen build``: its options; `built` is imported when it is called, so that help comes at once."""

from __future__ import annotations

import click

from rollergen.cli.output import problem_options, save_option


@click.command()
@problem_options
@click.option("--explain", "whole", is_flag=True, help="Explain all: bytes, occupancy, closed forms, rejected tiles.")
@click.option("--source", "show_source", is_flag=True, help="Print the source too.")
@click.option("--run/--no-run", "run", default=None, help="Run and check it; default: if the device is present.")
@save_option("OpenCL C runs from there without rollergen")
def build(
    problem: str, sizes: tuple[str, ...], device: str | None, dtype: str, top_k: int | None, no_profile: bool,
    no_cache: bool, as_json: bool, whole: bool, show_source: bool, run: bool | None, directory: str | None,
) -> None:  # fmt: skip
    """Build PROBLEM, run it, check it against its definition, and say why it is as fast as it is.

    PROBLEM is an operator with its sizes (rollergen ops lists them) or an einsum string with a size
    for every letter:

    \b
        rollergen build matmul m=1024 n=1024 k=1024
        rollergen build "mk,kn->mn" m=64 k=64 n=64 --device v100
    """
    from rollergen.bench.problems import expression

    tensor = expression(problem, sizes, dtype)  # before what builds is imported, so that errors come sooner
    from rollergen.bench.beside import beside
    from rollergen.cli.built import build_and_tell

    peer = lambda arrays, result: beside(problem, sizes, arrays, result)
    build_and_tell(tensor, device, top_k, no_profile, no_cache, as_json, whole, show_source, run, directory, peer)
