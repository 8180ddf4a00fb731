"""torch's OpInfo samples against rollergen: ``python benches/foreign/opinfo.py [OPERATOR ...] [--kernels N]``.

Every sample input of torch's ``op_db`` (torch 2.13.0) for the operators that `rg.ops` has, in all of rollergen's dtypes
that torch supports for them, is forwarded literally: the same call, with tensors of rollergen's. What is refused has
one of the reasons of ``refusals.py``. All that is forwarded is compared by definition; of each operator and dtype
`--kernels` samples (2; 0: all), spread over them, are also built and run on cpu, and built for a V100 and interpreted.
Integers and conditions must equal torch's. Floats are compared with torch's float64 of the same inputs by the tolerance
of `torch.testing.assert_close` for the dtype, or may err twice as much as torch does in that dtype; attention, whose
weights `rg.ops` rounds to the operands' dtype, as much as torch's own does where it is told to round. What is known is
kept, and the same command goes on from there; the table is results/opinfo_<cpu>_<day>.json. Exits with 1 where one is
wrong, or raises anything but the refusal.

The environment is one of its own: ``pip install -e ".[cpu,foreign]"``; torch's build for CPUs is enough, which
``pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu`` takes first.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._comparison import default_tolerances

from benches.foreign.cases import STAGES, Row, Rows, crash, examined
from benches.foreign.refusals import RULES
from rollergen import ops
from rollergen import tensor as given
from rollergen.errors import RollergenError
from rollergen.expr.dtypes import INTEGERS, ITEMSIZE
from rollergen.expr.language import Tensor
from rollergen.expr.methods import OTHERWISE
from rollergen.importers.refusals import Refused, accepted_dtype

NAME = "opinfo"
MOST = 30
"""Samples of one operator, variant and dtype; where torch has more (max_pool2d: 1,440), that many spread over them."""


OTHERS = {"equal"}
"""Operators that mean something else than torch's of that name: `equal` is of elements."""

PRODUCTS = ("matmul", "mm", "bmm", "linear", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
            "conv_transpose2d", "conv_transpose3d")  # fmt: skip
"""Whose sums of products of narrow integers are int32, of which torch's results are the low bits; `einsum` of int32 is
int64 there where an axis of one operand is summed."""


def namesake(name: str) -> Any:
    """The operator of `rg.ops` that an entry of ``op_db`` calls, if there is one."""
    short = OTHERWISE.get(name, name.removeprefix("nn.functional."))
    if short == "where":
        return lambda input, condition, other: ops.where(condition, input, other)
    if short == "einsum":
        return lambda tensors, equation: ops.einsum(equation, *tensors)  # samples have the operands first
    if short == "embedding":
        return lambda weight, input, **named: ops.embedding(input, weight, **named)  # samples have the weights first
    known = (short in ops.__all__ or short in ops.ALIASES) and short not in OTHERS
    return getattr(ops, short) if known else None


