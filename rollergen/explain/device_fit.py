"""Corrections of a spec from measured programs: which figures explain what predictions are off by.

The residual of a program is the logarithm of its predicted over its measured time.  Figures are chosen one after the
other, each the one that (with those before it) leaves the least robust loss of the residuals linearised in the
figures' logarithms; then all chosen ones are fitted together on true predictions.  Every figure stays within bounds
that follow from where it comes from: what a datasheet prints is not touched.  A third of the operators is held out;
corrections that do not help these are not proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, isfinite, log
from statistics import median
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, ProgramError
from rollergen.explain.sensitivity import seconds_on
from rollergen.hal.changes import changed, figure, json_path, paths
from rollergen.hal.costs import COSTS
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import SpecError
from rollergen.hal.informational import informational
from rollergen.hal.spec import Device
from rollergen.optional import optional
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json
from rollergen.store.record_files import RecordFile

BOUNDS = {"datasheet": 1.0, "paper": 1.25, "measured": 1.25, "derived": 1.25, "fitted": 2.0, "assumed": 4.0}
"""Factor by which a figure of that kind may be corrected either way."""
MOST_FIGURES = 6
_STEP = 1.1
"""Factor at which a figure's effect is told."""
_LEAST_GAIN = 0.01
"""Share of the loss that a further figure must take away."""
_SOFT = 0.1
"""Residuals beyond (11 %) count linearly, as outliers."""
_REFUSED = 10.0
"""Residual of a device that contradicts itself, or that has no room for a program."""
_EVALUATIONS = 8
_SMALL = 0.02
"""Step of a difference, in the logarithm of a figure: wide enough for whole counts in the model to move."""

