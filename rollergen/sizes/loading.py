"""Kernels for all sizes from directories (`saving`): nothing is believed before it is checked, and nothing is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from rollergen.bundle.manifest import MANIFEST, MOST_BYTES, checked_json
from rollergen.errors import BundleError, RollergenError
from rollergen.expr.dims import dim
from rollergen.hal.load import parse_device
from rollergen.kernel import Kernel
from rollergen.loading import load as load_kernel
from rollergen.program import serial
from rollergen.sizes.facts import map_of_facts
from rollergen.sizes.kernel import Place, SizedKernel, programs_of
from rollergen.sizes.saving import DEVICE, FACTS, FORMAT, Shapes, Sizes, own_name


def load(directory: str | Path) -> SizedKernel:
    """The kernel that `saving.save` wrote.  BundleError: another format, a file that was changed or means nothing."""
    folder = Path(directory)
    manifest = checked_json(_bytes(folder, MANIFEST), f"{folder}/{MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError(f"{folder}/{MANIFEST}: expected the format {FORMAT}")
    where = f"{folder}/{FACTS}"
    try:
        facts = checked_json(_verified(folder, manifest, FACTS), where)
        device = parse_device(_verified(folder, manifest, DEVICE), f"{folder}/{DEVICE}")
        carrier = serial.from_json(facts["buffers"])
        extents = tuple(tuple((int(a), tuple(map(str, b))) for a, b in each) for each in facts["extents"])
        shapes = Shapes(carrier.inputs, carrier.outputs, extents)
        places = [Place(dim(a, b, c), str(d), int(e), int(f), int(g)) for a, b, c, d, e, f, g in facts["places"]]
        regime = map_of_facts(facts)
        alone = [dict(sizes) for sizes in facts["alone"]]
        low = prod(one.dim.low for one in places)
        programs = programs_of(regime, low, device)
        shapes.at({one.dim.name: one.dim.high for one in places})
        notes, signature = tuple(map(str, facts["notes"])), str(facts["signature"])
    except BundleError:
        raise
    except (RollergenError, ValueError, TypeError, KeyError, IndexError, ArithmeticError, AttributeError) as error:
        raise BundleError(f"{where} means nothing: {type(error).__name__}: {error}") from None

    def own(sizes: Sizes) -> Kernel:
        return load_kernel(folder / own_name(sizes))

    graph_at = lambda sizes: None if dict(sizes) in alone else shapes.at(sizes)
    return SizedKernel(device, signature, places, regime, programs, graph_at, own, notes)


def _bytes(folder: Path, name: str) -> bytes:
    try:
        with open(folder / name, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BundleError(f"{folder / name} cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise BundleError(f"{folder / name} has more than {MOST_BYTES} bytes; expected a file that kernel.save wrote")
    return content


def _verified(folder: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    content = _bytes(folder, name)
    if hashlib.sha256(content).hexdigest() != manifest["files"].get(name):
        raise BundleError(f"{folder / name} is not what the manifest says: it was changed after it was saved")
    return content
