"""Parts of a long evaluation, kept as they are finished, so that after an interruption the same command does the rest.

    {"of": hash, "part": name, "value": ...}

One line for each part.  The hash is of the records, of rollergen's own modules and of the packages that train: parts of
another state are not taken.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rollergen.store.keys import fingerprint
from rollergen.verify.dataset import Dataset


@dataclass
class Unfinished:
    """Values by the names of parts.  ``path``: the file that they are kept in; None: this process only remembers them.
    ``of``: the state that they hang on (`state_of`)."""

    path: Path | None = None
    of: str = ""
    parts: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def at(path: Path, data: Dataset) -> Unfinished:
        """What an earlier run left there of the same state; a line that was cut off is left out."""
        found = Unfinished(path, state_of(data))
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    content = json.loads(line)
                except ValueError:
                    continue
                if isinstance(content, dict) and content.get("of") == found.of:
                    found.parts[content["part"]] = content["value"]
        return found

    def part(self, name: str, compute: Callable[[], Any]) -> Any:
        """What `compute` answers, as JSON reads it back; of a part that is kept, without asking it."""
        if name not in self.parts:
            text = json.dumps({"of": self.of, "part": name, "value": compute()})
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")
            self.parts[name] = json.loads(text)["value"]
        return self.parts[name]

    def done(self) -> None:
        """Everything was finished, and is written elsewhere: removes the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def state_of(data: Dataset) -> str:
    """A hash of all that figures of these records depend on."""
    digest = hashlib.sha256(fingerprint().encode())
    for package in ("lightgbm", "torch", "numpy"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(package.encode())
    for column in (data.x, data.ms, data.predicted_ms, data.operator, data.structure):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
