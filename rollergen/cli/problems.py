"""What the command line builds: an operator with sizes, or an einsum string with sizes."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rollergen as rg
from rollergen.errors import ArgumentError
from rollergen.suites import suite

Shape = tuple[int, ...]


def _matrices(m: int, n: int, k: int, dtype: str, transpose_a: int = 0, transpose_b: int = 0) -> tuple[Any, Any]:
    a = rg.tensor("A", (k, m) if transpose_a else (m, k), dtype)
    return a, rg.tensor("B", (n, k) if transpose_b else (k, n), dtype)


def matmul(m: int, n: int, k: int, *, transpose_a: int = 0, transpose_b: int = 0, dtype: str) -> Any:
    """C[m, n] = sum over k of A B"""
    a, b = _matrices(m, n, k, dtype, transpose_a, transpose_b)
    return rg.ops.matmul(a, b, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b), name="C")


def matmul_bias_relu(m: int, n: int, k: int, *, dtype: str) -> Any:
    """max(A B + bias, 0) in one kernel"""
    a, b = _matrices(m, n, k, dtype)
    return rg.ops.relu(rg.ops.bias_add(rg.ops.matmul(a, b), rg.tensor("bias", (n,), dtype)), name="C")


def batch_matmul(b: int, m: int, n: int, k: int, *, dtype: str) -> Any:
    """C[b, m, n] = sum over k of A[b] B[b]"""
    return rg.ops.batch_matmul(rg.tensor("A", (b, m, k), dtype), rg.tensor("B", (b, k, n), dtype), name="C")


def conv2d(
    n: int, c: int, h: int, w: int, f: int, kh: int, kw: int, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, dtype: str,
) -> Any:  # fmt: skip
    """image (n, c, h, w) with f filters of kh x kw; stride, padding, dilation: one number or two, as 2,1"""
    if groups < 1 or c % groups:
        raise ArgumentError(f"groups is {groups}; expected a divisor of c={c}")
    image, weight = rg.tensor("image", (n, c, h, w), dtype), rg.tensor("weight", (f, c // groups, kh, kw), dtype)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return rg.ops.conv2d(image, weight, **options, name="Y")


def relu(shape: Shape, *, dtype: str) -> Any:
    """max(X, 0)"""
    return rg.ops.relu(rg.tensor("X", shape, dtype), name="Y")


def exp(shape: Shape, *, dtype: str) -> Any:
    """e to the power of X"""
    return rg.ops.exp(rg.tensor("X", shape, dtype), name="Y")


def add(shape: Shape, *, dtype: str) -> Any:
    """A + B"""
    return rg.ops.add(rg.tensor("A", shape, dtype), rg.tensor("B", shape, dtype), name="Y")


def mul(shape: Shape, *, dtype: str) -> Any:
    """A * B, element by element"""
    return rg.ops.mul(rg.tensor("A", shape, dtype), rg.tensor("B", shape, dtype), name="Y")


def bias_add(shape: Shape, *, axis: int = 1, dtype: str) -> Any:
    """X plus a vector along one axis"""
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"axis is {axis}; expected {-len(shape)} to {len(shape) - 1} for shape {shape}")
    return rg.ops.bias_add(rg.tensor("X", shape, dtype), rg.tensor("bias", (shape[axis],), dtype), axis=axis, name="Y")


def sum(shape: Shape, *, axis: Any = None, dtype: str) -> Any:
    """sum over one axis, several as 0,1, or all"""
    return rg.ops.sum(rg.tensor("X", shape, dtype), axis, name="Y")


def max(shape: Shape, *, axis: Any = None, dtype: str) -> Any:
    """largest element over one axis, several as 0,1, or all"""
    return rg.ops.max(rg.tensor("X", shape, dtype), axis, name="Y")


def mean(shape: Shape, *, axis: Any = None, dtype: str) -> Any:
    """arithmetic mean over one axis, several as 0,1, or all"""
    return rg.ops.mean(rg.tensor("X", shape, dtype), axis, name="Y")


def softmax(shape: Shape, *, axis: int = -1, dtype: str) -> Any:
    """softmax along one axis"""
    return rg.ops.softmax(rg.tensor("X", shape, dtype), axis, name="Y")


def transpose(shape: Shape, *, axes: Any = None, dtype: str) -> Any:
    """X with its axes permuted (reversed unless axes=1,0,2 says otherwise)"""
    return rg.ops.transpose(rg.tensor("X", shape, dtype), axes, name="Y")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the command line: its sizes by name, optional ones with their defaults."""

    name: str
    summary: str
    required: tuple[str, ...]
    optional: tuple[tuple[str, Any], ...]
    example: str
    make: Callable[..., Any]

    @property
    def usage(self) -> str:
        return " ".join([*(f"{n}=.." for n in self.required), *(f"[{n}={v}]" for n, v in self.optional)])


