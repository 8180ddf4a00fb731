"""Which figures of a spec that a prediction rests on are assumed, and how its limiters join."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any

from rollergen.errors import ProgramError
from rollergen.hal.changes import figure, json_path, paths
from rollergen.hal.spec import Device
from rollergen.program.model.limiters.limit import ADDS, IN_SERIES, OVERLAPS, TAKES_TURNS
from rollergen.program.model.prediction import predict
from rollergen.program.rprogram import RProgram

_LARGER = 1.25
_SHAPE = ("m", "n", "k")
"""What an instruction multiplies is what it is, no figure to be measured; without 1 x 1 x 1 ones there is no model."""


@lru_cache(maxsize=32)
def assumed_figures(program: RProgram, device: Device) -> tuple[str, ...]:
    """Paths of the figures of kind ``assumed`` that move the predicted time when they are a quarter larger or smaller,
    as `hal.changes.paths` writes them."""
    assumed = {path for path, (kind, _) in device.provenance if kind == "assumed"}
    figures = [path for path in paths(device) if path.rpartition(".")[2] not in _SHAPE]
    stated = [path for path in figures if json_path(device, path) in assumed and figure(device, path)]
    before = _seconds(program, device)
    moves = lambda path, value: _seconds(program, _with(device, path, value)) != before
    return tuple(path for path in stated if any(moves(path, value) for value in _beside(figure(device, path))))


def _beside(value: float | int) -> tuple[float, float]:
    """A larger and a smaller one; whole numbers move by at least 1, and stay above 0."""
    if isinstance(value, int):
        return max(round(value * _LARGER), value + 1), max(1, min(round(value / _LARGER), value - 1))
    return value * _LARGER, value / _LARGER


def _seconds(program: RProgram, device: Device) -> float:
    try:
        return float(predict(program, device).seconds)
    except ProgramError:  # it does not fit
        return inf


def _with(device: Device, path: str, value: float) -> Any:
    """The device with another figure, unchecked."""
    owner, dot, key = path.rpartition(".")
    if not dot:
        return _part(device, key, value)
    if owner == "costs":
        return replace(device, costs=tuple((name, value if name == key else one) for name, one in device.costs))
    if owner == "limits":
        return replace(device, limits=_part(device.limits, key, value))
    layers = tuple(_part(one, key, value) if one.name == owner else one for one in device.layers)
    instructions = tuple(_part(one, key, value) if one.name == owner else one for one in device.instructions)
    return replace(device, layers=layers, instructions=instructions)


def _part(part: Any, key: str, value: float) -> Any:
    return replace(part, **{key: value})


def joining(ways: Collection[str]) -> str:
    """How limiters become a predicted time, as a formula of those ``ways`` of joining that occur (`price.combine`)."""
    overlapping = ["sum of overlaps^p"] if OVERLAPS in ways else []
    overlapping += ["(sum of takes turns)^p"] if TAKES_TURNS in ways else []
    text, terms = "", ["unit"] if overlapping else []
    if overlapping:
        text = f"unit = ({' + '.join(overlapping)}, less what two of them count)^(1/p), "
    if IN_SERIES in ways:
        terms = [f"({' + '.join(f'{one}^m' for one in [*terms, '(largest in series)'])})^(1/m)"]
    terms += ["sum of adds"] if ADDS in ways else []
    exponents = " with exponents of the spec" if overlapping or IN_SERIES in ways else ""
    return f"{text}time = {' + '.join(terms)}{exponents} (docs/model.md)"
