"""Prepared calls: what the calls of a kernel have in common is set up once; between them only addresses change.

A small operator is computed in a microsecond, so a call may not spend ten on checking and wrapping its arrays.  The
function that does it is written as text for the kernel's signature, without loops: that takes .4 us less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from rollergen.measure.executor import PreparedLaunches
from rollergen.packed import Packed
from rollergen.result_pool import new_result
from rollergen.signature import Parameter, Signature

Call = Callable[[tuple[Any, ...], Any, Packed, int], Any]
"""``call(arrays, out, packed, version)``: the result (a tuple of several) of a call with these inputs, which it has
made; None where it has not.  ``packed``: the constants that the thread's temporaries hold; ``version``: how often
`Kernel.repack` was called."""


def not_made(arrays: tuple[Any, ...], out: Any, packed: Packed, version: int) -> None:
    """The prepared call of a runtime that copies arrays: none is made."""


def prepared_call(launches: PreparedLaunches, signature: Signature) -> Call:
    """Calls of one thread with plain NumPy arrays that fit the signature as they are.

    Where an array does not (another library's, strided, read-only, of a wrong shape, overlapping an output), the call
    is not made: the general path converts it, or says what is wrong.  Of a kernel with one input and one output:

        def call(arrays, out, packed, version):
            if len(arrays) != 1:
                return None
            [a0] = arrays
            if a0.__class__ is not ndarray or a0.dtype != dtype_a0 or a0.shape != shape_a0 or not a0.flags.carray:
                return None
            memory_a0 = memory(a0)
            at_a0 = memory_a0.svm_ptr
            set_a0_0(0, memory_a0)
            if out is None:
                a1 = new_a1(at_a0)
            else:
                a1 = out
            ...  # as of a0
            if -bytes_a0 < at_a0 - at_a1 < bytes_a1:
                return None
            run()
            return a1
    """
    parameters = {f"a{i}": one for i, one in enumerate(signature.parameters)}
    positions: dict[str, list[int]] = {}
    scope: dict[str, Any] = {"ndarray": np.ndarray, "memory": launches.memory, "run": launches.run}
    for a, one in parameters.items():
        setters = launches.setters.get(one.name, ())
        positions[a] = [position for _, position in setters]
        scope |= {f"set_{a}_{i}": set_argument for i, (set_argument, _) in enumerate(setters)}
        scope |= {f"dtype_{a}": one.dtype, f"shape_{a}": one.shape, f"bytes_{a}": one.size_bytes}
        scope[f"new_{a}"] = new_result(one.shape, one.dtype)
    exec(_code("\n".join(_lines(parameters, len(signature.inputs), positions))), scope)
    call: Call = scope.pop("call")  # it keeps the scope: a scope that kept it would be a cycle
    return call


@lru_cache
def _code(text: str) -> CodeType:
    return compile(text, "<prepared call>", "exec")


def _lines(parameters: dict[str, Parameter], count: int, positions: dict[str, list[int]]) -> Iterator[str]:
    """The text of `call`; the first ``count`` parameters are inputs, ``positions`` where launches take each."""
    names = list(parameters)
    inputs, outputs = names[:count], names[count:]
    yield "def call(arrays, out, packed, version):"
    yield f" if len(arrays) != {count}: return None"
    yield f" [{', '.join(inputs)}] = arrays"
    for a in inputs:
        yield from _taken(a, positions[a])
    if constants := [a for a in inputs if parameters[a].constant]:
        given, at = ", ".join(constants), ", ".join(f"at_{a}" for a in constants)
        yield f" if not packed.holds_at(version, [{given}], [{at}]): return None"
    yield from _outputs(outputs, f"at_{inputs[0]}" if inputs else "0")
    for number, a in enumerate(outputs, start=count):
        yield from _taken(a, positions[a])
        for b in names[:number]:  # a call whose output shares a byte with another array is refused
            yield f" if -bytes_{b} < at_{b} - at_{a} < bytes_{a}: return None"
    yield " run()"
    yield f" return {', '.join(outputs)}"


def _taken(a: str, positions: list[int]) -> Iterator[str]:
    """Checks the array and sets it as an argument.  ``carray``: contiguous, aligned and writeable: OpenCL's addresses
    do not say read-only."""
    yield f" if {a}.__class__ is not ndarray or {a}.dtype != dtype_{a} or {a}.shape != shape_{a}: return None"
    yield f" if not {a}.flags.carray: return None"
    yield f" memory_{a} = memory({a})"
    yield f" at_{a} = memory_{a}.svm_ptr"
    yield from (f" set_{a}_{i}({position}, memory_{a})" for i, position in enumerate(positions))


def _outputs(outputs: list[str], beside: str) -> Iterator[str]:
    """The outputs are the caller's, or new."""
    yield " if out is None:"
    yield from (f"  {a} = new_{a}({beside})" for a in outputs)
    if len(outputs) == 1:
        yield f" else: {outputs[0]} = out"
    else:
        yield f" elif out.__class__ is not tuple or len(out) != {len(outputs)}: return None"
        yield f" else: [{', '.join(outputs)}] = out"
