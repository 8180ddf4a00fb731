"""Models as directories: kernels, weights and the steps between them, checked by their hashes."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from rollergen import __version__
from rollergen.bundle.manifest import MANIFEST
from rollergen.bundle.write import HEADERS, take_place, temporary_beside
from rollergen.errors import ArgumentError, BundleError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.hal.languages import language
from rollergen.hal.spec import Device
from rollergen.importers.graph import Network, Node, NotExpressedError, Value, leaves_by_name, one_or_several
from rollergen.kernel import Kernel
from rollergen.loading import load as load_kernel
from rollergen.network.partition import Step
from rollergen.network.tables import tables

FORMAT = "rollergen.model.v1"
MODEL, WEIGHTS = "model.json", "weights.bin"
LAUNCHERS, TABLES = ("run.py", "run.c", "Makefile"), "model_tables.h"
"""What every model in a language with launchers carries, as it stands under templates/, with the bundles' `HEADERS`."""
ALIGNMENT_BYTES = 64
"""Of every weight's first byte in its file."""


def save(
    directory: str | Path, network: Network, steps: Sequence[Step], kernels: Sequence[Kernel | None], device: Device
) -> Path:
    """Writes a model, whole or not at all; see `Model.save`."""
    host = [step for step, kernel in zip(steps, kernels, strict=True) if kernel is None]
    if host:
        named = "; ".join(f"{step.source}: {step.operators} ({step.reason})" for step in host)
        raise ArgumentError(f"the model has steps that its own library runs, which cannot be saved: {named}")
    if not steps:
        raise ArgumentError(f"{network.title} has no kernel to save: its results are inputs and constants")
    target = Path(directory).resolve()
    if target.is_file() or (target.is_dir() and any(target.iterdir()) and not (target / MODEL).is_file()):
        raise BundleError(f"{target} exists; expected a new name, an empty directory or a saved model")
    distinct = list(dict.fromkeys(one for one in kernels if one is not None))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(target) as fresh:
            for number, kernel in enumerate(distinct):
                kernel.save(fresh / "kernels" / str(number))
            held = _write_weights(fresh / WEIGHTS, network, steps)
            described: dict[str, Any] = {
                "format": FORMAT, "rollergen": __version__, "title": network.title, "device": device.name,
                "inputs": [_described(one) for one in network.inputs], "outputs": list(network.outputs),
                "weights": held,
                "steps": [
                    {"kernel": distinct.index(kernel), "source": step.source, "operators": step.operators,
                     "inputs": list(step.inputs), "output": _described(step.outputs[0])}
                    for step, kernel in zip(steps, kernels, strict=True) if kernel is not None
                ],
            }  # fmt: skip
            if language(device.kind.language).launchers:
                measured = [one.measured_time for one in kernels if one is not None]
                measured_s = None if None in measured else sum(filter(None, measured))
                times_s = sum(one.predicted_time for one in kernels if one is not None), measured_s
                _write_launchers(fresh, described, len(distinct), times_s)
            described["files"] = {one.name: _sha256(one) for one in sorted(fresh.iterdir()) if one.is_file()}
            (fresh / MODEL).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
            take_place(fresh, target)
    except OSError as error:
        raise BundleError(f"{target}: the model cannot be saved there: {error.strerror or error}") from None
    return target


def _write_launchers(
    directory: Path, described: Mapping[str, Any], kernels: int, times_s: tuple[float, float | None]
) -> None:
    for package, names in (("rollergen.network", LAUNCHERS), ("rollergen.bundle", HEADERS)):
        for name in names:
            (directory / name).write_bytes(files(package).joinpath("templates", name).read_bytes())
    manifests = [json.loads((directory / "kernels" / str(n) / MANIFEST).read_text("utf-8")) for n in range(kernels)]
    held = zlib.crc32((directory / WEIGHTS).read_bytes())
    (directory / TABLES).write_text(tables(described, manifests, times_s, held), encoding="utf-8")


def _described(value: Value) -> dict[str, Any]:
    return {"name": value.name, "shape": list(value.shape or ()), "dtype": value.dtype}