def _operator(make: Callable[..., Any], example: str) -> Operator:
    parameters = [p for p in inspect.signature(make).parameters.values() if p.name != "dtype"]
    empty = inspect.Parameter.empty
    required = tuple(p.name for p in parameters if p.default is empty)
    optional = tuple((p.name, p.default) for p in parameters if p.default is not empty)
    name = make.__name__
    return Operator(name, (make.__doc__ or "").strip(), required, optional, f"{name} {example}", make)


OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        _operator(matmul, "m=1024 n=1024 k=1024"),
        _operator(matmul_bias_relu, "m=1024 n=1024 k=1024"),
        _operator(batch_matmul, "b=8 m=256 n=256 k=64"),
        _operator(conv2d, "n=1 c=64 h=56 w=56 f=64 kh=3 kw=3 padding=1"),
        _operator(relu, "shape=4096x4096"),
        _operator(exp, "shape=4096x1024"),
        _operator(add, "shape=4096x4096"),
        _operator(mul, "shape=4096x4096"),
        _operator(bias_add, "shape=1x64x56x56 axis=1"),
        _operator(sum, "shape=4096x1024 axis=-1"),
        _operator(max, "shape=4096x1024 axis=0"),
        _operator(mean, "shape=4096x1024 axis=-1"),
        _operator(softmax, "shape=4096x1024"),
        _operator(transpose, "shape=4096x4096"),
    )
}


def parse_sizes(words: Sequence[str]) -> dict[str, Any]:
    """``m=1024`` is a number, ``shape=4x5`` a shape, ``axis=0,1`` a tuple; each name once."""
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
        if not re.fullmatch(r"\d+(x\d+)*", text):
            raise ArgumentError(f"shape is {text!r}; expected numbers joined by x, such as shape=64x128")
        return tuple(int(part) for part in text.split("x"))
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+(,-?\d+)+", text):
        return tuple(int(part) for part in text.split(","))
    if text in ("same", "valid"):
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
        return suite(suite_name).entry(entry).make()
    if problem in OPERATORS:
        operator = OPERATORS[problem]
        _check_names(problem, sizes, operator.required, [name for name, _ in operator.optional], operator.example)
        return operator.make(**sizes, dtype=dtype)
    if "," in problem or "->" in problem:
        return _einsum(problem, sizes, dtype)
    near = difflib.get_close_matches(problem, OPERATORS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(OPERATORS)}, or an einsum string"
    raise ArgumentError(f"there is no operator {problem!r}{hint}")


def _check_names(
    problem: str, sizes: Mapping[str, Any], required: Sequence[str], optional: Sequence[str], example: str
) -> None:
    missing = [name for name in required if name not in sizes]
    if missing:
        raise ArgumentError(f"{problem} lacks {', '.join(missing)}; an example: {example}")
    unknown = [name for name in sizes if name not in required and name not in optional]
    if unknown:
        raise ArgumentError(f"{problem} has no size {unknown[0]!r}; expected {', '.join([*required, *optional])}")
    for name in required:
        if name != "shape" and not isinstance(sizes[name], int):
            raise ArgumentError(f"{name} is {sizes[name]!r}; expected an integer, such as {name}=64")


def _einsum(subscripts: str, sizes: Mapping[str, Any], dtype: str) -> Any:
    operands = subscripts.replace(" ", "").partition("->")[0].split(",")
    letters = list(dict.fromkeys("".join(operands)))
    example = f'"{subscripts}" ' + " ".join(f"{letter}=64" for letter in letters)
    _check_names(f'einsum "{subscripts}"', sizes, letters, (), example)
    tensors = [
        rg.tensor(chr(ord("A") + number), tuple(sizes[letter] for letter in operand), dtype)
        for number, operand in enumerate(operands)
    ]
    return rg.einsum(subscripts, *tensors, name="Y")
