"""Prepared calls: what the calls of a kernel have in common is set up once; between them only addresses change.

A small operator is computed in a microsecond, so a call may not spend ten on checking and wrapping its arrays.  The
function that does it is written as text for the kernel's signature, without loops: that takes .4 us less.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.runtime.device_arrays import contiguous_strides
from rollergen.runtime.ids import NO_IDS, HostIds
from rollergen.runtime.interop import held_dtype, tensor_reader, to_torch
from rollergen.runtime.mine import Call
from rollergen.runtime.result_pool import SMALLEST_BYTES, new_result
from rollergen.runtime.session import PreparedLaunches
from rollergen.runtime.signature import Parameter, Signature


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of one library, and how the text of a call spells what it asks of an array ``{a}`` of theirs.

    ``unfit``: true of one that the call must leave to the general path; ``read``: what leaves it as NumPy's in
    ``array_{a}``, where it is another library's; ``taken``: what leaves its address in ``at_{a}``; ``set``: what sets
    it as an argument of a launch; ``place``: what tells a constant's memory, beside its address, from what it was when
    it was packed (`Packed.holds_at`), "" where nothing is.  ``array``: their class; ``dtype``: theirs for NumPy's;
    ``seen``: what ``seen_{a}`` is, for NumPy's dtype; ``new``: what makes results, given the address of the first
    input; ``host``: the array as NumPy's, "" where that is not in host memory; ``names``: others of the text.
    """

    array: type
    unfit: str
    taken: tuple[str, ...]
    set: str
    place: str
    read: tuple[str, ...] = ()
    dtype: Callable[[np.dtype], Any] = lambda dtype: dtype
    seen: Callable[[np.dtype], Any] = lambda dtype: None
    new: Callable[[tuple[int, ...], np.dtype], Callable[[int], Any]] = new_result
    host: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)


NUMPY = Arrays(
    np.ndarray,
    unfit="not {a}.flags.carray",  # contiguous, aligned and writeable: OpenCL's addresses do not say read-only
    taken=("memory_{a} = memory({a})", "at_{a} = memory_{a}.svm_ptr"),
    set="set_{a}_{i}({position}, memory_{a})",
    place="{a}.strides",
    host="{a}",
)
_TORCH = Arrays(
    object,
    unfit="not {a}.is_cpu or {a}.requires_grad or {a}.is_neg()",
    read=(
        "try: array_{a} = seen_{a}({a})",
        "except (RuntimeError, TypeError): return None",  # conjugated, sparse, nested
        "if array_{a}.shape != shape_{a} or not array_{a}.flags.carray: return None",
    ),
    taken=tuple(line.replace("({a})", "(array_{a})") for line in NUMPY.taken),
    set=NUMPY.set,
    place="array_{a}.strides",
    host="array_{a}",
)


def arrays_like(inputs: Sequence[Any]) -> Arrays:
    """What calls with arrays in host memory as these are prepared for: torch's tensors where all are, else NumPy's."""
    torch = sys.modules.get("torch")
    if torch is None or not inputs or any(type(one) is not torch.Tensor for one in inputs):
        return NUMPY
    return replace(
        _TORCH, array=torch.Tensor, dtype=lambda dtype: getattr(torch, dtype.name), seen=tensor_reader, new=_new_tensor
    )


def _new_tensor(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[int], Any]:
    new = new_result(shape, dtype)
    return lambda beside: to_torch(new(beside))