def _write_weights(path: Path, network: Network, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Where each weight lies that a step reads, or that is a result."""
    read = dict.fromkeys(name for step in steps for name in step.inputs if name in network.constants)
    read |= dict.fromkeys(name for name in network.outputs if name in network.constants)
    held, end = [], 0
    with path.open("wb") as file:
        for name in read:
            array = network.constants[name]
            content = array.tobytes()
            held.append({"name": name, "shape": list(array.shape), "dtype": array.dtype.name, "offset": end})
            file.write(content + bytes(-len(content) % ALIGNMENT_BYTES))
            end += len(content) + -len(content) % ALIGNMENT_BYTES
    return held


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def is_model(directory: str | Path) -> bool:
    """Whether a model was saved there, rather than a kernel."""
    return (Path(directory) / MODEL).is_file()


def read(directory: str | Path) -> tuple[Network, tuple[Step, ...], tuple[Kernel, ...], Device]:
    """(network, steps, the kernel of each, device) of a saved model.

    Raises BundleError for another format, a damaged file, and steps that do not fit their kernels; nothing is run.
    """
    root = Path(directory)
    where = f"{root}/{MODEL}"
    try:
        found = json.loads((root / MODEL).read_text("utf-8"))
        if found["format"] != FORMAT:
            raise BundleError(f"{where}: format is {found['format']!r}; expected {FORMAT!r}")
        if _sha256(root / WEIGHTS) != found["files"][WEIGHTS]:
            raise BundleError(f"{root}/{WEIGHTS}: its SHA-256 is not the one in {MODEL}; expected the file as saved")
        kernels = _kernels(root, found["steps"])
        inputs = tuple(map(_value, found["inputs"]))
        constants = _weights(root / WEIGHTS, found["weights"])
        steps = tuple(map(_step, found["steps"]))
        _check(steps, kernels, inputs, constants, found["outputs"], where)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{where}: no saved model, or a damaged one: {type(error).__name__}: {error}") from None
    names = [one.name for one in inputs]
    title = str(found["title"])
    nodes = tuple(node for step in steps for node in step.nodes)
    leaves = leaves_by_name(title, names)
    network = Network(title, inputs, tuple(found["outputs"]), constants, nodes, leaves, one_or_several)
    return network, steps, kernels, kernels[0].device


def _kernels(root: Path, steps: Sequence[Mapping[str, Any]]) -> tuple[Kernel, ...]:
    loaded: dict[int, Kernel] = {}
    for step in steps:
        number = step["kernel"]
        if not re.fullmatch(r"\d+", str(number)):
            raise ValueError(f"kernel is {number!r}; expected a number")
        if number not in loaded:
            loaded[number] = load_kernel(root / "kernels" / str(number))
    return tuple(loaded[step["kernel"]] for step in steps)


def _value(described: Mapping[str, Any]) -> Value:
    shape = described["shape"]
    if described["dtype"] not in ITEMSIZE or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"{described['name']} is {described['dtype']}{shape}; expected a dtype and positive extents")
    return Value(str(described["name"]), tuple(shape), described["dtype"])


def _step(described: Mapping[str, Any]) -> Step:
    def unknown(*_: Any) -> Any:
        raise NotExpressedError("a saved model has kernels, no definitions")

    output = _value(described["output"])
    names = tuple(map(str, described["inputs"]))
    node = Node(str(described["source"]), str(described["operators"]), names, (output,), unknown, unknown)
    return Step((node,), names, (output,))


def _weights(path: Path, held: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    found: dict[str, np.ndarray] = {}
    end = 0
    for one in held:
        value, start = _value(one), one["offset"]
        if type(start) is not int or start != end or not start <= len(content) - value.size_bytes:
            raise ValueError(f"{value.name} begins at {start}; expected {end} of {WEIGHTS}, behind the last one")
        end += value.size_bytes + -value.size_bytes % ALIGNMENT_BYTES
        flat = content[start : start + value.size_bytes].view(numpy_dtype(value.dtype))
        found[value.name] = np.asarray(flat).reshape(value.shape or ())
    return found


def _check(
    steps: Sequence[Step], kernels: Sequence[Kernel], inputs: Sequence[Value], constants: Mapping[str, np.ndarray],
    outputs: Sequence[str], where: str,
) -> None:  # fmt: skip
    """BundleError where a step reads what is not there yet, or its kernel is of other arrays."""
    known = {one.name: (tuple(one.shape or ()), one.dtype) for one in inputs}
    known |= {name: (one.shape, one.dtype.name) for name, one in constants.items()}
    for step, kernel in zip(steps, kernels, strict=True):
        wanted = [(b.shape, b.dtype) for b in (*kernel.program.inputs, *kernel.program.outputs)]
        output = step.outputs[0]
        given = [known.get(name) for name in step.inputs] + [(output.shape, output.dtype)]
        if given != wanted:
            raise BundleError(f"{where}: {step.source} has {given}; expected {wanted} of {kernel.signature}")
        known[output.name] = (tuple(output.shape or ()), output.dtype)
    if missing := [name for name in outputs if name not in known]:
        raise BundleError(f"{where}: output {missing[0]} is made by no step")
