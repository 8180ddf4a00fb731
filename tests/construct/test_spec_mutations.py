"""Specs with one figure far off: refused with a JSON path, or good for programs with finite positive predictions."""

import json
import math
import random
from importlib.resources import files

import pytest

import rollergen as rg
from rollergen.errors import RollergenError
from rollergen.hal.errors import SpecError
from rollergen.hal.load import parse_device

FACTORS = (0, 1e-6, 0.01, 0.5, 2, 3, 100, 1e6, 1e12, -1)
NAMES = ("v100", "mi50", "ipu", "k80", "a100", "h200", "cpu")


def places(node, path=()):
    """Every figure of a document, by its path."""
    if isinstance(node, dict) and "value" in node:
        return [path]
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, item in items for found in places(item, (*path, key))]


def mutated(name, rng):
    """The document with one figure multiplied, made a text, or gone; and what was done."""
    document = json.loads(files("rollergen.devices").joinpath(f"{name}.json").read_text("utf-8"))
    *path, last = rng.choice(places(document))
    part = document
    for step in path:
        part = part[step]
    kind = rng.choice(("factor", "factor", "factor", "text", "gone"))
    if kind == "factor":
        value = part[last]["value"] * rng.choice(FACTORS)
        part[last]["value"] = int(value) if float(value).is_integer() else value
    elif kind == "text":
        part[last] = "much"
    else:
        del part[last]
    return document, f"{name}: {kind} at {path} {last}"


def expressions():
    yield rg.ops.matmul(rg.tensor("A", (300, 200)), rg.tensor("B", (200, 130)))
    yield rg.ops.softmax(rg.tensor("X", (40, 70)))


@pytest.mark.parametrize("seed", range(60))
def test_a_mutated_spec_is_refused_with_a_path_or_good_for_programs(seed):
    rng = random.Random(seed)
    document, what = mutated(rng.choice(NAMES), rng)
    try:
        device = parse_device(json.dumps(document).encode(), "mutated.json")
    except SpecError as error:
        assert str(error).startswith("mutated.json: "), what
        return
    for expression in expressions():
        try:
            programs = rg.construct(expression, device, top_k=2)
        except RollergenError as error:  # a device on which nothing fits says so
            assert "expected" in str(error) or "bytes" in str(error), (what, str(error))
            continue
        for program in programs:
            seconds = float(rg.predict(program, device).seconds)
            assert math.isfinite(seconds) and seconds > 0, (what, seconds)
