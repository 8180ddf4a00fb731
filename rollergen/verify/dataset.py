"""Records as arrays: what rankers are trained and judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, RollergenError
from rollergen.features import VERSION, matrix, names
from rollergen.features.structure import CLASSES, operator_of
from rollergen.hal.changes import with_present_costs
from rollergen.hal.dataclass import dataclass
from rollergen.hal.load import device_hash
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.serial import from_json
from rollergen.store.keys import fingerprint
from rollergen.store.record_files import RecordFile, RecordsError
from rollergen.store.record_tables import read_any

FAMILIES = ("cpu", "gpu")
PRESENT = "present"
CONSTANTS = (PRESENT, "recorded")

_WRONG = (RollergenError, ArithmeticError, LookupError, TypeError, ValueError)
"""What damaged records raise where their programs are read."""

_AT_ONCE = 256
"""Programs whose features are computed together."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One row for each record.

    ``x``: features, float64 (n, columns of `names()`).  ``ms``: median measured milliseconds, infinite where the
    program failed.  ``predicted_ms``: of the micro-performance model, as it is now.  ``operator``, ``structure``,
    ``family``: integers that name the row's operator (expression, device and dtype), its canonical structure, and
    whether the device is a GPU (1).  ``noise``: relative standard error of ``ms``.  ``drafted``: the model drafted it
    (it was not sampled).  ``titles``: of operators, by their number.
    """

    x: np.ndarray
    ms: np.ndarray
    predicted_ms: np.ndarray
    operator: np.ndarray
    structure: np.ndarray
    family: np.ndarray
    noise: np.ndarray
    drafted: np.ndarray
    titles: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ms)

    def of(self, rows: np.ndarray) -> Dataset:
        """The rows of a mask or of positions, in their order."""
        return Dataset(
            self.x[rows], self.ms[rows], self.predicted_ms[rows], self.operator[rows], self.structure[rows],
            self.family[rows], self.noise[rows], self.drafted[rows], self.titles,
        )  # fmt: skip

    @property
    def right(self) -> np.ndarray:
        """Rows that passed the check: only these train."""
        return np.isfinite(self.ms)

    def of_family(self, name: str | None) -> Dataset:
        """The rows of one of `FAMILIES`; None: all, where they are of one.

        Raises ArgumentError where records of both families are present and none is named, and where none is of the
        named one: costs on one family tell nothing about the other."""
        there = [FAMILIES[number] for number in np.unique(self.family)]
        if name is None and len(there) > 1:
            raise ArgumentError(f"the records are of {' and '.join(there)} devices; expected one: --family chooses")
        if name is not None and name not in there:
            raise ArgumentError(f"there are no records of a {name}; they are of {', '.join(there)}")
        return self if name is None else self.of(self.family == FAMILIES.index(name))

    def operators(self) -> list[np.ndarray]:
        """Positions of each operator's rows, in order of the operators' numbers."""
        return [np.flatnonzero(self.operator == number) for number in np.unique(self.operator)]

    def spread(self, count: int) -> Dataset:
        """The rows of so many operators, the structures in turn."""
        structures: dict[int, list[int]] = {}
        for rows in self.operators():
            structures.setdefault(int(self.structure[rows[0]]), []).append(int(self.operator[rows[0]]))
        turns = sorted((place, own) for own, found in enumerate(structures.values()) for place in range(len(found)))
        of = list(structures.values())
        return self.of(np.isin(self.operator, [of[own][place] for place, own in turns[:count]]))

    def class_of(self, rows: np.ndarray) -> str:
        """The class of an operator, whose rows these are."""
        columns = [names().index(f"A.is {name}") for name in CLASSES]
        return CLASSES[int(self.x[rows][:, columns].sum(axis=0).argmax())]

    def kinds(self) -> np.ndarray:
        """The class of each row's operator, as text."""
        found = np.array([""] * len(self), dtype=object)
        for rows in self.operators():
            found[rows] = self.class_of(rows)
        return found


def joined(first: Dataset, second: Dataset) -> Dataset:
    """Rows of both; the operators and structures of each keep their numbers, which mean the same in both."""
    both = lambda name: np.concatenate([getattr(first, name), getattr(second, name)])
    return Dataset(
        both("x"), both("ms"), both("predicted_ms"), both("operator"), both("structure"), both("family"),
        both("noise"), both("drafted"), first.titles,
    )  # fmt: skip


def load(paths: Sequence[Path], constants: str = PRESENT) -> Dataset:
    """All records of the files, each once, see `from_records`.  Raises RecordsError; ArgumentError where there is
    none."""
    files = [read_any(path) for path in paths]
    dataset = from_records(files, constants)
    if not len(dataset):
        raise ArgumentError(f"{', '.join(map(str, paths))}: no records; rollergen verify collect makes some")
    return dataset


