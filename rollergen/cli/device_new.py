"""``rollergen devices new``: the spec of a device that nobody has described, begun from the nearest one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from math import log
from pathlib import Path
from typing import Any

import click

from rollergen.cli.device_facts import loaded, parse_settings
from rollergen.cli.output import NewFile, console
from rollergen.errors import ArgumentError, DeviceError, writing
from rollergen.hal.architectures import facts_of
from rollergen.hal.changes import changed, figure, figures
from rollergen.hal.errors import SpecError
from rollergen.hal.instruction_lints import makes_tflop_s
from rollergen.hal.languages import language, language_names
from rollergen.hal.load import device_names, device_to_json, load_device, parse_device
from rollergen.hal.matrix_units import lacks
from rollergen.hal.spec import Device, Instruction

QUESTIONS = {
    "units": "Execution units (multiprocessors, compute units, cores)",
    "clock_mhz": "Their clock under load, MHz",
    "execution_width": "Threads that share one instruction (warp, wavefront)",
    "{fma}.per_clock": "float32 multiply-adds of one unit in one clock (lanes)",
    "{unit}.capacity_bytes": "{unit}: bytes of one unit",
    "{cache}.capacity_bytes": "{cache}: bytes",
    "{store}.capacity_bytes": "{store}: bytes",
    "{store}.bandwidth_nominal_gb_s": "{store}: printed bandwidth, GB/s",
}
"""What a datasheet tells, in the order in which it is asked; the answer to each is a figure of kind datasheet."""


@click.command("new")
@click.argument("name")
@click.option("-o", "--output", type=NewFile(), help="Default: NAME.json.")
@click.option("--like", metavar="DEVICE", help="Begin from this one; default: the nearest, by the figures set.")
@click.option("--title", help="What the vendor calls it.")
@click.option("--source", help="Where the figures are printed.")
@click.option("--set", "settings", multiple=True, metavar="FIGURE=VALUE", help="A figure from the datasheet.")
@click.option("--language", type=click.Choice(language_names()), help="Default: as the one begun from.")
@click.option("--arch", help="sm_89, gfx906, ...")
@click.option("--ask/--no-ask", default=None, help="Ask for what is not set; default: on a terminal.")
def new_command(
    name: str, output: Path | None, like: str | None, title: str | None, source: str | None,
    settings: tuple[str, ...], language: str | None, arch: str | None, ask: bool | None,
) -> None:  # fmt: skip
    """Begin the spec of a new device NAME: figures that you give count as its datasheet's, all others as
    assumed: those of the nearest device.

    \b
        rollergen devices new rtx4080 --like rtx4090 --set units=76 --set clock_mhz=2505 \\
            --title "GeForce RTX 4080" --source "its white paper" --arch sm_89
    """
    path = output or Path(f"{name}.json")
    if path.exists():
        raise ArgumentError(f"{path} exists; expected a new file: remove it, or name another by -o")
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", name):
        raise ArgumentError(f"{name!r} is no name; expected a small letter, then small letters, digits, _ or -")
    values = parse_settings(settings)
    asking = ask if ask is not None else sys.stdin.isatty()
    whole = loaded(like) if like else nearest(values, arch or "", language)
    lacking = left_out(whole, arch or "", language)
    for figure_path in values:
        owner = figure_path.rpartition(".")[0]
        if owner in lacking:
            raise ArgumentError(f"{figure_path} is set; expected a figure without {owner}, as {lacking[owner]}")
    parent = without_what_it_lacks(whole, arch or "", language)
    if asking:
        title = title or click.prompt("What the vendor calls it", default=name)
        source = source or click.prompt("Where its figures are printed", default="the vendor's datasheet")
        values |= _asked(parent, values)
    document = begun(parent, name, title or name, source or "the vendor's datasheet", values, arch or "")
    if language or arch:
        document["targets"] = [_target(parent, language or parent.kind.language, arch or "")]
    text = json.dumps(document, indent=1)
    try:
        new = parse_device(text.encode(), path.name)
    except SpecError as error:
        raise DeviceError(str(error)) from None
    with writing(path):
        path.write_text(text + "\n")
    lines = [f"{path}: {', '.join(_sources(parent, values, arch or ''))}."]
    if path.stem in device_names():
        lines.append(f"{path.stem} is a built-in device too, which the name alone means: this one is device='{path}'.")
    lines += [*_told_left_out(lacking), *_told_carried(new, parent, values, arch or "")]
    lines.append(f"Next: rollergen devices check {path}; rollergen devices compare {parent.name} {path}")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _sources(parent: Device, values: Mapping[str, float], arch: str) -> Iterator[str]:
    """What the new device's figures are from."""
    yield f"{len(values)} figures from the datasheet"
    if found := facts_of(arch):
        yield f"{len(of_architecture(parent, values, arch))} those of {arch} ({found.name})"
    if rates := scaled(parent, values):
        yield f"{len(rates)} bandwidths scaled from {parent.name}'s ({', '.join(rates)})"
    yield f"all others assumed as {parent.name} has them"


