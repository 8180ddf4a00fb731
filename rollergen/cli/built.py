"""What ``rollergen build`` does and prints: the verdict first, then why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from rollergen.bench.beside import Beside
from rollergen.build import build
from rollergen.cli.output import console, progress_bar
from rollergen.errors import CheckFailedError
from rollergen.explain.explanation import block_tile, seconds_text, tile_text
from rollergen.explain.text import own_time
from rollergen.expr.language import Tensor
from rollergen.gate.inputs import random_inputs
from rollergen.gate.oracle import compare, expression_oracle
from rollergen.kernel import Kernel
from rollergen.runtime.executor import is_present

Peer = Callable[[Mapping[str, np.ndarray], np.ndarray], Beside | None]


def build_and_tell(
    tensor: Tensor, device: str | None, top_k: int | None, no_profile: bool, no_cache: bool, as_json: bool, whole: bool,
    show_source: bool, run: bool | None, directory: str | None, peer: Peer,
) -> None:  # fmt: skip
    """The command for an expression, with its options; ``peer``: times a library on the same arguments."""
    with progress_bar(not as_json) as progress:
        profile = False if no_profile else "auto"
        kernel = build(tensor, device, top_k=top_k, profile=profile, cache=not no_cache, progress=progress)
    checked = None
    if run if run is not None else is_present(kernel.device):
        checked = run_and_check(kernel, tensor, peer)
    saved = None if directory is None else str(kernel.save(directory))
    if as_json:
        click.echo(json.dumps({**facts(kernel, checked, show_source), "saved": saved}))
    else:
        show(kernel, checked, whole, show_source)
        if saved:
            launched = (Path(saved) / "README.md").exists()
            how = "its README.md says how to run it" if launched else f"rg.load({saved!r}) gives it back"
            console.print(f"saved in {saved}: {how}", markup=False, highlight=False, soft_wrap=True)


def run_and_check(kernel: Kernel, tensor: Any, peer: Peer) -> dict[str, Any]:
    """One call on random inputs, compared with the definition at sampled elements; its times.

    Raises CheckFailedError where an element is wrong.
    """
    rng = np.random.default_rng(0)
    arrays = random_inputs(kernel.program, rng)
    results = kernel(*arrays)
    inputs = {b.name: a for b, a in zip(kernel.program.inputs, arrays, strict=True)}
    oracle = expression_oracle((tensor,), kernel.program.outputs)
    compared, wrong = compare(kernel.program, inputs, (results,), oracle)
    if wrong:
        raise CheckFailedError(f"the kernel ran, but its result is wrong: {wrong}")
    timing = kernel.benchmark(*arrays)
    library = peer(inputs, results) if isinstance(results, np.ndarray) else None
    return {
        "compared_elements": compared,
        "wall_seconds": timing.wall_s,
        "event_seconds": timing.event_s,
        "rounds": timing.rounds,
        "cache": timing.cache,
        "beside": None if library is None else library._asdict(),
    }


def facts(kernel: Kernel, checked: dict[str, Any] | None, with_source: bool) -> dict[str, Any]:
    """The JSON object of the command."""
    found = {**kernel.explain(as_dict=True), "check": checked}
    return {**found, "source": kernel.source} if with_source else found


def show(kernel: Kernel, checked: dict[str, Any] | None, whole: bool, with_source: bool) -> None:
    """The verdict first, then why."""
    lines = lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
    lines(f"{verdict(kernel, checked)}\n")
    console.print(candidates_table(kernel), markup=False)
    lines(kernel.explain(brief=not whole))
    if with_source:
        lines(f"\n{kernel.source}")


def candidates_table(kernel: Kernel) -> Table:
    table = Table("rank", "block tile", "predicted", "measured", "device time", "state", title="candidates")
    for outcome in kernel.outcomes:
        tile = " then ".join(tile_text(block_tile(stage)) for stage in outcome.program.stages)
        state = "chosen" if outcome.program is kernel.program else outcome.state
        if outcome.problems:
            state += f": {outcome.problems[0]}"
        times = (outcome.predicted_s, outcome.wall_s, outcome.event_s)
        table.add_row(str(outcome.rank + 1), tile, *(seconds_text(t) if t is not None else "-" for t in times), state)
    return table


def verdict(kernel: Kernel, checked: dict[str, Any] | None) -> str:
    if checked is None:
        why = "as asked" if is_present(kernel.device) else "the device is not present in this machine"
        return f"not run ({why}): {kernel.device.title} ({kernel.device.name})"
    stages = kernel.explain(as_dict=True)["stages"]
    flops = sum(stage["flops"] for stage in stages if not stage["once"])
    return (
        f"correct: {checked['compared_elements']} elements, corners and edges of tiles among them, match the float64 "
        "definition\n"
        f"one call takes {seconds_text(checked['wall_seconds'])} ({own_time(checked['event_seconds'])}, "
        f"{flops / checked['wall_seconds'] / 1e9:.4g} GFLOP/s), "
        f"median of {checked['rounds']}; caches {checked['cache']}{_beside(checked)}"
    )


def _beside(checked: dict[str, Any]) -> str:
    """How fast the kernel is beside a library; threads of both wait for each other where cores are busy."""
    library = checked["beside"]
    if library is None:
        return ""
    speed, load = library["seconds"] / checked["wall_seconds"], os.getloadavg()[0]
    busy = f" (but the machine is busy: load {load:.1f})" if load > (os.cpu_count() or 1) else ""
    took = f"{library['library']} takes {seconds_text(library['seconds'])} at best"
    return f"\n{took}: ours is {speed:.3g} times as fast{busy}"
