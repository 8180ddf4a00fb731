"""What tests of products that run beside the program (wgmma) share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.lower.ir import For, If
from rollergen.program.interpreter import interpret
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import HostError, compiler
from tests.cuda.test_programs import executed

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
H200 = load_device("h200")
NAMES = {"float16": "wgmma", "bfloat16": "wgmma_bf16", "float32": "wgmma_tf32", "int8": "wgmma_s8"}
_ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def assert_agree(expression, made, source, modes):
    """The text, run in each of the modes of lateness, gives what the interpreter gives, and that is the definition."""
    arrays = small_integers(made)
    wanted = interpret(made, arrays, H200).outputs
    for mode in modes:
        got = executed(made, source, arrays, mode)
        assert all(np.array_equal(got[key], wanted[key]) for key in wanted), mode
    assert_values(expression, made, got, arrays, None, _ROUNDED.get(made.outputs[0].dtype, 0.0))


def wrong(made, source, modes):
    """Whether some mode finds the text of a plain product wrong."""
    arrays = small_integers(made)
    wanted = arrays["A"].astype(np.float32) @ arrays["B"].astype(np.float32)
    for mode in modes:
        try:
            got = executed(made, source, arrays, mode)["out"]
        except HostError:
            return True
        if not np.array_equal(got.astype(np.float32), wanted.astype(got.dtype).astype(np.float32)):
            return True
    return False


def without(body, dropped):
    """The statements, inside loops and conditions too, but for those of which ``dropped`` is true."""
    for one in body:
        if isinstance(one, (For, If)):
            one = replace(one, body=tuple(without(one.body, dropped)))
        if not dropped(one):
            yield one
