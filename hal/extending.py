"""A spec may extend another one and state only what differs: `extends` names its parent.

    {"format": ..., "name": "v100-sxm2", "title": ..., "extends": "v100", "clock_mhz": 1530}

Objects are merged key by key; memory layers and instructions by their names, a new one behind the one that stands
before it in the child (else at the end); figures, and all other lists, are replaced whole.  Name, title, notes
and what was verified are the child's own.  Kind and source stay with each figure, whichever file states it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollergen.hal.declared import declarations
from rollergen.hal.errors import SpecError
from rollergen.hal.files.bounded import shown
from rollergen.hal.spec import Device

KEY = "extends"
MOST_PARENTS = 4
OWN = ("name", "title")
"""Keys that every file states itself."""
_NOT_INHERITED = (*OWN, "notes", "verified")
_BY_NAME = {
    key: said.bounds["maxItems"] for key, (_, said) in declarations(Device).items() if said.extended and said.bounds
}
"""Lists whose parts are merged by their names, with how many parts the schema allows."""

Parent = tuple[Any, str, str]
"""A document, where it was read, and what no other file is called."""
Find = Callable[[str, str], Parent]
"""From what `extends` says and where it stands: the parent; SpecError where there is none."""


def is_figure(node: Any) -> bool:
    """An object that is one figure with its provenance; texts by name, as a dialect holds them, are none."""
    return isinstance(node, dict) and "kind" in node and not isinstance(node.get("value", ""), str)


def completed(document: Any, where: str, identity: str, find: Find) -> Any:
    """The document with everything that its parents state.

    Raises SpecError, with the JSON path `extends`: for a parent that cannot be had, for a line of parents that
    comes back to itself or is longer than `MOST_PARENTS`.
    """
    whole, children, seen = document, list[tuple[dict[str, Any], str]](), [identity]
    while isinstance(whole, dict) and KEY in whole:
        named = whole[KEY]
        if not isinstance(named, str) or not named or len(named) > 1000:
            raise SpecError(f"{where}: {KEY} is {shown(named)}; expected the name of a device, or of a .json file")
        if len(children) == MOST_PARENTS:
            raise SpecError(f"{where}: {KEY} leads through more than {MOST_PARENTS} files; expected at most that many")
        _require_own(whole, where)
        children.append((whole, where))
        whole, parent_where, identity = find(named, where)
        if identity in seen:
            raise SpecError(f"{where}: {KEY} comes back to {shown(parent_where)}; expected a line that ends")
        seen.append(identity)
        where = parent_where
    for document, where in reversed(children if isinstance(whole, dict) else ()):
        child = {key: item for key, item in document.items() if key != KEY}
        _refuse_other_sources(whole, child, where)
        whole = _merged({key: item for key, item in whole.items() if key not in _NOT_INHERITED}, child)
    return whole


def _require_own(document: dict[str, Any], where: str) -> None:
    for key in OWN:
        if key not in document:
            raise SpecError(f"{where}: {key} is missing; expected it in every file, as it is not taken from {KEY}")


def _refuse_other_sources(parent: dict[str, Any], child: dict[str, Any], where: str) -> None:
    """One key of sources would otherwise mean two things."""
    old, new = parent.get("sources"), child.get("sources")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for key in new:
        if key in old and old[key] != new[key]:
            raise SpecError(
                f"{where}: sources.{shown(key)[1:-1]} is another text than in the device that is extended; "
                "expected the same text, or another key"
            )


def _merged(parent: Any, child: Any, key: str = "") -> Any:
    if key in _BY_NAME and isinstance(parent, list) and isinstance(child, list):
        if len(child) > _BY_NAME[key]:
            return child  # which the schema refuses
        return _merged_by_name(parent, child)
    plain = isinstance(parent, dict) and isinstance(child, dict) and not is_figure(parent) and not is_figure(child)
    if not plain:
        return child
    return {**parent, **{k: _merged(parent[k], item, k) if k in parent else item for k, item in child.items()}}


def _merged_by_name(parent: list[Any], child: list[Any]) -> list[Any]:
    whole, at = list(parent), len(parent)
    for item in child:
        name = item.get("name") if isinstance(item, dict) else None
        known = [n for n, other in enumerate(whole) if isinstance(other, dict) and other.get("name") == name]
        if name is not None and known:
            at = known[0]
            whole[at] = _merged(whole[at], item)
        else:
            whole.insert(at, item)
        at += 1
    return whole
