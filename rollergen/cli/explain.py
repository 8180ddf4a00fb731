"""``rollergen explain``: why a kernel is as it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rollergen.cli.output import NewFile, console, problem_options, progress_bar


@click.command()
@problem_options
@click.option("--html", type=NewFile(), metavar="FILE", help="Of a model: write a page with its roofline.")
def explain(
    problem: str, sizes: tuple[str, ...], device: str | None, dtype: str, top_k: int | None, no_profile: bool,
    no_cache: bool, as_json: bool, html: Path | None,
) -> None:  # fmt: skip
    """Explain the kernel for PROBLEM: tiles, bytes, waves, limiters, closed forms, the runner-up.

    Of a model, a path that ends in .onnx: its layers, where each runs and how long it takes; SIZES are those of
    extents with a name, such as batch=4.
    Candidates are measured if the device is present, unless --no-profile.
    """
    if problem.endswith(".onnx"):
        from rollergen.cli.run import compiled, tell  # here and below, so that help and errors come at once

        model = compiled(problem, (), sizes, device, top_k, no_profile, no_cache, as_json)
        tell(model, as_json, html)
        return
    if html is not None:
        raise click.UsageError(f"--html is {str(html)!r} with an operator; expected a model, a path that ends in .onnx")
    from rollergen.bench.problems import expression

    tensor = expression(problem, sizes, dtype)
    from rollergen.build import build  # after the expression, so that its errors come sooner

    with progress_bar(not as_json) as progress:
        profile = False if no_profile else "auto"
        kernel = build(tensor, device, top_k=top_k, profile=profile, cache=not no_cache, progress=progress)
    if as_json:
        click.echo(json.dumps(kernel.explain(as_dict=True)))
    else:
        console.print(kernel.explain(), markup=False, highlight=False, soft_wrap=True)
