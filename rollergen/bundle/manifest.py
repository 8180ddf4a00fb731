"""What a saved kernel holds, and the manifest that describes it (format: schema.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from rollergen import __version__
from rollergen.bundle.references import SelfTest
from rollergen.emit import Launch, Source
from rollergen.errors import BundleError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.places import Updated
from rollergen.expr.takes import Bounded
from rollergen.expr.values import Buffer
from rollergen.gate.blocks import blocks_of
from rollergen.gate.narrowing import program_accuracies
from rollergen.gate.tolerance import CONFIDENCE, unit_roundoff
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import SpecError, refused
from rollergen.hal.files.bounded import read_json
from rollergen.hal.languages import language
from rollergen.hal.load import device_hash
from rollergen.hal.probes.host import completed_on
from rollergen.hal.runtimes.opencl_devices import GPU, PLATFORM
from rollergen.hal.spec import Device
from rollergen.hal.spec_schema import findings, validator
from rollergen.measure.outcome import Outcome
from rollergen.program.rprogram import RProgram
from rollergen.runtime.signature import Signature

FORMAT = "rollergen.bundle.v1"
MANIFEST = "manifest.json"
SOURCE = "kernel"
"""What the file of the source is called, but for its suffix."""

MOST_BYTES = 64_000_000
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that a bundle keeps of a kernel.

    ``candidates``: all that were proposed, in the model's order, with ``chosen`` among them; ``cuts`` and
    ``growth``: the notes of its explanation; ``tests``: those of the self-test.
    """

    device: Device
    candidates: tuple[Outcome, ...]
    chosen: Outcome
    cuts: tuple[str, ...]
    growth: tuple[str, ...]
    tests: tuple[SelfTest, ...]


def source_file(name: str) -> str:
    """The file of source in a language."""
    return f"{SOURCE}.{language(name).suffix}"


def described(contents: Contents, hashes: Mapping[str, str]) -> dict[str, Any]:
    """The manifest; ``hashes``: SHA-256 of every other file by its name."""
    chosen, program = contents.chosen, contents.chosen.program
    return {
        "format": FORMAT,
        "rollergen": __version__,
        "signature": str(Signature(program.inputs, program.outputs)),
        "language": chosen.source.language,
        "source": source_file(chosen.source.language),
        "device": _device(contents.device),
        "buffers": buffers(program),
        "launches": launches(chosen.source),
        "packing": _packing(program, chosen.source),
        "tolerance": _tolerance(program),
        "times": {
            "predicted_seconds": chosen.predicted_s,
            "measured_seconds": chosen.wall_s,
            "device_seconds": chosen.event_s,
            "rounds": chosen.rounds,
        },
        "cuts": list(contents.cuts),
        "construction": list(contents.growth),
        "files": dict(hashes),
    }


def _device(device: Device) -> dict[str, Any]:
    """``type`` cpu: any CPU will do; other: an OpenCL device whose name contains one of ``names``, of the ``platform``
    where the spec names one."""
    dialects = [dict(target.dialect) for target in device.targets]
    names = [target.arch or of.get(GPU, "") for target, of in zip(device.targets, dialects, strict=True)]
    platform = next((of[PLATFORM] for of in dialects if PLATFORM in of), None)
    return {
        "name": device.name,
        "title": device.title,
        "type": "other" if completed_on(device) is None else "cpu",
        "names": list(dict.fromkeys(filter(None, names))) or [device.name],
        **({} if platform is None else {"platform": platform}),
        "spec_sha256": device_hash(device),
    }


def buffers(program: RProgram) -> list[dict[str, Any]]:
    """All buffers, inputs first and in the order of the call; ``strides`` in elements; ``bounds`` of an `rg.scalar`.

    Outputs that are ``updated`` come before the inputs in a call.
    """
    roles = (("input", program.inputs), ("temporary", program.temporaries), ("output", program.outputs))
    return [_buffer(role, buffer) for role, several in roles for buffer in several]


def _buffer(role: str, buffer: Buffer) -> dict[str, Any]:
    strides, step = [], 1
    for extent in reversed(buffer.shape):
        strides.append(step)
        step *= extent
    own: dict[str, Any] = {"bounds": [buffer.low, buffer.high]} if isinstance(buffer, Bounded) else {}
    own |= {"updated": True} if isinstance(buffer, Updated) else {}
    return own | {
        "name": buffer.name,
        "role": role,
        "constant": buffer.constant,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "layout": "row-major",
        "strides": strides[::-1],
        "bytes": buffer.elements * ITEMSIZE[buffer.dtype],
    }


def launches(source: Source) -> list[dict[str, Any]]:
    """The launches in order; their arguments are names of buffers."""
    return [
        {
            "entry": one.entry,
            "blocks": one.blocks,
            "threads": one.threads,
            "once": one.once,
            "arguments": list(one.arguments),
            "private_bytes": one.private_bytes,
            "local_bytes": one.local_bytes,
            "dynamic_bytes": one.dynamic_bytes,
            "alone": one.alone,
            **({"maps": [list(words) for words in one.maps]} if one.maps else {}),
        }
        for one in source.launches
    ]


def launches_of(data: Sequence[Mapping[str, Any]]) -> tuple[Launch, ...]:
    """The launches that `launches` described; earlier versions told neither their memory nor who runs them."""
    return tuple(
        Launch(
            one["entry"], one["blocks"], one["threads"], tuple(one["arguments"]), one["once"],
            one.get("private_bytes", 0), one.get("local_bytes", 0),
            one.get("dynamic_bytes", 0), one.get("alone", False),
            maps=tuple(map(tuple, one.get("maps", ()))),
        )
        for one in data
    )  # fmt: skip


def _packing(program: RProgram, source: Source) -> dict[str, Any]:
    once = [launch for launch in source.launches if launch.once]
    used = {name for launch in once for name in launch.arguments}
    return {
        "how": "launches marked once fill these temporaries from constant inputs: run them, in order, before the "
        "first call and whenever a constant input changes",
        "constants": [b.name for b in program.inputs if b.constant],
        "temporaries": [b.name for b in program.temporaries if b.name in used],
    }


def _tolerance(program: RProgram) -> dict[str, Any]:
    known = program_accuracies(blocks_of(program))
    outputs = {
        b.name: {
            "variance": known[b.name].variance,
            "steps": known[b.name].absolute,
            "unit_roundoff": unit_roundoff(b.dtype),
        }
        for b in program.outputs
    }
    rule = (
        "|got - want| <= confidence * sqrt(variance) * max(|want|, rms of all wants) + unit_roundoff * |want| + the "
        "smallest normal number + steps; where variance is 0: got == want rounded to the dtype"
    )
    return {"rule": rule, "confidence": CONFIDENCE, "outputs": outputs}


@lru_cache(maxsize=1)
def _validator() -> Any:
    return validator(files("rollergen.bundle").joinpath("schema.json").read_text("utf-8"))


def checked_json(content: bytes, where: str) -> Any:
    """The value of a JSON text of bounded size and depth; BundleError, which starts with `where`."""
    try:
        return read_json(content, where, most_bytes=MOST_BYTES, deepest=_DEEPEST)
    except SpecError as error:
        raise BundleError(str(error)) from None


def parse(content: bytes, where: str) -> dict[str, Any]:
    """A manifest as it stands in the file; BundleError with the JSON path of what breaks the format."""
    document = checked_json(content, where)
    if found := findings(_validator(), document):
        raise BundleError(str(refused(where, found)))
    return document
