"""Element types: one table, from which everything else follows."""

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import rollergen
from rollergen.emit.c_expressions import SCALARS as OPENCL
from rollergen.emit.cuda_vectors import SCALARS as CUDA
from rollergen.expr.dtypes import FLOATS, INTEGERS, numpy_dtype
from rollergen.gate.arrays import poison_bits
from rollergen.hal.dtypes import DTYPES

PACKAGE = Path(rollergen.__file__).parent
TEMPLATES = "bundle/templates"
"""Launchers run without rollergen."""


def tables(path):
    """The lines of dictionaries of which three keys or more are dtypes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if sum(key in DTYPES for key in keys) > 2:
                yield f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"


def test_no_module_keeps_a_table_of_dtypes_of_its_own():
    folders = (PACKAGE, PACKAGE.parent / "hal")
    files = [path for folder in folders for path in folder.rglob("*.py") if TEMPLATES not in str(path)]
    assert len(files) > 300
    assert [line for path in files for line in tables(path)] == []


def test_a_table_of_dtypes_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path / "package")
    found = tmp_path / "mine.py"
    found.write_text('SIZES = {"float32": 4, "int8": 1, "bool": 1}')
    assert list(tables(found)) == ["mine.py:1"]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_rows_say_what_numpy_and_ml_dtypes_say(dtype):
    row, held = DTYPES[dtype], numpy_dtype(dtype)
    assert row.itemsize == held.itemsize and np.dtype(row.word).itemsize == held.itemsize
    if dtype in INTEGERS:
        info = np.iinfo(held)
        assert row.limits == (info.min, info.max) and row.signed == (info.min < 0)
    else:
        info = ml_dtypes.finfo(held)
        assert (row.significant, row.exponent) == (info.nmant + 1, info.nexp)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_poison_is_held_by_the_dtype_and_differs_between_runs(dtype):
    words = [np.array([poison_bits(dtype, variant)], DTYPES[dtype].word) for variant in range(3)]
    assert words[0] != words[1] and words[1] != words[2]
    if dtype in FLOATS:
        values = [word.view(numpy_dtype(dtype)).astype(float)[0] for word in words]
        assert np.isnan(values[0]) and values[1] < 0 < values[2]


def test_languages_spell_integers_by_width_and_sign_and_narrow_floats_as_their_bits():
    assert (OPENCL["uint8"], OPENCL["int16"], OPENCL["uint64"], OPENCL["bfloat16"]) == ("uchar", "short", "ulong", "ushort")
    assert (CUDA["uint8"], CUDA["int64"], CUDA["float16"]) == ("unsigned char", "long long", "unsigned short")
    assert [DTYPES[name].ptx for name in ("bfloat16", "tf32", "int8", "uint8")] == ["bf16", "tf32", "s8", "u8"]
