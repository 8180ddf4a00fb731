"""model_tables.h: a saved model's values and launches as C tables, which run.c includes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rollergen.bundle.tables import device_facts, quoted
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.hal.dtypes import DTYPES


def tables(
    described: Mapping[str, Any],
    manifests: Sequence[Mapping[str, Any]],
    times_s: tuple[float, float | None],
    weights_crc32: int,
) -> str:
    """The header's text.  ``described``: the contents of model.json; ``manifests``: of the distinct kernels;
    ``times_s``: predicted and measured, None where one kernel was never measured."""
    values = _Values(described)
    launches: list[tuple[str, str]] = []
    for number, step in enumerate(described["steps"]):
        launches += values.launches(number, step, manifests[step["kernel"]])
    sources = ", ".join(quoted(f"kernels/{n}/{one['source']}") for n, one in enumerate(manifests))
    signature = f"{described['title']}({', '.join(one['name'] for one in described['inputs'])})"
    lines = [
        "/* Written with the model: what run.c launches. */",
        *device_facts(signature, manifests[0]["device"], *times_s),
        '#define WEIGHTS_FILE "weights.bin"',
        f"#define WEIGHTS_CHECKSUM UINT32_C({weights_crc32})",
        f"static const char *const SOURCES[] = {{{sources}}};",
        "static const struct value VALUES[] = {",
        *values.lines,
        "};",
        f"static const int INPUTS[] = {{{', '.join(str(values.of(one['name'])) for one in described['inputs'])}}};",
        f"static const int OUTPUTS[] = {{{', '.join(str(values.of(name)) for name in described['outputs'])}}};",
        *(f"static const int ARGUMENTS_{n}[] = {{{arguments}}};" for n, (_, arguments) in enumerate(launches)),
        "static const struct launch LAUNCHES[] = {",
        *(f"    {{{facts}, ARGUMENTS_{n}}}," for n, (facts, _) in enumerate(launches)),
        "};",
    ]
    return "\n".join(lines) + "\n"


class _Values:
    """The values of a model, numbered, with the temporaries of its launches."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._numbers: dict[object, int] = {}
        for one in described["weights"]:
            self._add(one["name"], one, str(one["offset"]))
        for one in (*described["inputs"], *(step["output"] for step in described["steps"])):
            self._add(one["name"], one)

    def of(self, name: str) -> int:
        return self._numbers[name]

    def launches(self, number: int, step: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(facts, numbers of the arguments) of a step's launches.  What they pack is the step's own; other temporaries
        serve every step of the kernel."""
        packed = {name for launch in manifest["launches"] if launch["once"] for name in launch["arguments"]}
        given, numbers = iter(step["inputs"]), {}
        for buffer in manifest["buffers"]:
            if buffer["role"] == "input":
                numbers[buffer["name"]] = self.of(next(given))
            elif buffer["role"] == "output":
                numbers[buffer["name"]] = self.of(step["output"]["name"])
            else:
                owner = ("step", number) if buffer["name"] in packed else ("kernel", step["kernel"])
                numbers[buffer["name"]] = self._add((*owner, buffer["name"]), buffer)
        for launch in manifest["launches"]:
            sizes = f"{launch['blocks']}, {launch['threads']}, {int(launch['once'])}, {len(launch['arguments'])}"
            arguments = ", ".join(str(numbers[name]) for name in launch["arguments"])
            yield f"{step['kernel']}, {quoted(launch['entry'])}, {sizes}", arguments

    def _add(self, key: object, described: Mapping[str, Any], offset: str = "NOWHERE") -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.lines)
            shape, dtype = tuple(described["shape"]), described["dtype"]
            size = prod(shape) * ITEMSIZE[dtype]
            facts = f"{quoted(described['name'])}, {quoted(_npy_type(dtype))}, {quoted(str(shape))}, {size}, {offset}"
            self.lines.append(f"    {{{facts}}},")
        return self._numbers[key]


def _npy_type(dtype: str) -> str:
    """How .npy files name it: floats that NumPy lacks are their bits."""
    lacking = numpy_dtype(dtype).type.__module__ != "numpy"
    return np.dtype(DTYPES[dtype].word if lacking else dtype).str
