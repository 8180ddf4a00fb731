"""Seeded mutations of the built-in specs, and what must hold of each: shared by a test and a bench."""

from __future__ import annotations

import json
import random
import re
import traceback
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite
from typing import Any

from rollergen.construct import construct
from rollergen.errors import ConstructionError, DoesNotFitError
from rollergen.expr.stages import Graph
from rollergen.hal.errors import SpecError
from rollergen.hal.load import device_names, parse_device

NUMBERS = (0, 1, 2, 3, 5, 7, 31, 33, 1000, 10**6, 2**31, 2**52, 2**53 + 2, -1, 0.5, 1e-9, 1e-300, 1e300, 1.5)
FACTORS = (0.01, 0.1, 0.5, 0.9, 1.1, 2, 3, 7, 10, 100)
OTHERS = (None, True, "", "1", "registers", [], {}, [1], {"value": 1})
Mutation = tuple[int, str, str, bytes]
"""Number, device, what was changed, the JSON."""
_PATH = re.compile(r"[a-z_]+(\[\d+\])?(\.[a-z0-9_-]+(\[\d+\])?)*(?![\w])")


@dataclass(frozen=True, slots=True)
class Outcome:
    """``state``: refused | constructed | wrong; ``text``: the refusal, or what went wrong."""

    number: int
    device: str
    change: str
    state: str
    text: str


def mutations(count: int, seed: int = 0) -> Iterator[Mutation]:
    """The same ones for the same seed."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        name = rng.choice(device_names())
        document = json.loads(files("rollergen.devices").joinpath(f"{name}.json").read_text())
        changes = [_mutate(document, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        yield number, name, "; ".join(changes), json.dumps(document).encode()


def outcome(number: int, device: str, change: str, content: bytes, graphs: Mapping[str, Graph]) -> Outcome:
    """Refused with a JSON path, or every graph is constructed with finite positive predictions; else wrong."""
    made = lambda state, text="": Outcome(number, device, change, state, text)
    try:
        mutated = parse_device(content, "mutated.json")
    except SpecError as error:
        found = re.fullmatch(r"mutated\.json: (.*)", str(error).split("\n")[0])
        return made("refused" if found and _PATH.match(found[1]) else "wrong", str(error))
    except Exception:
        return made("wrong", traceback.format_exc(limit=-6))
    for name, graph in graphs.items():
        try:
            ranked = construct(graph, mutated, top_k=3)
        except DoesNotFitError as error:
            if not re.search(r"\d+ bytes too many", str(error)):
                return made("wrong", f"{name}: {error}")
        except ConstructionError as error:
            return made("wrong", f"{name}: {error}")
        except Exception:
            return made("wrong", f"{name}: {traceback.format_exc(limit=-6)}")
        else:
            bad = [one.seconds for one in ranked if not (isfinite(one.seconds) and one.seconds > 0)]
            if bad or not ranked:
                return made("wrong", f"{name}: predicted {bad}")
    return made("constructed")


def _mutate(document: Any, rng: random.Random) -> str:
    """Changes one place of the document; nine times in ten a number to another number."""
    places = list(_places(document, ""))
    numbers = [place for place in places if _is_number(place[0][place[1]])]
    parent, key, path = rng.choice(numbers if rng.random() < 0.9 else places)
    old = parent[key]
    if _is_number(old) and rng.random() < 0.9:
        value = rng.choice(FACTORS) * old if rng.random() < 0.6 else rng.choice(NUMBERS)
        parent[key] = round(value) if isinstance(old, int) and rng.random() < 0.9 else value
    elif rng.random() < 0.4:
        del parent[key]
        return f"{path} deleted"
    else:
        parent[key] = deepcopy(rng.choice(OTHERS))  # a later change of this mutation may reach into it
    return f"{path}: {str(old)[:40]} -> {str(parent[key])[:40]}"


def _places(node: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        where = f"{path}[{key}]" if isinstance(node, list) else f"{path}.{key}".lstrip(".")
        if key in ("sources", "notes", "verified"):  # texts that nothing reads
            continue
        yield node, key, where
        yield from _places(item, where)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