def from_records(files: Sequence[RecordFile], constants: str = PRESENT) -> Dataset:
    """``constants``: "present", the model's constants as built-in devices have them now (`with_present_costs`; others
    keep their own), or "recorded", as they lie beside the records.

    Features and prediction are taken from records that this very state of rollergen wrote, if the constants are still
    the same, else computed anew: what the model of another day predicted is no base for residuals that today's is
    corrected by.  Raises ArgumentError for other constants.
    """
    if constants not in CONSTANTS:
        raise ArgumentError(f"constants is {constants!r}; expected one of {', '.join(CONSTANTS)}")
    devices = {key: device for file in files for key, device in file.devices.items()}
    if constants == PRESENT:
        devices = {key: with_present_costs(device) for key, device in devices.items()}
    seen: set[tuple[Any, ...]] = set()
    taken: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    groups: dict[str, int] = {}
    for file in files:
        for record in file.records:
            key = (record["group"], record["program"].get("kernel_sha256"), record.get("ts"))
            result = record["result"]
            if key not in seen and result.get("caches", "warm") == "warm" and not result.get("noisy"):
                seen.add(key)
                taken.append(record)
                rows.append(_row(record, groups))
    if not rows:
        empty = np.zeros(0)
        whole = empty.astype(np.int64)
        return Dataset(np.zeros((0, len(names()))), empty, empty, whole, whole, whole, empty, empty.astype(bool), ())
    ms, operator, family, noise, drafted = map(np.array, zip(*rows, strict=True))
    x, predicted = _features(taken, devices)
    structure = _structures(taken, operator)
    return Dataset(x, ms, predicted, operator, structure, family, noise, drafted, tuple(groups))


def _structures(records: Sequence[dict[str, Any]], operator: np.ndarray) -> np.ndarray:
    """Of each record, as numbers; all programs of one operator have the structure of its first."""
    _, firsts, which = np.unique(operator, return_index=True, return_inverse=True)
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(structure_of(records[at]), len(numbers)) for at in firsts]
    return np.array(found)[which]


def _row(record: dict[str, Any], groups: dict[str, int]) -> tuple[Any, ...]:
    times = record["result"]["times_ms"]
    right = record["result"]["status"] == "ok"
    middle = median(times) if right else float("inf")
    error = float(np.std(times) / middle / len(times) ** 0.5) if right else 0.0
    return (
        middle,
        groups.setdefault(record["group"], len(groups)),
        int(record["device"].get("family") == "gpu"),
        error,
        record["program"].get("rank", 0) >= 0,
    )


def structure_of(record: dict[str, Any]) -> str:
    """The canonical structure (`features.structure.Operator.structure`) of the operator that a record's program
    computes.  Raises RecordsError."""
    try:
        return operator_of([stage.op for stage in from_json(record["program"]["rprogram"]).stages]).structure
    except _WRONG as error:
        raise RecordsError(f"a record of {record['group']}: {error}") from None


def _features(records: Sequence[dict[str, Any]], devices: Mapping[str, Device]) -> tuple[np.ndarray, np.ndarray]:
    """(features, predicted milliseconds) of each record: its own, else computed, in batches of one device."""
    x, predicted = np.zeros((len(records), len(names()))), np.zeros(len(records))
    repriced = {key for key, device in devices.items() if device_hash(device) != key}
    missing: dict[str, list[int]] = {}
    for at, record in enumerate(records):
        kept = record.get("feat", {})
        usable = kept.get("ver") == VERSION and len(kept.get("vec", ())) == len(names())
        usable = usable and record["env"].get("rollergen") == fingerprint()
        if usable and record["device"]["spec"] not in repriced:
            x[at], predicted[at] = kept["vec"], record["pred"]["micro_ms"]
        else:
            missing.setdefault(record["device"]["spec"], []).append(at)
    if unknown := missing.keys() - devices.keys():
        raise RecordsError(f"records of the device spec {min(unknown)[:12]}, which is not among theirs")
    for key, places in missing.items():
        for start in range(0, len(places), _AT_ONCE):
            rows = places[start : start + _AT_ONCE]
            x[rows], predicted[rows] = _computed([records[at] for at in rows], devices[key])
    return x, predicted


def _computed(records: Sequence[dict[str, Any]], device: Device) -> tuple[np.ndarray, np.ndarray]:
    try:
        programs = [from_json(record["program"]["rprogram"]) for record in records]
        said = [predict(program, device) for program in programs]
        return matrix(programs, device, said), np.array([float(one.seconds) * 1e3 for one in said])
    except _WRONG as error:
        if len(records) > 1:
            each = [_computed([record], device) for record in records]
            return np.concatenate([x for x, _ in each]), np.concatenate([ms for _, ms in each])
        raise RecordsError(f"a record of {records[0]['group']}: {error}") from None
