"""LightGBM's text of a model, checked before LightGBM reads it: its reader trusts what it is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from rollergen.errors import RollergenError

LARGEST_TEXT = 8 << 20
_MOST_TREES = 5000
_LARGEST_LEAF = 1e6
_HEAD = (
    "version num_class num_tree_per_iteration label_index max_feature_idx objective feature_names feature_infos "
    "tree_sizes"
)
_TREE = (
    "num_leaves num_cat split_feature split_gain threshold decision_type left_child right_child leaf_value leaf_weight "
    "leaf_count internal_value internal_weight internal_count is_linear shrinkage"
)
_HEAD_VALUE = re.compile(r"[^=\x00-\x1f\x7f-\U0010ffff]*")
_NUMBERS = re.compile(r"[-+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf|nan)( [-+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf|nan))*|", re.ASCII)

T = TypeVar("T", int, float)


class VerifierError(RollergenError, ValueError):
    """A verifier's file is damaged, truncated, or made for other features: file, what is wrong, what would be right."""


def check_model_text(text: str, features: int) -> None:
    """Raises VerifierError unless `text` is a whole model of trees over `features` features, each node within."""
    if len(text) > LARGEST_TEXT:
        raise VerifierError(f"the model has {len(text)} characters; expected at most {LARGEST_TEXT}")
    whole = text.partition("\nend of trees")[0] + "\n"
    head, *trees = re.split(r"^(?=Tree=\d+$)", whole, flags=re.MULTILINE)
    if not head.startswith("tree\n") or "\nend of trees" not in text:
        raise VerifierError("the model is no whole text of LightGBM: it begins or ends otherwise")
    if "pandas_categorical:" in text:
        raise VerifierError("the model has pandas_categorical, which LightGBM reads as JSON; expected numbers only")
    if not re.search(rf"^max_feature_idx={features - 1}$", head, re.MULTILINE):
        raise VerifierError(f"the model is not over {features} features")
    if not 1 <= len(trees) <= _MOST_TREES:
        raise VerifierError(f"the model has {len(trees)} trees; expected 1 to {_MOST_TREES}")
    for number, tree in enumerate(trees):
        _check_tree(number, tree, features)
    _check_head(head, trees)


def _check_head(head: str, trees: list[str]) -> None:
    """Each tree is read from where the sizes of those before it end: past the text, if they are not true."""
    fields = _fields("the model's head", head.removeprefix("tree\n"), _HEAD, _HEAD_VALUE)
    for name in ("num_class", "num_tree_per_iteration"):
        if fields.get(name) != "1":
            raise VerifierError(f"the model's {name} is {fields.get(name)!r:.40}; expected 1")
    if fields.get("tree_sizes", "").split(" ") != [str(len(tree.encode())) for tree in trees]:
        raise VerifierError("the model's tree_sizes are not the sizes of its trees")


def _fields(where: str, text: str, names: str, value: re.Pattern[str]) -> dict[str, str]:
    """What the lines of `text` say, by name.  Each is to be read in one way only: of what is said twice, after an empty
    line or in digits that only Python knows, LightGBM would read something else than what is checked here."""
    fields: dict[str, str] = {}
    for line in text.rstrip("\n").split("\n"):
        name, _, said = line.partition("=")
        if name in fields:
            raise VerifierError(f"{where} says {name} twice")
        if name not in names.split(" ") or not value.fullmatch(said):
            raise VerifierError(f"{where} has the line {line!r:.60}, which LightGBM does not write")
        fields[name] = said
    return fields


def _check_tree(number: int, text: str, features: int) -> None:
    fields = _fields(f"tree {number}", text.partition("\n")[2], _TREE, _NUMBERS)
    leaves = _whole(number, fields, "num_leaves", 1)[0]
    if fields.get("is_linear", "0") != "0":
        raise VerifierError(f"tree {number} has linear leaves; expected numbers")
    if _whole(number, fields, "num_cat", 1)[0] != 0:
        raise VerifierError(f"tree {number} splits by categories; expected numbers only")
    if not 1 <= leaves <= 1 << 12:
        raise VerifierError(f"tree {number} has {leaves} leaves; expected 1 to {1 << 12}")
    if not all(abs(value) <= _LARGEST_LEAF for value in _values(float, number, fields, "leaf_value", leaves)):
        raise VerifierError(f"tree {number} has a leaf_value that is no number up to {_LARGEST_LEAF:g}")
    if leaves == 1:
        return
    _values(float, number, fields, "threshold", leaves - 1)
    used = _whole(number, fields, "split_feature", leaves - 1)
    kinds = _whole(number, fields, "decision_type", leaves - 1)
    children = _whole(number, fields, "left_child", leaves - 1) + _whole(number, fields, "right_child", leaves - 1)
    if any(not 0 <= feature < features for feature in used) or any(not 0 <= kind < 16 for kind in kinds):
        raise VerifierError(f"tree {number} splits by a feature or in a way that there is not")
    if sorted(children) != [*range(-leaves, 0), *range(1, leaves - 1)]:
        raise VerifierError(f"tree {number} is no tree: its nodes do not hang together")
    for node in range(leaves - 1):
        if any(0 <= child <= node for child in (children[node], children[node + leaves - 1])):
            raise VerifierError(f"tree {number} is no tree: node {node} has a child above it")


def _whole(number: int, fields: dict[str, str], name: str, count: int) -> list[int]:
    return _values(int, number, fields, name, count)


def _values(kind: Callable[[str], T], number: int, fields: dict[str, str], name: str, count: int) -> list[T]:
    try:
        values = [kind(word) for word in fields[name].split(" ")]
    except (KeyError, ValueError):
        raise VerifierError(f"tree {number} has no proper {name}") from None
    if len(values) != count:
        raise VerifierError(f"tree {number}: {name} has {len(values)} values; expected {count}")
    return values
