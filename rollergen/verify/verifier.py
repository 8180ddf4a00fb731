"""The trained verifier: one JSON file, asked to reorder a draft; it abstains where it has not seen enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from rollergen.features import VERSION, matrix, names
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.kept import write_whole
from rollergen.hal.files.trusted import read_untrusted
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.verify.dataset import FAMILIES, Dataset
from rollergen.verify.model_text import LARGEST_TEXT, VerifierError, check_model_text
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, RESIDUALS
from rollergen.verify.rankers import (
    LEAST_LOCAL,
    LEAST_OPERATORS,
    LEAST_RECORDS,
    Boosted,
    deployed_order,
    lightgbm,
    scores_of,
    share_of,
)
from rollergen.verify.support import Support

FORMAT = "rollergen.verifier.v1"
LARGEST_FILE = 2 * LARGEST_TEXT


@dataclass(frozen=True, slots=True)
class Move:
    """A program of the draft whose rank changed: ``position`` in the model's order, rank ``now``, and the features
    that speak most for or against it: SHAP values against the mean of the draft, in the log of time (a residual
    model) or points of its score."""

    position: int
    now: int
    reasons: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier said of one draft: ``order`` (positions in the draft, best first) and its reasons.

    ``abstained``: why the analytical order stands, or None.  ``scores``: of each position, higher is faster.
    ``moved``: those among the first whose rank changed, best first.
    """

    order: tuple[int, ...]
    abstained: str | None
    scores: tuple[float, ...] = ()
    moved: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Verifier:
    """A booster with what it was trained on.  ``family``: cpu or gpu, whose programs it ranks; ``about``: records,
    operators, devices, dates of the training data and the evaluation it was released by."""

    objective: str
    family: str
    text: str
    support: Support
    about: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """A hash of what decides its orders, and of where it has none."""
        support = b"".join(one.tobytes() for one in (self.support.low, self.support.high, self.support.weight))
        return sha256(f"{self.objective} {self.family} {self.text}".encode() + support).hexdigest()

    @cached_property
    def booster(self) -> Any:
        package = lightgbm()
        try:
            return package.Booster(model_str=self.text)
        except package.basic.LightGBMError as error:
            raise VerifierError(f"LightGBM refuses the model: {error}") from None

    def rerank(self, programs: Sequence[RProgram], device: Device, slots: int, reasons: bool = True) -> Verdict:
        """The order in which `programs`, drafted for `device` and in the model's order, are to be measured; the
        first `slots` of it are.  The analytical order stands, with the reason, where the verifier is outside its
        training.  Without ``reasons`` nothing is told of what moved, which takes most of the time."""
        unmoved = tuple(range(len(programs)))
        family = device.kind.family
        if family != self.family:
            return Verdict(unmoved, f"it was trained on {self.family} programs; {device.name} is a {family}")
        predictions = [predict(program, device) for program in programs]
        x = matrix(programs, device, predictions)
        objection = self.support.objection(x)
        if objection is not None:
            return Verdict(unmoved, objection)
        predicted = np.array([float(said.seconds) * 1e3 for said in predictions])
        raw = self.booster.predict(x, num_threads=1)
        scores = scores_of(self.objective, raw, predicted)
        order = deployed_order(scores, predicted, slots)
        moved = self._moved(x, order, slots) if reasons else ()
        return Verdict(tuple(order), None, tuple(map(float, scores)), moved)

    def _moved(self, x: np.ndarray, order: Sequence[int], slots: int) -> tuple[Move, ...]:
        """Those among the first `slots` that the model had elsewhere."""
        moved = [(at, position) for at, position in enumerate(order[:slots]) if at != position]
        if not moved:
            return ()
        shares = self.booster.predict(x, num_threads=1, pred_contrib=True)[:, :-1]
        against = shares - shares.mean(axis=0)
        sign = -share_of(self.objective) if self.objective in RESIDUALS else 1.0
        found = []
        for at, position in moved:
            largest = np.argsort(-np.abs(against[position]), kind="stable")[:3]
            reasons = tuple((names()[n], float(sign * against[position, n])) for n in largest if against[position, n])
            found.append(Move(position, at, reasons))
        return tuple(found)


