"""ONNX's RNN, GRU and LSTM written out as nodes of other operators, step by step, as torch writes out its own.

One product takes the whole sequence through the input's weights.  Each step reads its rows of it at a place that a
constant holds, so that steps differ in that constant alone and share their kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.importers.graph import Value

VERSION = 21
"""Of ONNX's operator set, to which the nodes belong."""
ACTIVATIONS = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
"""Those that are operators without attributes."""
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

Operand = Value | np.ndarray
State = tuple[str, ...]
"""Names of (batch, hidden): the hidden state and, of an LSTM, the cell's."""


def written_out(
    proto: onnx.NodeProto, source: str, operands: Mapping[str, Operand]
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]] | None:
    """(nodes, constants by name) that give what a recurrence gives; None for another node, for one without steps, and
    for one of operands whose shapes depend on data.  ``source``: its name; ``operands``: by name, arrays if known.

    Raises ArgumentError for other activations than `ACTIVATIONS`, which ONNX's reference leaves out.
    """
    if proto.op_type not in _GATES or any(one.shape is None for one in operands.values()):
        return None
    one = _CELLS[proto.op_type](proto, source, operands)
    if not one.steps:
        return None
    one.write()
    return one.nodes, one.constants


def _whole(lengths: Operand | None, steps: int) -> bool:
    """Whether all sequences are known to take all steps."""
    return isinstance(lengths, np.ndarray) and bool((lengths >= steps).all())


