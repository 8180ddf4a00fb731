"""``rollergen explain``: why a kernel is as it is."""

from __future__ import annotations

import json

import click

from rollergen.bench.problems import expression
from rollergen.build import build
from rollergen.cli.output import console, problem_options, progress_bar


@click.command()
@problem_options
def explain(
    problem: str, sizes: tuple[str, ...], device: str | None, dtype: str, top_k: int | None, no_profile: bool,
    no_cache: bool, as_json: bool,
) -> None:  # fmt: skip
    """Explain the kernel for PROBLEM: tiles, bytes, waves, limiters, closed forms, the runner-up.

    Candidates are measured if the device is present, unless --no-profile.
    """
    tensor = expression(problem, sizes, dtype)
    with progress_bar(not as_json) as progress:
        profile = False if no_profile else "auto"
        kernel = build(tensor, device, top_k=top_k, profile=profile, cache=not no_cache, progress=progress)
    if as_json:
        click.echo(json.dumps(kernel.explain(as_dict=True)))
    else:
        console.print(kernel.explain(), markup=False, highlight=False, soft_wrap=True)