def train(
    data: Dataset, family: str, about: Mapping[str, Any], objective: str = DEFAULT_OBJECTIVE, seed: int = 0
) -> Verifier:
    """A verifier from all rows of one family.  Raises VerifierError where these are too few."""
    own = data.of((data.family == FAMILIES.index(family)) & data.right)
    operators = len(np.unique(own.operator))
    if len(own) < LEAST_RECORDS or operators < LEAST_OPERATORS:
        raise VerifierError(
            f"{len(own)} records of {operators} operators on a {family}; expected at least {LEAST_RECORDS} of "
            f"{LEAST_OPERATORS}: below that the analytical order is kept"
        )
    ranker = Boosted(objective)
    ranker.fit(own, seed)
    booster = ranker.boosters[0]
    gain = booster.feature_importance("gain").astype(float)
    facts = {**about, "records": len(own), "operators": operators}
    return Verifier(objective, family, _model_text(booster), Support.of(own.x, gain), facts)


def update(base: Verifier, data: Dataset, about: Mapping[str, Any], seed: int = 0) -> Verifier:
    """`base` with more trees, on what its own leave of rows measured since: a few of the operators or of the device
    that are to be ranked.  Raises VerifierError where these are too few."""
    own = data.of((data.family == FAMILIES.index(base.family)) & data.right)
    if len(own) < LEAST_LOCAL:
        raise VerifierError(f"{len(own)} records on a {base.family}; expected at least {LEAST_LOCAL} to update by")
    ranker = Boosted(base.objective, boosters=[base.booster])
    ranker.update(own, seed)
    booster = ranker.boosters[0]
    text = _model_text(booster)
    facts = {**about, "records": len(own), "operators": len(np.unique(own.operator)), "base": dict(base.about)}
    support = base.support.widened(own.x, booster.feature_importance("gain").astype(float))
    return Verifier(base.objective, base.family, text, support, facts)


def _model_text(booster: Any) -> str:
    return str(booster.model_to_string()).partition("\nparameters:")[0] + "\n"


def save(verifier: Verifier, path: Path) -> None:
    """Writes the file whole or not at all.  Raises VerifierError."""
    content = {
        "format": FORMAT,
        "features": {"version": VERSION, "names_sha256": _names_hash()},
        "objective": verifier.objective,
        "family": verifier.family,
        "about": dict(verifier.about),
        "support": {
            "low": verifier.support.low.tolist(),
            "high": verifier.support.high.tolist(),
            "weight": verifier.support.weight.tolist(),
        },
        "model_sha256": sha256(verifier.text.encode()).hexdigest(),
        "model": verifier.text,
    }
    try:
        write_whole(path, json.dumps(content).encode())
    except (OSError, ValueError) as error:  # ValueError: no file system has such a name
        reason = getattr(error, "strerror", None) or error
        raise VerifierError(f"{str(path)!r:.200} cannot be written: {reason}") from None


def load(path: str | Path) -> Verifier:
    """Raises VerifierError that names the file and what is wrong with it."""
    path = Path(path)
    try:
        return _parsed(json.loads(read_untrusted(path, LARGEST_FILE)))
    except VerifierError as error:
        raise VerifierError(f"{path}: {error}") from None
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise VerifierError(f"{path} cannot be read as a verifier: {error}") from None


def _parsed(content: Any) -> Verifier:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise VerifierError(f"it is no {FORMAT}; rollergen verify train makes one")
    if content.get("features") != {"version": VERSION, "names_sha256": _names_hash()}:
        raise VerifierError(f"it was trained on other features; expected version {VERSION}: train it anew")
    objective, family, text = content.get("objective"), content.get("family"), content.get("model")
    if objective not in OBJECTIVES or family not in FAMILIES:
        found = f"objective {objective!r:.40}, family {family!r:.40}"
        raise VerifierError(f"{found}; expected one of {OBJECTIVES}, {FAMILIES}")
    if not isinstance(text, str) or sha256(text.encode()).hexdigest() != content.get("model_sha256"):
        raise VerifierError("the model does not match its hash: the file is damaged")
    check_model_text(text, len(names()))
    about = content.get("about")
    return Verifier(objective, family, text, _support(content.get("support")), about if isinstance(about, dict) else {})


def _support(content: Any) -> Support:
    columns = []
    for name in ("low", "high", "weight"):
        values = content.get(name) if isinstance(content, dict) else None
        numbers = isinstance(values, list) and all(isinstance(v, (int, float)) and isfinite(v) for v in values)
        if not numbers or len(values or ()) != len(names()):
            raise VerifierError(f"support.{name} is no list of {len(names())} finite numbers")
        columns.append(np.array(values, dtype=float))
    return Support(*columns)


def _names_hash() -> str:
    return sha256("\n".join(names()).encode()).hexdigest()