def _told_carried(new: Device, parent: Device, values: Mapping[str, float], arch: str) -> Iterator[str]:
    """What of the new device is still another device's."""
    if arch and not facts_of(arch):
        yield f"Of {arch} no figures are known here: what every card of it has is assumed too."
    if (own := new.targets[0].arch) != arch:
        yield f"Source is written for {own}, as {parent.name}'s: --arch says for what else."
    given = values.keys() | of_architecture(parent, values, arch).keys()
    rated = {f"{one.name}.per_clock": one for one in new.instructions}
    carried = [_with_peak(path, new, one) for path, one in rated.items() if path not in given]
    if carried := carried + [path for path in _of_a_clock(parent) if path not in given]:
        yield f"Rates for a clock that are {parent.name}'s own: {', '.join(carried)}."


def _with_peak(path: str, new: Device, one: Instruction) -> str:
    """A datasheet prints the peak of a matrix unit, which cards of one architecture may have whole or halved."""
    return f"{path} ({makes_tflop_s(new, one):.3g} TFLOP/s)" if one.is_matrix else path


def _told_left_out(lacking: Mapping[str, str]) -> Iterator[str]:
    for reason in dict.fromkeys(lacking.values()):
        yield f"Left out, as {reason}: {', '.join(name for name, why in lacking.items() if why == reason)}."


def _of_a_clock(parent: Device) -> list[str]:
    """What of a unit's memory, beside its instructions, decides what it does in a clock."""
    near = [layer for layer in parent.layers[1:] if layer.scope == "unit"]
    found = [f"{layer.name}.bytes_per_clock" for layer in near if layer.bytes_per_clock]
    found += [f"{layer.name}.capacity_bytes" for layer in near if not layer.managed]
    return found + [f"costs.{name}" for name in ("load_store_lanes",) if name in dict(parent.costs)]


def _target(parent: Device, language: str, arch: str) -> dict[str, Any]:
    """That of `parent` in the language for another architecture: its compiler is the same, its card is not."""
    dialect = {key: value for key, value in parent.dialect(language).items() if key != "gpu"}
    return {"language": language, "arch": arch, "dialect": dialect}


def left_out(parent: Device, arch: str, language_name: str | None) -> dict[str, str]:
    """By name the matrix instructions and dot products of `parent` that a device of the architecture, programmed in the
    language, goes without; and why."""
    named, found = language(language_name or parent.kind.language), facts_of(arch)
    products = {path: int(value) for path, value in found.figures.items() if path.endswith(".k")} if found else {}
    reasons = {}
    for one in parent.instructions:
        if (one.is_matrix and one.layout not in named.matrix_layouts) or (
            one.is_dot_product and named.name != parent.kind.language
        ):
            reasons[one.name] = f"no {named.name} code is written for them"
        elif lacks(arch, replace(one, k=products.get(f"{one.name}.k", one.k))):
            reasons[one.name] = f"{arch} has no such instructions, or none that code is written for here"
    return reasons


def without_what_it_lacks(parent: Device, arch: str, language_name: str | None) -> Device:
    """`parent` without what is `left_out`; without matrix instructions nothing is reserved for their sums."""
    if not (lacking := left_out(parent, arch, language_name)):
        return parent
    has = tuple(one for one in parent.instructions if one.name not in lacking)
    sums = parent.limits.accumulation_registers if any(one.is_matrix for one in has) else 0
    return replace(parent, instructions=has, limits=replace(parent.limits, accumulation_registers=sums))


def nearest(values: Mapping[str, float], arch: str = "", language_name: str | None = None) -> Device:
    """The built-in device of the nearest architecture; where none is given, of those programmed in the language.  Of
    several, the one whose figures differ by the smallest factors from those given and from what is known of the
    architecture.

    Raises ArgumentError where nothing is given: all devices are then equally near.
    """
    if not values and not arch:
        raise ArgumentError("nothing is set to find the nearest device by; expected --like DEVICE, or --set units=128")
    known = [load_device(name) for name in device_names()]
    if language_name and not arch:
        known = [one for one in known if one.kind.language == language_name] or known
    near = {one.name: max(_alike(arch, target.arch) for target in one.targets) for one in known}
    known = [one for one in known if near[one.name] == max(near.values())]
    found = facts_of(arch)
    values = {**(found.figures if found else {}), **values}
    apart = {}
    for one in known:
        its = figures(one)
        shared = [path for path in values if its.get(path) and values[path] > 0]
        missing = len(values) - len(shared)
        apart[one.name] = sum(abs(log(values[path] / its[path])) for path in shared) + missing * log(100)
    return load_device(min(apart, key=lambda name: (apart[name], name)))


