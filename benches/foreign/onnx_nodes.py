"""ONNX's node tests against rollergen: ``python benches/foreign/onnx_nodes.py [NAME ...] [--sample N | --third]``.

Every one of the 1,884 node tests of onnx 1.23.2 is expressed by `rg.ops` and the language, by the tables of
`rollergen.importers.onnx_operators` that import models, or refused with one of the reasons of
`rollergen.importers.refusals`.  What is expressed must be right three times, by the tolerance of ONNX's own runner: by
its definition (`evaluate`), built and run on cpu, and built for a V100 and interpreted.  What is known is kept, and the
same command goes on from there; the table is results/onnx_nodes_<cpu>_<day>.json.  Exits with 1 where one is wrong, or
raises anything but the refusal.

``--third`` takes one of three of those that are expressed, in the order of their names, to other devices: interpreted
for an MI50 and an IPU, and compiled for a V100 by NVIDIA's compiler (``pip install -e ".[nvrtc]"``; no GPU is needed).
Its table is results/onnx_nodes_third_<cpu>_<day>.json.

The environment is one of its own: ``pip install -e ".[cpu,foreign]"``; torch's build for CPUs is enough, which
``pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu`` takes first.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benches.foreign.cases import OTHERS, STAGES, Row, Rows, crash, examined
from benches.foreign.importing import array_of, bound, imported
from rollergen.errors import ExpressionError
from rollergen.expr.dtypes import PACKED
from rollergen.expr.stages import cut
from rollergen.hal.dtypes import DTYPES
from rollergen.importers.refusals import Refused

NAME = "onnx_nodes"
FLOAT16_RTOL = 2**-9
"""Two units in the last place of float16 where its steps round, as ONNX's runner allows two of bfloat16."""
INEXACT = {
    **dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"), 1e-6),
    **dict.fromkeys(("test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"), 1),
}
"""Absolute tolerances of tests whose expected values are off by more than their own 1e-7: NumPy's ifft of complex64
numbers up to 99 leaves 2e-7 where zeros belong; -2.5 / (5 / 255) is a tie, but in float32, which rounds the scale."""


@lru_cache(maxsize=1)
def cases() -> dict[str, Any]:
    """The node tests by name; their random inputs are drawn anew at each import, so the seed is fixed first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.seed(0)
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


UNCHECKED = "so that no call can refuse those outside"
"""Why indices that are computed are refused."""


def examine(name: str, stages: tuple[str, ...] = STAGES) -> Row:
    """The row of one node test."""
    case = cases()[name]
    row: Row = {"name": name, "operators": sorted({node.op_type for node in case.model.graph.node})}
    begun_at = time.perf_counter()
    try:
        inputs, expected = case.data_sets[0]
        graph = imported(case.model, inputs)
        expected = [array_of(one) for one in expected]
        tensors = [bound(value) for value in graph.outputs if not isinstance(value, np.ndarray)]
        if not tensors:
            raise Refused("known")
        cut(tensors)
    except Refused as refusal:
        return row | {"refused": refusal.reason, "detail": refusal.detail}
    except ExpressionError as error:
        if UNCHECKED not in str(error):
            return row | {"import": crash(error)}
        return row | {"refused": "data-dependent positions", "detail": "indices that are computed and may be outside"}
    except Exception as error:  # a crash, told in the row
        return row | {"import": crash(error)}
    row["import_s"] = round(time.perf_counter() - begun_at, 2)

    def compare(stage: str, made: Any) -> None:
        from onnx.backend.test.runner import Runner

        narrow = stage != "definition" and any(getattr(e, "dtype", None) == np.float16 for e in expected)
        rtol = max(case.rtol, FLOAT16_RTOL) if narrow else case.rtol
        rest = iter(made)
        whole = [value if isinstance(value, np.ndarray) else next(rest) for value in graph.outputs]
        whole = [held(one, like) for one, like in zip(whole, expected, strict=True)]
        with np.errstate(all="ignore"):
            Runner.assert_similar_outputs(expected, whole, rtol, INEXACT.get(name, case.atol))

    return row | examined(tensors, graph.arrays, compare, stages)


def held(array: np.ndarray, like: Any) -> np.ndarray:
    """Numbers of int4 and uint4, which come in int8 and uint8, in the dtype that is expected."""
    if getattr(like, "dtype", array.dtype).name not in PACKED:
        return array
    assert array.dtype == DTYPES[like.dtype.name].register, array.dtype
    np.testing.assert_array_equal(array.astype(like.dtype).astype(array.dtype), array)
    return array.astype(like.dtype)


def expressed() -> list[str]:
    return [name for name in cases() if "refused" not in examine(name, ())]


def sample(count: int) -> list[str]:
    """That many of those that are expressed, spread over all: the same ones each time."""
    found = expressed()
    return [found[len(found) * n // count] for n in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="node tests; all unless given")
    parser.add_argument("--sample", type=int, help="that many of those that are expressed, always the same ones")
    parser.add_argument("--third", action="store_true", help="one of three, for other devices and by nvrtc")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in cases()]:
        parser.error(f"{unknown[0]!r} is none of the {len(cases())} node tests of this onnx")
    whole = not (arguments.names or arguments.sample)
    if arguments.third:
        wanted = arguments.names or sorted(expressed())[::3]
    else:
        wanted = sample(arguments.sample) if arguments.sample else arguments.names or list(cases())
    rows = Rows.begun(f"{NAME}_third" if arguments.third else NAME, whole)
    examiner = partial(examine, stages=OTHERS if arguments.third else STAGES)
    rows.examine(examiner, [name for name in wanted if name not in rows.known], arguments.jobs, whole)
    return rows.told(wanted, lambda row: min(row["operators"]) if len(row["operators"]) == 1 else "functions", whole)


if __name__ == "__main__":
    raise SystemExit(main())
