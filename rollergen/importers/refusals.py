"""Why an operator has no counterpart in `rg.ops`: the whole list, so that anything else is a fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE, PACKED
from rollergen.importers.graph import NotExpressedError

REASONS = {
    "dtype": "a dtype that is none of rollergen's",
    "no tensor": "a sequence, an optional value or a map, no tensor",
    "known": "the result is known when the graph is imported; there is nothing to build",
    "text": "works on text",
    "data-dependent shape": "the shape of the result depends on the data",
    "data-dependent parameter": "a parameter that decides the program is computed from data",
    "data-dependent positions": "the positions read depend on the data by more than a selection",
    "control flow": "branches, loops or subgraphs",
    "random": "random numbers",
    "bits": "operations on the bits of numbers",
    "integer means": "means of integers, which torch rounds to integers: `rg.ops` has those of floats",
    "sequential": "each output follows from the one before it",
    "decoding": "reads a compressed picture",
    "trees": "walks a decision tree",
    "output": "an output that the converter does not make",
    "attribute": "an attribute, or a value of it, that the converter does not know",
    "conditions": "conditions where numbers are needed",
    "no axis": "an axis of a tensor that has none",
    "state": "a state that the call changes",
}

OPERATORS: dict[str, tuple[str, str]] = {
    "BitCast": ("bits", ""),
    **dict.fromkeys(("NonZero", "Unique", "Compress", "NonMaxSuppression"), ("data-dependent shape", "")),
    **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), ("control flow", "")),
    **dict.fromkeys(
        ("SequenceInsert", "SplitToSequence", "OptionalHasElement", "OptionalGetElement", "SequenceEmpty"),
        ("no tensor", ""),
    ),
    **dict.fromkeys(("Bernoulli", "RandomUniformLike"), ("random", "")),
    **dict.fromkeys(
        ("GridSample", "RoiAlign", "DeformConv", "MaxUnpool"),
        ("data-dependent positions", "interpolates or stores at computed coordinates"),
    ),
    **dict.fromkeys(("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch"), ("text", "")),
    "TfIdfVectorizer": ("data-dependent positions", "counts n-grams"),
    "ImageDecoder": ("decoding", ""),
    "LabelEncoder": ("text", "a map of labels"),
    "TreeEnsemble": ("trees", ""),
    "Det": ("sequential", "elimination of rows"),
}
"""ONNX operators that no expression stands for: the reason, and what it means here."""


class Refused(NotExpressedError):
    """What is not expressed: ``reason`` is one of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise KeyError(reason)
        super().__init__(f"{REASONS[reason]}: {detail}" if detail else REASONS[reason])
        self.reason, self.detail = reason, detail


def accepted_dtype(dtype: Any) -> str:
    """The name of a NumPy dtype; Refused where rollergen has no such one."""
    name = str(dtype).removeprefix("torch.") if "torch" in type(dtype).__module__ else np.dtype(dtype).name
    if name not in ITEMSIZE and name not in PACKED:
        raise Refused("dtype", name)
    return name