def _alike(one: str, other: str) -> int:
    """How many letters two names of architectures begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def of_architecture(parent: Device, values: Mapping[str, float], arch: str) -> dict[str, float]:
    """What is known of the architecture and `values` do not give, of the figures that `parent` has."""
    found = facts_of(arch)
    known, its = found.figures if found else {}, figures(parent)
    return {path: value for path, value in known.items() if path in its and path not in values}


def begun(
    parent: Device, name: str, title: str, source: str, values: Mapping[str, float], arch: str = ""
) -> dict[str, Any]:
    """The document of a new spec.  Given figures and those of its architecture are of kind datasheet.  All others are
    assumed: bandwidths `scaled` from the parent's, the rest as `parent` has them.  Raises DeviceError for a figure that
    the format refuses.
    """
    rates, known = scaled(parent, values), of_architecture(parent, values, arch)
    stated = {path: int(v) if float(v).is_integer() else v for path, v in {**known, **values}.items()}
    try:
        device = changed(parent, {path: rate for path, (rate, _) in rates.items()} | stated)
    except SpecError as error:
        raise DeviceError(str(error)) from None
    document = device_to_json(device)
    document.pop("provenance", None)
    document.pop("verified", None)
    carried = {"kind": "assumed", "source": f"as {parent.name} has it"}
    document = _annotated(document, carried)
    for path, (rate, how) in rates.items():
        owner, key = _owner(document, path)
        owner[key] = {"value": rate, "kind": "assumed", "source": how}
    found = facts_of(arch)
    common = f"of every {arch} ({found.name}): {found.source}" if found else ""
    for path in stated:
        owner, key = _owner(document, path)
        origin = source if path in values else common
        owner[key] = {"value": figure(device, path), "kind": "datasheet", "source": origin}
    for one in document["instructions"]:
        if f"{one['name']}.peak_dense_tflop_s" not in values:
            one.pop("peak_dense_tflop_s", None)  # the parent's, as printed
    return {**document, "name": name, "title": title}


def scaled(parent: Device, values: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Bandwidths that `values` do not give, GB/s, and how each follows from that of `parent`, by path.

    Those on the chip grow with units and clock; an achieved one keeps its share of the printed one where that is given.
    """
    factor = values.get("units", parent.units) * values.get("clock_mhz", parent.clock_mhz)
    factor /= parent.units * parent.clock_mhz
    found: dict[str, tuple[float, str]] = {}
    for layer in parent.layers:
        nominal, achieved = f"{layer.name}.bandwidth_nominal_gb_s", f"{layer.name}.bandwidth_gb_s"
        if layer is not parent.backing and factor != 1:
            how = f"that of {parent.name}, {{:g}} GB/s, x {factor:.4g} (units x clock)"
            both = {nominal: layer.bandwidth_nominal_gb_s, achieved: layer.bandwidth_gb_s}
            found |= {path: (float(f"{rate * factor:.4g}"), how.format(rate)) for path, rate in both.items() if rate}
        if nominal in values and layer.bandwidth_nominal_gb_s:
            share = layer.bandwidth_gb_s / layer.bandwidth_nominal_gb_s
            how = f"{share:.4g} of the printed {values[nominal]:g} GB/s, as {parent.name} achieves of its own"
            found[achieved] = (float(f"{share * values[nominal]:.4g}"), how)
    return {path: rate for path, rate in found.items() if path not in values}


def _asked(parent: Device, given: Mapping[str, float]) -> dict[str, float]:
    plain = [i for i in parent.instructions if (i.m, i.k) == (1, 1) and i.dtype == i.accumulator_dtype == "float32"]
    caches = [layer.name for layer in parent.layers[1:-1] if layer.scope == "device"]
    names = {
        "fma": plain[0].name,
        "store": parent.backing.name,
        "cache": (caches or [""])[-1],
        "unit": parent.kind.block_layer or "",
    }
    answers: dict[str, float] = {}
    for pattern, question in QUESTIONS.items():
        path = pattern.format(**names)
        if path in given or path.startswith("."):
            continue
        usual = figure(parent, path)
        text = f"{question.format(**names)} ({parent.name} has {usual:.12g}; empty: assumed the same)"
        answer = click.prompt(text, default="", show_default=False)
        if answer:
            answers |= parse_settings([f"{path}={answer}"])
    return answers


def _annotated(node: Any, origin: Mapping[str, str]) -> Any:
    """Every number as a figure of that origin."""
    if isinstance(node, dict):
        if "value" in node and "kind" in node:
            return {"value": node["value"], **origin}
        return {key: _annotated(item, origin) for key, item in node.items()}
    if isinstance(node, list):
        return [_annotated(item, origin) for item in node]
    return {"value": node, **origin} if isinstance(node, (int, float)) and not isinstance(node, bool) else node


def _owner(document: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    owner, dot, key = path.rpartition(".")
    if not dot:
        return document, path
    if owner in ("limits", "costs"):
        return document[owner], key
    return next(x for x in (*document["memory_layers"], *document["instructions"]) if x["name"] == owner), key
