"""``rollergen run``: compile a model, run it, check every layer, time it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollergen.cli.output import NewFile, console, device_option, progress_bar, save_option, top_k_option
from rollergen.errors import ArgumentError, writing

if TYPE_CHECKING:
    import numpy as np

    from rollergen.network.model import Model


@click.command()
@click.argument("model")
@click.argument("sizes", nargs=-1)
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="A .npy file for each input; default: random.")
@click.option("--output", type=NewFile(), metavar="FILE", help="Write the results there: .npy of one, .npz of several.")
@device_option
@top_k_option("the best programs of each layer")
@click.option("--no-profile", is_flag=True, help="Take the model's first choice of each layer; measure none.")
@click.option("--no-cache", is_flag=True, help="Neither take kernels that were built before nor keep these.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--html", type=NewFile(), metavar="FILE", help="Write a page with the layers and their roofline.")
@save_option("it runs from there without rollergen")
def run(
    model: str, sizes: tuple[str, ...], inputs: tuple[str, ...], output: Path | None, device: str | None,
    top_k: int | None, no_profile: bool, no_cache: bool, as_json: bool, html: Path | None, directory: str | None,
) -> None:  # fmt: skip
    """Run MODEL, an ONNX file: compile it, check every layer against float64, time it.

    SIZES are those of extents with a name, where no input is given.

    \b
        rollergen run model.onnx --input x.npy --output y.npy
        rollergen run model.onnx batch=4
    """
    if sizes and inputs:
        raise click.UsageError(f"{sizes[0]!r} beside --input; expected one of them: the inputs have their sizes")
    arrays = [_read(name) for name in inputs]
    made = compiled(model, arrays, sizes, device, top_k, no_profile, no_cache, as_json)
    import numpy as np  # here and below after what is refused without them, so that errors come at once

    from rollergen.explain.explanation import seconds_text
    from rollergen.gate.arrays import random_array

    rng = np.random.default_rng(0)
    given = arrays or [random_array(one.shape or (), one.dtype, rng) for one in made.inputs]
    compared = sum(one.compared for one in made.check(*given))
    results = made(*given)
    made.benchmark(*given)
    if output is not None:
        _write(output, results)
    saved = None if directory is None else str(made.save(directory))
    if not as_json:
        time = "" if made.measured_time is None else f"; one call takes {seconds_text(made.measured_time)}"
        said = f"correct: {compared} elements match their layers' float64 definitions{time}"
        said += "" if saved is None else f"\nsaved in {saved}: python {saved}/run.py tests it"
        console.print(f"{said}\n", markup=False, highlight=False, soft_wrap=True)
    tell(made, as_json, html, {"compared_elements": compared, "saved": saved})


def compiled(
    path: str, arrays: Sequence[np.ndarray], sizes: Sequence[str], device: str | None, top_k: int | None,
    no_profile: bool, no_cache: bool, quiet: bool,
) -> Model:  # fmt: skip
    """The model of a file, with a bar while its kernels are built unless `quiet`."""
    if not path.endswith(".onnx"):
        raise ArgumentError(f"MODEL is {path!r}; expected a path that ends in .onnx")
    if not Path(path).is_file():
        raise ArgumentError(f"MODEL is {path!r}; there is no such file")
    if sizes:
        arrays = _of_sizes(path, sizes)
    from rollergen.network.compiling import compile as compile_model

    with progress_bar(not quiet) as progress:
        return compile_model(
            path, tuple(arrays) or None, device, top_k=top_k, profile=False if no_profile else "auto",
            cache=not no_cache, progress=progress,
        )  # fmt: skip


def _of_sizes(path: str, words: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Example inputs of a model whose extents with a name are as large as ``batch=4`` and the like say."""
    from rollergen.bench.problems import parse_sizes
    from rollergen.optional import optional

    sizes = parse_sizes(words)
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise ArgumentError(f"{name} is {size!r}; expected an integer of at least 1, such as {name}=4")
    model, title = optional("rollergen.importers.onnx_models", "onnx").loaded(path)
    return optional("rollergen.importers.onnx_graphs", "onnx").sized_inputs(model.graph, sizes, title)  # type: ignore[no-any-return]


def tell(model: Model, as_json: bool, html: Path | None, more: dict[str, Any] | None = None) -> None:
    """Prints what is known of the model, and writes the page where one is wanted."""
    from rollergen.network.report import page

    if html is not None:
        with writing(html):
            html.write_text(page(model), encoding="utf-8")
    if as_json:
        click.echo(json.dumps({**model.facts(), **(more or {})}))
    else:
        console.print(model.explain(), markup=False, highlight=False, soft_wrap=True)


def _read(name: str) -> np.ndarray:
    import numpy as np

    try:
        array = np.load(name, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"--input is {name!r}; expected a .npy file: {error}") from None
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"--input is {name!r}, an archive of several arrays; expected a .npy file for each input")
    return array


def _write(name: Path, results: Any) -> None:
    import numpy as np

    several = isinstance(results, tuple)
    with writing(name), name.open("wb") as file:  # given a path, NumPy writes to one that ends in .npy or .npz
        (np.savez if several else np.save)(file, *(results if several else (results,)))