def prepared_call(
    launches: PreparedLaunches, signature: Signature, kind: Arrays = NUMPY, ids: HostIds = NO_IDS
) -> Call:
    """Calls of one thread with arrays of one kind, such as plain NumPy arrays, that fit the signature as they are.

    Where an array does not (another library's, strided, read-only, of a wrong shape, overlapping an output), the call
    is not made: the general path converts it, or says what is wrong.  ``ids``: inputs of host memory that a call looks
    at, which raises ArgumentError, and its integers, which are written where launches read them (out of bounds, the
    call is not made).  Of a kernel with one input and one output:

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
                ...  # set as a0
            else:
                a1 = out
                ...  # checked and set as a0
                if less_a0 < at_a0 - at_a1 < bytes_a1:
                    return None
            run()
            return a1

    Where launches look at arrays themselves (`PreparedLaunches.call_with`), less is left:

            if out is None:
                a1 = new_a1(0)
            else:
                a1 = out
            if not made(a0, a1): return None
            return a1
    """
    kind = replace(kind, set="set_{a}_{i}[{position}] = at_{a}") if launches.by_address else kind
    parameters = {f"a{i}": one for i, one in enumerate(signature.parameters)}
    positions: dict[str, list[int]] = {}
    scope: dict[str, Any] = {"ndarray": kind.array, "memory": launches.memory, "run": launches.run, **kind.names}
    for a, one in parameters.items():
        setters = launches.setters.get(one.name, ())
        positions[a] = [position for _, position in setters]
        scope |= {f"set_{a}_{i}": set_argument for i, (set_argument, _) in enumerate(setters)}
        scope[f"strides_{a}"] = contiguous_strides(one.shape, one.dtype.itemsize)
        scope |= {f"dtype_{a}": kind.dtype(one.dtype), f"shape_{a}": one.shape}
        scope |= {f"bytes_{a}": one.size_bytes, f"less_{a}": -one.size_bytes}
        scope |= {f"new_{a}": kind.new(one.shape, one.dtype), f"seen_{a}": kind.seen(one.dtype)}
        scope |= {f"look_{a}_{i}": look for i, look in enumerate(ids.looks.get(one.name, ()))}
        if one.name in ids.scalars:
            low, high, number = ids.scalars[one.name]
            cell = np.zeros((), one.dtype)
            memory: Any = launches.memory(cell)  # type: ignore[misc]
            scope |= {f"low_{a}": low, f"high_{a}": high, f"number_{a}": number, f"cell_{a}": cell}
            scope |= {f"memory_{a}": memory, f"at_{a}": memory.svm_ptr}
    count, packed = len(signature.inputs), [a for a, one in parameters.items() if one.name in launches.packed]
    if launches.call_with:
        from rollergen.hal.runtimes.pocl_calls import Wanted

        scope["made"] = launches.call_with([
            Wanted(one.shape, held_dtype(one.dtype) if kind.read else one.dtype, number >= count,
                   launches.setters.get(one.name, ()))
            for number, one in enumerate(signature.parameters)
        ])  # fmt: skip
    made = scope.get("made") is not None
    pooled = any(one.size_bytes >= SMALLEST_BYTES for one in signature.parameters[count:])
    text = _Text(
        parameters, count, signature.updates, positions, kind, packed=packed, made=made,
        beside="a0" if count and (pooled or not made) else "",
        scalars=frozenset(a for a, one in parameters.items() if one.name in ids.scalars),
        looks={a: len(ids.looks.get(one.name, ())) for a, one in parameters.items()},
    )  # fmt: skip
    exec(_code("\n".join(text.lines())), scope)
    call: Call = scope.pop("call")  # it keeps the scope: a scope that kept it would be a cycle
    return call


