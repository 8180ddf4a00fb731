"""Declarations of ours in place of PoCL's header: the same ones, and PoCL's for those who take others."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.hal.errors import BuildError
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.runtimes.pocl_builtins import OPTION, declarations

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")

FUNCTION = re.compile(r"^((?:__attribute__\(\(.*?\)\) )?\w+ (?:__\w+ )*)(\w+)\((.*)\);$", re.MULTILINE)
MACROS = {"__ovld": "overloadable", "__cnfn": "const", "__purefn": "pure", "__conv": "convergent"}
NAMES_OF_OPERANDS = r"\b(a|b|c|x|y|p|val|cmp|data|offset|dimindx|flags|y_over_x)\b"


def declared(text):
    """(attributes and result, name, operands) of each function."""
    found = set()
    for before, name, operands in FUNCTION.findall(re.sub("unsigned int", "uint", text)):
        words = [MACROS.get(word, word) for word in re.findall(r"\w+", before)]
        kinds = re.sub(NAMES_OF_OPERANDS, "", operands).split(",")
        found.add((frozenset(words) - {"__attribute__"}, name, tuple(" ".join(kind.split()) for kind in kinds)))
    return found


def test_what_is_declared_is_what_poclos_header_declares():
    package = find_spec("pocl_binary_distribution")
    if package is None or package.origin is None:
        pytest.skip("PoCL is not that of PyPI, whose header is known")
    header = Path(package.origin).parent / ".libs/share/pocl/include/opencl-c.h"
    ours, theirs = declared(declarations()), declared(header.read_text())
    assert ours and ours <= theirs
    names = {name for _, name, _ in ours}
    for result, name, operands in theirs - ours:
        pointers = [one for one in operands if "*" in one]
        elsewhere = any(not re.search("__(global|local|private)", one) for one in pointers)
        assert name not in names or any(word.startswith("half") for word in result) or elsewhere, (name, operands)


def run(text, values):
    """The values that the text's kernel ``f`` leaves of these, a work-group each."""
    runtime, held = OpenCLRuntime(), np.array(values, np.float32)
    kernel = runtime.compile(text).kernel("f")
    runtime.set_arguments(kernel, [runtime.wrap(held)])
    runtime.launch(kernel, len(held), 1)
    runtime.finish()
    return held


def built_options(monkeypatch):
    """The options of each build from here on."""
    program, seen = OpenCLRuntime().opencl.Program, []
    build = program.build
    monkeypatch.setattr(program, "build", lambda self, options, **kw: seen.append(options) or build(self, options, **kw))
    return seen


def test_programs_that_take_no_others_are_compiled_once(monkeypatch):
    seen = built_options(monkeypatch)
    text = "kernel void f(global float *x) { const int i = get_group_id(0); x[i] = fma(x[i], sqrt(x[i]), as_float(0)); }"
    assert np.array_equal(run(text, [4, 9]), [4 * 2, 9 * 3])
    assert [OPTION in options for options in seen] == [True]


def test_programs_that_take_others_are_compiled_behind_all_of_them(monkeypatch):
    seen = built_options(monkeypatch)
    text = "kernel void f(global float *x) { const int i = get_group_id(0); x[i] = mad(x[i], 2.0f, max(x[i], 3.0f)); }"
    assert np.array_equal(run(text, [1, 4]), [1 * 2 + 3, 4 * 2 + 4])
    assert [OPTION in options for options in seen] == [False]


def test_lines_of_a_refused_text_are_its_own():
    with pytest.raises(BuildError, match=r":2:\d+: use of undeclared identifier 'nothing'"):
        OpenCLRuntime().compile("kernel void f(global float *x)\n{ x[0] = nothing; }")


@pytest.mark.parametrize("function", ["exp", "sqrt", "log1p", "tanh", "erf", "sin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_kernels_of_functions_take_no_others(monkeypatch, function, dtype):
    seen = built_options(monkeypatch)
    x = rg.tensor("X", (37,), dtype=dtype)
    kernel = rg.build(getattr(rg.ops, function)(x), "cpu", profile=False, cache=False)
    kernel(np.ones(37, dtype))
    assert seen and all(OPTION in options for options in seen)