@lru_cache(maxsize=1)
def operators() -> dict[str, Any]:
    """Entries of ``op_db`` by name and variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    found = {f"{o.name}.{o.variant_test_name}".rstrip("."): o for o in op_db if namesake(o.name)}
    return dict(sorted(found.items()))


@lru_cache(maxsize=2)
def samples(operator: str, dtype: str) -> list[Any]:
    """The sample inputs, drawn from a fixed seed."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = list(operators()[operator].sample_inputs("cpu", getattr(torch, dtype), requires_grad=False))
    step = max(1, -(-len(drawn) // MOST))
    return drawn[::step]


def names(wanted: list[str]) -> list[str]:
    """``operator/dtype/number`` of all samples, of all operators unless some are named."""
    found = []
    for operator, entry in operators().items():
        if wanted and operator not in wanted and entry.name not in wanted:
            continue
        for dtype in ITEMSIZE:
            if getattr(torch, dtype) in entry.dtypes:
                found += [f"{operator}/{dtype}/{n}" for n in range(len(samples(operator, dtype)))]
    return found


def array_of(value: torch.Tensor) -> np.ndarray:
    value = value.detach().contiguous()
    if value.dtype == torch.bfloat16:
        import ml_dtypes

        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.resolve_conj().numpy()


class Arguments:
    """A sample's arguments with rollergen's tensors for torch's, and the arrays these are called with."""

    def __init__(self, sample: Any) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.positional = self.converted((sample.input, *sample.args))
        self.named = self.converted(sample.kwargs)

    def converted(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.converted, value)) if type(value) in (tuple, list) else list(value)
        return {k: self.converted(v) for k, v in value.items()} if isinstance(value, dict) else value

    def tensor(self, value: torch.Tensor) -> Tensor:
        dtype = accepted_dtype(value.dtype)
        name = f"t{len(self.arrays)}"
        self.arrays[name] = array_of(value)
        return given(name, tuple(value.shape), dtype)


def examine(name: str, stages: tuple[str, ...] = STAGES) -> Row:
    """The row of one sample."""
    operator, dtype, number = name.split("/")
    entry, sample = operators()[operator], samples(operator, dtype)[int(number)]
    row: Row = {"name": name}
    begun_at = time.perf_counter()
    try:
        arguments = Arguments(sample)
        made = namesake(entry.name)(*arguments.positional, **arguments.named)
        outputs = list(made) if isinstance(made, tuple) else [made]
    except Refused as refusal:
        return row | {"refused": refusal.reason, "detail": refusal.detail}
    except RollergenError as error:
        return row | (_by_rule(entry.name, error) or {"import": crash(error)})
    except Exception as error:  # a crash, told in the row
        return row | {"import": crash(error)}
    row["import_s"] = round(time.perf_counter() - begun_at, 2)
    expected = expectation(entry, sample)
    if entry.name.removeprefix("nn.functional.") in PRODUCTS and dtype in INTEGERS:
        outputs = [ops.cast(outputs[0], expected[0][0].dtype)]
    return row | examined(outputs, arguments.arrays, lambda _, found: compare(expected, found), stages)


def _by_rule(operator: str, error: RollergenError) -> Row | None:
    """The reason of a refusal of rollergen's own, which `RULES` lists by operator, kind and text."""
    for rule_operator, kind, text, reason in RULES:
        if re.fullmatch(rule_operator, operator) and type(error) is kind and re.search(text, str(error)):
            return {"refused": reason, "detail": f"{kind.__name__}: {text}"}
    return None


def expectation(entry: Any, sample: Any) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
    """(torch's result, its float64 witness, largest error of the same with rounded intermediates) of each output."""
    own = _called(entry, sample)
    if not any(one.is_floating_point() for one in own):
        return [(one, one, 0.0) for one in own]
    witness = _called(entry, sample.transform(lambda v: _widened(v)))
    if entry.name.endswith("scaled_dot_product_attention"):
        reduced = _with_rounded_weights(entry, sample)
        return [(own[0], witness[0], float((reduced.double() - witness[0].double()).abs().nan_to_num(0).max()))]
    return [(a, b if a.is_floating_point() else a, 0.0) for a, b in zip(own, witness, strict=True)]


def _with_rounded_weights(entry: Any, sample: Any) -> torch.Tensor:
    """torch's attention in steps of the operands' dtype; by default its steps are float32."""
    allowed = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return _called(entry, sample)[0]
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(allowed)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _called(entry: Any, sample: Any) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = entry(sample.input, *sample.args, **sample.kwargs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def compare(expected: list[tuple[torch.Tensor, torch.Tensor, float]], found: list[np.ndarray]) -> None:
    """AssertionError where shapes, dtypes or values differ; see the head of this file."""
    assert len(expected) == len(found), f"{len(found)} outputs; expected {len(expected)}"
    for (own, witness, reduced), array in zip(expected, found, strict=True):
        assert tuple(own.shape) == array.shape, f"shape {array.shape}; expected {tuple(own.shape)}"
        assert str(own.dtype) == f"torch.{array.dtype.name}", f"dtype {array.dtype}; expected {own.dtype}"
        if not own.is_floating_point():
            np.testing.assert_array_equal(array, own.numpy())
            continue
        rtol, atol = default_tolerances(own.dtype)
        right = witness.double().numpy()
        theirs = own.double().numpy()
        with np.errstate(all="ignore"):
            error = np.nan_to_num(np.abs(theirs - right), nan=0.0, posinf=0.0)
            allowed = np.maximum(atol + rtol * np.abs(right), np.maximum(2 * error, reduced))
            agree = _agree(array.astype(np.float64), right, allowed) | _agree(array.astype(np.float64), theirs, allowed)
        assert agree.all(), _difference(array, right, theirs, agree)


def _agree(a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    return (np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b))


def _difference(array: np.ndarray, right: np.ndarray, theirs: np.ndarray, agree: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(~agree)[0]) if array.ndim else ()
    count = int((~agree).sum())
    return f"{count} of {agree.size} differ, at {at}: {array[at]}; expected {right[at]} (torch {theirs[at]})"


def chosen(all_names: list[str], kernels: int) -> list[str]:
    """Of each operator and dtype that many samples, spread over them; 0: all."""
    groups: dict[str, list[str]] = {}
    for name in all_names:
        groups.setdefault(name.rsplit("/", 1)[0], []).append(name)
    spread = lambda group: {group[len(group) * n // kernels]: None for n in range(kernels)} if kernels else group
    return [name for group in groups.values() for name in spread(group)]


def drawn(count: int) -> list[str]:
    """That many samples that are forwarded, one of an operator and dtype, spread over all: the same ones each time."""
    pairs = [
        (operator, dtype)
        for operator, entry in operators().items()
        for dtype in ITEMSIZE
        if getattr(torch, dtype) in entry.dtypes
    ]
    twice = [_forwarded(*pairs[len(pairs) * n // (2 * count)]) for n in range(2 * count)]  # of some, none is
    forwarded = [name for name in twice if name is not None]
    return [forwarded[len(forwarded) * n // count] for n in range(count)]


def _forwarded(operator: str, dtype: str) -> str | None:
    """The sample in the middle of those that are forwarded, or None."""
    of = [f"{operator}/{dtype}/{n}" for n in range(len(samples(operator, dtype)))]
    kept = [name for name in of if "refused" not in examine(name, ())]
    return kept[len(kept) // 2] if kept else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help="operators; all unless given")
    parser.add_argument("--sample", type=int, help="that many samples in all, always the same ones")
    parser.add_argument("--kernels", type=int, default=2, help="samples of each operator and dtype that are built")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wanted = drawn(arguments.sample) if arguments.sample else names(arguments.operators)
    whole = not (arguments.operators or arguments.sample)
    rows = Rows.begun(NAME, whole)
    defined = partial(examine, stages=("definition",))
    rows.examine(defined, [name for name in wanted if name not in rows.known], arguments.jobs, whole)
    forwarded = [name for name in wanted if "definition" in rows.known[name]]
    built = [name for name in chosen(forwarded, arguments.kernels) if "cpu" not in rows.known[name]]
    rows.examine(examine, built, arguments.jobs, whole)
    return rows.told(wanted, lambda row: row["name"].split("/")[0], whole)


if __name__ == "__main__":
    raise SystemExit(main())