@lru_cache
def _code(text: str) -> CodeType:
    return compile(text, "<prepared call>", "exec")


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of `call`: the first ``count`` ``parameters`` are inputs, ``positions`` where launches take each,
    ``packed`` those that were packed; ``updates``: whether outputs are the first arguments; ``scalars``: the integers
    among the inputs; ``looks``: how many looks each is given; ``made``: whether launches look at arrays; ``beside``:
    the input whose address new results keep apart from, "" where none is."""

    parameters: dict[str, Parameter]
    count: int
    updates: bool
    positions: dict[str, list[int]]
    kind: Arrays
    packed: list[str]
    scalars: frozenset[str]
    looks: dict[str, int]
    made: bool
    beside: str

    def lines(self) -> Iterator[str]:
        names = list(self.parameters)
        inputs, outputs = names[: self.count], names[self.count :]
        arguments = (*outputs, *inputs) if self.updates else inputs
        yield "def call(arrays, out, packed, version):"
        yield f" if len(arrays) != {len(arguments)}{' or out is not None' if self.updates else ''}: return None"
        yield f" [{', '.join(arguments)}] = arrays"
        for a in inputs:
            yield from self._number(a) if a in self.scalars else self._array(a)
        if self.packed:
            given = ", ".join(self.packed)
            at = ", ".join(f"(at_{a}, {self.kind.place.format(a=a)})" for a in self.packed)
            yield f" if not packed.holds_at(version, [{given}], [{at}]): return None"
        if self.updates:
            yield from self._written(outputs)
        else:
            yield from self._results(inputs, outputs)
        # Last: any function before may be interrupted by a signal's handler that makes a call of its own.
        yield from (f" cell_{a}[()] = {a}" for a in inputs if a in self.scalars)
        yield f" if not made({', '.join(map(self._host, names))}): return None" if self.made else " run()"
        yield f" return {', '.join(outputs)}"

    def _number(self, a: str) -> Iterator[str]:
        """An integer of the call."""
        yield f" if {a}.__class__ is not int: {a} = number_{a}({a})"
        yield f" if not low_{a} <= {a} <= high_{a}: return None"
        yield from () if self.made else self._set(a)

    def _array(self, a: str) -> Iterator[str]:
        yield from self._checked(a)
        yield from self._taken(a)
        yield from (f" look_{a}_{i}({self._host(a)})" for i in range(self.looks[a]))

    def _host(self, a: str) -> str:
        """The array as NumPy's."""
        return f"cell_{a}" if a in self.scalars else self.kind.host.format(a=a)

    def _results(self, inputs: list[str], outputs: list[str]) -> Iterator[str]:
        """Outputs that are made, or those of ``out``."""
        yield " if out is None:"
        beside = f"at_{self.beside}" if self.beside else "0"
        for a in outputs:
            yield f"  {a} = new_{a}({beside})"
            yield from map(" {}".format, self._taken(a))
        yield " else:"
        yield from map(" {}".format, _callers(outputs))
        yield from map(" {}".format, self._written(outputs))

    def _written(self, outputs: list[str]) -> Iterator[str]:
        """The caller's arrays for outputs, each of which shares no byte with another array."""
        before = [a for a in list(self.parameters)[: self.count] if a not in self.scalars]
        for a in outputs:
            yield from self._checked(a)
            yield from self._taken(a)
            if not self.made:
                yield from (f" if less_{b} < at_{b} - at_{a} < bytes_{a}: return None" for b in before)
            before.append(a)

    def _checked(self, a: str) -> Iterator[str]:
        if self.made and not self.kind.read and not self.looks[a] and not self._placed(a):
            return
        shape = "" if self.kind.read else f" or {a}.shape != shape_{a}"  # else asked when read: nested ones raise
        yield f" if {a}.__class__ is not ndarray or {a}.dtype != dtype_{a}{shape}: return None"
        yield f" if {self.kind.unfit.format(a=a)}: return None"

    def _taken(self, a: str) -> Iterator[str]:
        """Finds the array's memory and sets it as an argument, as far as launches do not."""
        yield from (f" {line.format(a=a)}" for line in self.kind.read)
        if self._placed(a):
            yield from (f" {line.format(a=a)}" for line in self.kind.taken)
        if not self.made:
            yield from self._set(a)

    def _placed(self, a: str) -> bool:
        """Whether the text needs the array's address."""
        return not self.made or a in self.packed or a == self.beside

    def _set(self, a: str) -> Iterator[str]:
        for i, position in enumerate(self.positions[a]):
            yield f" {self.kind.set.format(a=a, i=i, position=position)}"


def _callers(outputs: list[str]) -> Iterator[str]:
    """The outputs that the caller gave."""
    if len(outputs) == 1:
        yield f" {outputs[0]} = out"
    else:
        yield f" if out.__class__ is not tuple or len(out) != {len(outputs)}: return None"
        yield f" [{', '.join(outputs)}] = out"