class _Recurrence:
    """A node; ``nodes`` and ``constants``: what is written so far.  Shapes are ONNX's: x (steps, batch, width), weights
    (directions, gates * hidden, width or hidden), biases of both (directions, 2 * gates * hidden)."""

    linear = False
    """Whether the bias of the state's product stays with that product."""

    def __init__(self, proto: onnx.NodeProto, source: str, operands: Mapping[str, Operand]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.source, self.kind, self.gates = source, proto.op_type, _GATES[proto.op_type]
        self.outputs = (*proto.output, "", "")[:3]
        self.attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
        names = (*proto.input, *[""] * 8)[:8]
        self.x, self.weights, self.initial, self.peepholes = names[0], names[1:4], names[5:7], names[7]
        self.batch_first = bool(self.attributes.get("layout", 0))
        x, r = operands[self.x], operands[names[2]]
        assert x.shape is not None and r.shape is not None
        self.steps, self.batch = (x.shape[1], x.shape[0]) if self.batch_first else (x.shape[0], x.shape[1])
        self.directions, self.hidden = r.shape[0], r.shape[2]
        self.dtype = np.dtype(x.dtype) if isinstance(x, np.ndarray) else numpy_dtype(x.dtype)
        self.lengths = "" if _whole(operands.get(names[4]), self.steps) else names[4]
        self.activations = self._activations()

    def _activations(self) -> list[str]:
        """Operators, of one direction after the other."""
        known = {one.lower(): one for one in ACTIVATIONS}
        given = [one.decode() for one in self.attributes.get("activations", ())]
        for one in given:
            if one.lower() not in known:
                raise ArgumentError(
                    f"{self.source} is {self.kind} with activation {one}; expected one of {', '.join(ACTIVATIONS)}"
                )
        return [known[one.lower()] for one in given] or [*_DEFAULTS[self.kind]] * self.directions

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Writes a node of one output, whose name it gives."""
        name = f"{self.source}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output or name], name, **attributes))
        return output or name

    def split(self, x: str, count: int, axis: int = -1) -> list[str]:
        """Names of so many equal parts."""
        name = f"{self.source}.{len(self.nodes)}"
        parts = [f"{name}.{n}" for n in range(count)]
        self.nodes.append(helper.make_node("Split", [x], parts, name, axis=axis, num_outputs=count))
        return parts

    def constant(self, name: str, array: Any, dtype: Any = np.int64) -> str:
        self.constants[f"{self.source}: {name}"] = np.asarray(array, dtype)
        return f"{self.source}: {name}"

    def reshaped(self, x: str, *shape: int, output: str = "") -> str:
        return self.node("Reshape", x, self.constant(f"shape {shape}", shape), output=output)

    def activated(self, x: str, number: int, d: int) -> str:
        """A gate by the activation of that number, clipped before where the node asks for it; cells are not, as ONNX
        Runtime has it."""
        if limit := self.attributes.get("clip", 0.0):
            ends = (self.constant(f"clip {sign}", sign * limit, self.dtype) for sign in (-1, 1))
            x = self.node("Clip", x, *ends)
        return self.node(self._activation(number, d), x)

    def _activation(self, number: int, d: int) -> str:
        return self.activations[d * len(_DEFAULTS[self.kind]) + number]

    def write(self) -> None:
        """Writes all directions and joins what they give."""
        if self.batch_first:
            self.x = self.node("Transpose", self.x, perm=[1, 0, 2])
        backwards = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}
        turned = backwards[self.attributes.get("direction", b"forward")]
        made = [self._direction(d, one) for d, one in enumerate(turned)]
        whole = [self._stacked([state[0] for state in steps]) for steps, _ in made]
        self._give(0, whole, 1, [2, 0, 1, 3])
        for n, last in enumerate(zip(*(state for _, state in made), strict=True)):
            self._give(1 + n, [self.reshaped(one, 1, self.batch, self.hidden) for one in last], 0, [1, 0, 2])

    def _stacked(self, steps: list[str]) -> str:
        """(steps, 1, batch, hidden) of the steps' (batch, hidden)."""
        return self.reshaped(self.node("Concat", *steps, axis=0), self.steps, 1, self.batch, self.hidden)

    def _give(self, number: int, directions: list[str], axis: int, perm: list[int]) -> None:
        """Writes an output, where it is wanted; ``perm``: of the layout with the batch first."""
        if name := self.outputs[number]:
            joined = self.node("Concat", *directions, axis=axis, output="" if self.batch_first else name)
            if self.batch_first:
                self.node("Transpose", joined, perm=perm, output=name)

    def _direction(self, d: int, turned: bool) -> tuple[list[State], State]:
        """(what each step gives, the last states)."""
        w, r, b = (self._of(d, name) for name in self.weights)
        product = self.node("MatMul", self.x, self.node("Transpose", w, perm=[1, 0]))
        before, self.bias = self._biases(b) if b else ("", "")
        product = self.node("Add", product, before) if b else product
        self.parts = self.recurrent(self.node("Transpose", r, perm=[1, 0]))
        self.seen = self.split(self._of(d, self.peepholes), 3) if self.peepholes else []
        state = self._initial(d)
        made: dict[int, State] = {}
        for t in reversed(range(self.steps)) if turned else range(self.steps):
            rows = self.node("Gather", product, self.constant(f"step {t}", [t]), axis=0)
            new = self.step(self.reshaped(rows, self.batch, self.gates * self.hidden), state, d)
            made[t], state = self._within(t, new, state) if self.lengths else (new, new)
        return [made[t] for t in range(self.steps)], state

    def _of(self, d: int, name: str) -> str:
        return name and self.node("Gather", name, self.constant(f"direction {d}", d), axis=0)

    def _biases(self, both: str) -> tuple[str, str]:
        """(what is added to the input's product, what to the state's last gate)."""
        of_input, of_state = self.split(both, 2)
        if not self.linear:
            return self.node("Add", of_input, of_state), ""
        *gates, last = self.split(of_state, self.gates)
        nothing = self.constant("no bias", np.zeros(self.hidden), self.dtype)
        return self.node("Add", of_input, self.node("Concat", *gates, nothing, axis=0)), last

    def _initial(self, d: int) -> State:
        shape = self.batch, self.hidden
        nothing = self.constant("no state", np.zeros(shape), self.dtype)
        axis = 1 if self.batch_first else 0
        direction = self.constant(f"direction {d}", d)
        states = self.initial[: 2 if self.kind == "LSTM" else 1]
        return tuple(self.node("Gather", one, direction, axis=axis) if one else nothing for one in states)

    def _within(self, t: int, new: State, old: State) -> tuple[State, State]:
        """(the step's outputs, the states after it): zeros and what was before where a sequence has ended."""
        more = self.node("Greater", self.lengths, self.constant(f"end {t}", t, np.int32))
        more = self.reshaped(more, self.batch, 1)
        nothing = self.constant("no output", np.zeros((1, 1)), self.dtype)
        output = self.node("Where", more, new[0], nothing)
        return (output,), tuple(self.node("Where", more, *pair) for pair in zip(new, old, strict=True))

    def recurrent(self, r: str) -> list[str]:
        """The state's weights (hidden, columns) as `step` multiplies by them."""
        return [r]

    def step(self, x: str, state: State, d: int) -> State:
        """The next states; ``x`` (batch, gates * hidden): the input's product and biases."""
        raise NotImplementedError


class _Rnn(_Recurrence):
    def step(self, x: str, state: State, d: int) -> State:
        """H = f(x + H R')."""
        return (self.activated(self.node("Add", x, self.node("MatMul", state[0], self.parts[0])), 0, d),)


class _Gru(_Recurrence):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.linear = bool(self.attributes.get("linear_before_reset", 0))

    def recurrent(self, r: str) -> list[str]:
        """[of the update and reset gates side by side, of the candidate], or those of all three."""
        if self.linear:
            return [r]
        z, reset, candidate = self.split(r, 3)
        return [self.node("Concat", z, reset, axis=1), candidate]

    def step(self, x: str, state: State, d: int) -> State:
        """H = (1 - z) h + z H, where h = g(x + (r H) R') or g(x + r (H R' + bias))."""
        (h,) = state
        update, reset, candidate = self.split(x, 3)
        of_state = self.split(self.node("MatMul", h, self.parts[0]), 3 if self.linear else 2)
        z = self.activated(self.node("Add", update, of_state[0]), 0, d)
        r = self.activated(self.node("Add", reset, of_state[1]), 0, d)
        if self.linear:
            last = self.node("Add", of_state[2], self.bias) if self.bias else of_state[2]
            moved = self.node("Mul", r, last)
        else:
            moved = self.node("MatMul", self.node("Mul", r, h), self.parts[1])
        new = self.activated(self.node("Add", candidate, moved), 1, d)
        rest = self.node("Sub", self.constant("one", 1, self.dtype), z)
        return (self.node("Add", self.node("Mul", rest, new), self.node("Mul", z, h)),)


class _Lstm(_Recurrence):
    def step(self, x: str, state: State, d: int) -> State:
        """C = f C + i c and H = o h(C), with gates i, o, f and c of x + H R', and peepholes times C."""
        h, before = state
        i, o, f, c = self.split(self.node("Add", x, self.node("MatMul", h, self.parts[0])), 4)
        i = self.activated(self._peeped(i, 0, before), 0, d)
        if self.attributes.get("input_forget", 0):
            f = self.node("Sub", self.constant("one", 1, self.dtype), i)
        else:
            f = self.activated(self._peeped(f, 2, before), 0, d)
        cell = self.node("Add", self.node("Mul", f, before), self.node("Mul", i, self.activated(c, 1, d)))
        o = self.activated(self._peeped(o, 1, cell), 0, d)
        return self.node("Mul", o, self.node(self._activation(2, d), cell)), cell

    def _peeped(self, gate: str, place: int, cell: str) -> str:
        return self.node("Add", gate, self.node("Mul", self.seen[place], cell)) if self.seen else gate


_CELLS = {"RNN": _Rnn, "GRU": _Gru, "LSTM": _Lstm}