Array = np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Measured programs: ``seconds``, and ``operator`` a number for each program."""

    programs: tuple[RProgram, ...]
    seconds: Array
    operator: Array

    def of(self, rows: Array) -> Sample:
        """The rows of a mask."""
        chosen = np.flatnonzero(rows)
        return Sample(tuple(self.programs[i] for i in chosen), self.seconds[chosen], self.operator[chosen])


@dataclass(frozen=True, slots=True)
class Correction:
    """One figure: from `old` to `new`.  ``gain``: the share of the uncorrected loss that comes back if it alone stays
    as it was.  ``at_bound``: it would go further than its `kind` lets it."""

    path: str
    kind: str
    old: float
    new: float
    gain: float
    at_bound: bool


@dataclass(frozen=True, slots=True)
class Quality:
    """Predicted against measured times.  ``error``: median factor between them, less 1.  ``bias``: median of predicted
    over measured.  ``order``: mean over the operators of the share of pairs of programs in the right order."""

    error: float
    bias: float
    order: float


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """What is proposed for `device`; ``corrections`` is empty where nothing helps operators that were held out.

    ``fitted`` and ``held_out``: (before, after) on programs that were fitted, and on those of other operators.
    """

    device: Device
    corrections: tuple[Correction, ...]
    fitted: tuple[Quality, Quality]
    held_out: tuple[Quality, Quality]
    programs: int
    operators: int

    def corrected(self) -> Device:
        """The device with the corrections, called fitted; `device` itself is never changed."""
        if not self.corrections:
            return self.device
        device = changed(self.device, {one.path: one.new for one in self.corrections})
        before, after = self.held_out
        text = (
            f"fitted on {self.programs} measured programs of {self.operators} operators; on others the median error "
            f"went from {before.error:.0%} to {after.error:.0%}"
        )
        origins = dict(device.provenance)
        origins |= {json_path(device, one.path): ("fitted", text) for one in self.corrections}
        return replace(device, provenance=tuple(sorted(origins.items())))


def sample(device: Device, files: Sequence[RecordFile], most: int) -> Sample:
    """Measured programs of devices that are called as `device` is: at most so many, as evenly over operators as may be.

    Raises ArgumentError where the files have none.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    names: set[str] = set()
    for file in files:
        for record in file.records:
            name = file.devices[record["device"]["spec"]].name
            names.add(name)
            if record["result"]["status"] == "ok" and name == device.name:
                groups.setdefault(record["group"], []).append(record)
    if not groups:
        known = ", ".join(sorted(names)) or "nothing"
        raise ArgumentError(f"no measured programs of {device.name} in these records; they are of {known}")
    random = np.random.default_rng(0)
    each = max(2, most // len(groups))
    chosen = [
        (number, own[int(i)])
        for number, own in enumerate(groups[key] for key in sorted(groups))
        for i in random.permutation(len(own))[:each]
    ]
    return _priced_sample(device, chosen)


def _priced_sample(device: Device, chosen: Iterable[tuple[int, Mapping[str, Any]]]) -> Sample:
    """Those that the model has a finite time for on the device."""
    rows = []
    for number, record in chosen:
        try:
            program = from_json(record["program"]["rprogram"])
            usable = isfinite(seconds_on(program, device))
        except (ProgramError, KeyError):
            continue
        if usable:
            rows.append((program, median(record["result"]["times_ms"]) / 1e3, number))
    if not rows:
        raise ArgumentError(f"none of the measured programs can be predicted on {device.name}")
    programs, seconds, operator = zip(*rows, strict=True)
    return Sample(programs, np.array(seconds), np.array(operator))


def candidates(device: Device) -> dict[str, float]:
    """Figures that may be corrected, each with the factor that bounds it: rates, bandwidths, costs and the launch.

    Left out: whole numbers, switches, what is informational, and what a datasheet prints.
    """
    origins, reasons, found = dict(device.provenance), informational(device), {}
    for path in paths(device):
        value, owner = figure(device, path), path.rpartition(".")[0]
        if isinstance(value, int) or not value or path in reasons:
            continue
        if owner == "costs" and COSTS[path.rpartition(".")[2]].meaning.startswith("1:"):
            continue
        bound = BOUNDS[origins.get(json_path(device, path), ("assumed", ""))[0]]
        if bound > 1:
            found[path] = bound
    return found


def fit_device(device: Device, measured: Sample, most_figures: int = MOST_FIGURES) -> DeviceFit:
    """Proposes corrections of `device`; changes nothing.  Needs scipy (``pip install 'rollergen[verify]'``).

    Raises ArgumentError for fewer than three operators (none could be held out), DeviceError where scipy is missing.
    """
    operators = np.unique(measured.operator)
    if len(operators) < 3:
        raise ArgumentError(f"the records are of {len(operators)} operators; expected at least 3, as some are held out")
    kept_back = np.random.default_rng(0).permutation(operators)[: max(1, len(operators) // 3)]
    aside = np.isin(measured.operator, kept_back)
    train, test = measured.of(~aside), measured.of(aside)
    bounds = candidates(device)
    chosen = _chosen(device, train, bounds, most_figures)
    corrections = _refined(device, train, {path: bounds[path] for path in chosen})
    after = changed(device, {one.path: one.new for one in corrections}) if corrections else device
    held_out = quality(device, test), quality(after, test)
    if _loss(residuals(after, test)) >= _loss(residuals(device, test)):
        corrections, after, held_out = (), device, (held_out[0], held_out[0])
    fitted = quality(device, train), quality(after, train)
    return DeviceFit(device, corrections, fitted, held_out, len(train.programs), len(operators) - len(kept_back))


def residuals(device: Device, measured: Sample) -> Array:
    """Logarithms of predicted over measured times, float64; a large number where a program does not fit."""
    seconds = np.array([seconds_on(program, device) for program in measured.programs])
    with np.errstate(divide="ignore"):
        return np.where(np.isfinite(seconds), np.log(np.where(seconds > 0, seconds, 1) / measured.seconds), _REFUSED)


def quality(device: Device, measured: Sample) -> Quality:
    """How well `device` predicts these programs."""
    off = residuals(device, measured)
    predicted = off + np.log(measured.seconds)
    shares = []
    for number in np.unique(measured.operator):
        rows = measured.operator == number
        guessed, real = predicted[rows], np.log(measured.seconds[rows])
        pairs = np.triu_indices(len(real), 1)
        if len(pairs[0]):
            right = np.sign(np.subtract.outer(guessed, guessed)) == np.sign(np.subtract.outer(real, real))
            shares.append(float(right[pairs].mean()))
    order = float(np.mean(shares)) if shares else 1.0
    return Quality(exp(float(np.median(np.abs(off)))) - 1, exp(float(np.median(off))), order)


def _loss(off: Array) -> float:
    """Mean of the residuals' soft absolute values (as `least_squares` has it)."""
    return float(np.mean(2 * _SOFT**2 * (np.sqrt(1 + (off / _SOFT) ** 2) - 1)))


def _chosen(device: Device, train: Sample, bounds: Mapping[str, float], most: int) -> list[str]:
    """The figures that explain most, in the order in which they were found."""
    start = residuals(device, train)
    slopes = _slopes(device, train, start, bounds)
    found: list[str] = []
    loss = _loss(start)
    while len(found) < most:
        tried = {path: _linear_loss(start, slopes, bounds, [*found, path]) for path in slopes if path not in found}
        if not tried or (best := min(tried, key=lambda path: tried[path])) is None:
            break
        if tried[best] > (1 - _LEAST_GAIN) * loss:
            break
        found.append(best)
        loss = tried[best]
    return found


def _slopes(device: Device, train: Sample, start: Array, bounds: Mapping[str, float]) -> dict[str, Array]:
    """Change of every residual with the logarithm of each figure; figures that move nothing are left out."""
    found = {}
    for path in bounds:
        value = figure(device, path)
        for factor in (_STEP, 1 / _STEP):
            try:
                moved = residuals(changed(device, {path: value * factor}), train) - start
            except SpecError:
                continue
            if np.any(moved):
                found[path] = moved / log(factor)
            break
    return found


def _linear_loss(start: Array, slopes: Mapping[str, Array], bounds: Mapping[str, float], chosen: list[str]) -> float:
    matrix = np.stack([slopes[path] for path in chosen], axis=1)
    solved = _solve(lambda x: start + matrix @ x, [bounds[path] for path in chosen], lambda x: matrix)
    return _loss(start + matrix @ solved)


def _refined(device: Device, train: Sample, bounds: Mapping[str, float]) -> tuple[Correction, ...]:
    """The chosen figures fitted together on true predictions, to three digits."""
    if not bounds:
        return ()
    old = {path: float(figure(device, path)) for path in bounds}

    def off(settings: Mapping[str, float]) -> Array:
        try:
            return residuals(changed(device, settings), train)
        except SpecError:
            return np.full(len(train.programs), _REFUSED)

    at = lambda x: {path: old[path] * exp(step) for path, step in zip(bounds, x, strict=True)}
    here = lambda x: off(at(x))
    solved = _solve(here, list(bounds.values()), lambda x: _differences(here, x))
    new = {path: float(f"{value:.3g}") for path, value in at(solved).items()}
    new = {path: value for path, value in new.items() if abs(value / old[path] - 1) > 5e-3}
    before, best = _loss(off({})), _loss(off(new))
    origins = dict(device.provenance)
    kind = {path: origins.get(json_path(device, path), ("assumed", ""))[0] for path in new}
    gain = {path: (_loss(off({**new, path: old[path]})) - best) / before for path in new}
    at_bound = {path: abs(log(value / old[path])) > 0.98 * log(bounds[path]) for path, value in new.items()}
    return tuple(
        Correction(path, kind[path], old[path], value, gain[path], at_bound[path]) for path, value in new.items()
    )


def _differences(off: Callable[[Array], Array], x: Array) -> Array:
    """The slopes of all residuals at x, inwards where that is a bound's neighbourhood."""
    start, columns = off(x), []
    for number in range(len(x)):
        step = np.zeros(len(x))
        step[number] = -_SMALL if x[number] > 0 else _SMALL
        columns.append((off(x + step) - start) / step[number])
    return np.stack(columns, axis=1)


def _solve(off: Callable[[Array], Array], bounds: Sequence[float], jacobian: Callable[[Array], Array]) -> Array:
    limits = np.log(bounds)
    solved = optional("scipy.optimize", "verify").least_squares(
        off, np.zeros(len(limits)), jac=jacobian, bounds=(-limits, limits), loss="soft_l1", f_scale=_SOFT,
        max_nfev=_EVALUATIONS,
    )  # fmt: skip
    return np.asarray(solved.x)
