"""Problems in words, as the command line takes them: an operator with sizes, or an einsum string with sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import rollergen as rg
from rollergen.bench.catalogue import OPERATORS, Operator
from rollergen.errors import ArgumentError, name_advice
from rollergen.expr.operators.arguments import NUMPY

_REAL = r"-?(\d+\.\d*|\.\d+|\d+(?=e))(e-?\d+)?"


def parse_sizes(words: Sequence[str]) -> dict[str, Any]:
    """``m=1024`` is a number, ``shape=4x5`` a shape, ``axis=0,1`` a tuple, ``mode=edge`` a word; each name once."""
    sizes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise ArgumentError(f"{word!r} is no size; expected name=number, such as m=1024 or shape=64x128")
        if name in sizes:
            raise ArgumentError(f"{name} is given twice")
        sizes[name] = _parse_size(name, text)
    return sizes


def _parse_size(name: str, text: str) -> Any:
    if name == "shape":
        if not re.fullmatch(r"\d{1,18}(x\d{1,18})*", text):
            raise ArgumentError(f"shape is {text!r}; expected numbers joined by x, such as shape=64x128")
        return tuple(int(part) for part in text.split("x"))
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}(,-?\d{1,18})+", text):
        return tuple(int(part) for part in text.split(","))
    if re.fullmatch(_REAL, text):
        return float(text)
    if re.fullmatch(r"[a-z]\w*", text):
        return text
    raise ArgumentError(f"{name} is {text!r}; expected an integer, such as {name}=64")


def expression(problem: str, words: Sequence[str], dtype: str = "float32") -> Any:
    """The tensor that ``problem`` (an operator's name or an einsum string) with its sizes describes.

    ``SUITE:ENTRY``, such as roller:C0, takes no sizes.  Raises ArgumentError for an unknown operator and for
    sizes that are missing or unknown.
    """
    sizes = parse_sizes(words)
    suite_name, colon, entry = problem.partition(":")
    if colon:
        if sizes:
            raise ArgumentError(f"{problem} is an entry of a suite and has its sizes; expected no {words[0]!r}")
        from rollergen.bench.suites import suite  # here, so that errors in an operator come sooner

        return suite(suite_name).entry(entry).make()
    if problem in OPERATORS:
        return OPERATORS[problem].make(operator_sizes(OPERATORS[problem], sizes), dtype)
    if "," in problem or "->" in problem:
        return _einsum(problem, sizes, dtype)
    raise ArgumentError(f"there is no operator {problem!r}; {name_advice(problem, OPERATORS)}, or an einsum string")


def operator_sizes(operator: Operator, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """All sizes and options of an operator, the defaults too.  Raises ArgumentError for missing and unknown ones."""
    defaults = dict(operator.optional)
    sizes = {NUMPY.get(name, name) if NUMPY.get(name) in defaults else name: value for name, value in sizes.items()}
    _check_names(operator.name, sizes, operator.sizes, [*operator.arguments, *defaults], operator.example)
    missing = [name for name in operator.arguments if name not in sizes]
    if missing:
        raise ArgumentError(f"{operator.name} lacks {', '.join(missing)}; an example: {operator.example}")
    is_flag = lambda name: isinstance(defaults.get(name), bool)
    given = {name: _flag(name, value) if is_flag(name) else value for name, value in sizes.items()}
    return defaults | given


def _flag(name: str, value: Any) -> bool:
    if value not in (0, 1):
        raise ArgumentError(f"{name} is {value!r}; expected 0 or 1")
    return bool(value)


def _check_names(
    problem: str, sizes: Mapping[str, Any], required: Sequence[str], optional: Sequence[str], example: str
) -> None:
    missing = [name for name in required if name not in sizes]
    if missing:
        raise ArgumentError(f"{problem} lacks {', '.join(missing)}; an example: {example}")
    unknown = [name for name in sizes if name not in required and name not in optional]
    if unknown:
        advice = f"--dtype {sizes['dtype']}" if unknown[0] == "dtype" else ", ".join([*required, *optional])
        raise ArgumentError(f"{problem} has no size {unknown[0]!r}; expected {advice}")
    for name in required:
        if name != "shape" and not isinstance(sizes[name], int):
            raise ArgumentError(f"{name} is {sizes[name]!r}; expected an integer, such as {name}=64")


def _einsum(subscripts: str, sizes: Mapping[str, Any], dtype: str) -> Any:
    if "." in subscripts:
        raise ArgumentError(f'einsum "{subscripts}": an ellipsis has no sizes here; expected a letter for every axis')
    operands = subscripts.replace(" ", "").partition("->")[0].split(",")
    letters = list(dict.fromkeys("".join(operands)))
    if strange := [letter for letter in letters if not letter.isalpha()]:
        raise ArgumentError(f'einsum "{subscripts}": {strange[0]!r} is no axis; expected letters, such as "mk,kn->mn"')
    example = f'"{subscripts}" ' + " ".join(f"{letter}=64" for letter in letters)
    _check_names(f'einsum "{subscripts}"', sizes, letters, (), example)
    tensors = [
        rg.tensor(chr(ord("A") + number), tuple(sizes[letter] for letter in operand), dtype)
        for number, operand in enumerate(operands)
    ]
    return rg.einsum(subscripts, *tensors, name="Y")
