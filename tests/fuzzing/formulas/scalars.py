"""Random scalar formulas: arithmetic of every dtype, casts between all of them, comparisons, conditions, choices."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from random import Random

import numpy as np

from tests.fuzzing.formulas.bounds import DIGITS, LARGEST, NUMPY
from tests.fuzzing.formulas.indices import Drawn, draw, fitted, guard, measured, window
from tests.fuzzing.formulas.nodes import Const, Load, Node, Op, Position, Test
from tests.fuzzing.formulas.programs import Tensor

FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int32", "int8", "int64", "uint8", "int16", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
CONTENTS = ("whole", "eighths", "eighths", "spread", "spread", "spread", "halves", "ties")
INTEGER_CONTENTS = ("small", "full", "full", "halves", "ends", "ties")
WHOLE = ("floor_divide", "remainder", "trunc_divide", "trunc_remainder", "shl", "shr", "bitand", "bitor", "xor")
MOST_ELEMENTS = 3000
Scope = Mapping[str, int]


class Scalars:
    """Draws the values of one tensor from the tensors known before it; new inputs join these."""

    def __init__(self, random: Random, tensors: list[Tensor]) -> None:
        self.random, self.tensors = random, tensors
        self.pool: list[tuple[Node, Scope]] = []

    def value(self, dtype: str, scope: Scope, depth: int) -> Node:
        """A value of `dtype`; now and then one that occurs elsewhere in the formula."""
        known = [node for node, around in self.pool if node.dtype == dtype and around.keys() <= scope.keys()]
        if known and self.random.random() < 0.15:
            return self.random.choice(known)
        made = self.leaf(dtype, scope) if depth <= 0 else self._inner(dtype, scope, depth - 1)
        self.pool.append((made, scope))
        return made

    def leaf(self, dtype: str, scope: Scope) -> Node:
        drawn = self.random.random()
        if drawn < 0.06 and dtype != "bool":
            return Op(dtype, "cast", (self.position(scope),)) if dtype != "int32" else self.position(scope)
        if drawn < 0.09 and dtype != "bool":
            return self.literal(dtype, weak=False)
        if drawn < 0.4 and dtype == "bool":
            return self.test(scope)
        return self.load(dtype, scope)

    def position(self, scope: Scope) -> Node:
        return Position("int32", draw(self.random, scope).text) if scope else self.literal("int32", weak=False)

    def test(self, scope: Scope) -> Node:
        """A condition on an index."""
        if not scope:
            return self.load("bool", scope)
        index = draw(self.random, scope)
        if not any(name in index.text for name in scope):
            return self.load("bool", scope)
        at = self.random.randint(index.low, index.high)
        return Test("bool", f"{index.text} {self.random.choice(['<', '<=', '>', '>=', '==', '!='])} {at}")

    def literal(self, dtype: str, *, weak: bool, extreme: bool = False) -> Const:
        """Small numbers that the dtype holds; the ends of its range where that means something."""
        random = self.random
        if dtype in DIGITS:
            numbers = [0.0, 1.0, -1.0, 0.5, 2.0, -1.5, 3.0, 0.25, -0.0]
            largest = float(LARGEST[dtype])
            return Const(dtype, random.choice([*numbers, *((largest, -largest) if extreme and weak else ())]), weak)
        bits = NUMPY[dtype](0).nbytes * 8
        info = np.iinfo(NUMPY[dtype])
        ends = [int(info.min), int(info.max), 2 ** (bits - 2), int(info.max) - 1]
        small = [0, 1, -1, 2, 3, 7, -5, 100] if info.min else [0, 1, 2, 3, 7, 5, 100]
        ends = ends if weak or bits <= 32 else [2**31 - 1, -(2**31) if info.min else 2**31]
        return Const(dtype, random.choice(ends if random.random() < 0.3 else small), weak)

    # Reads -------------------------------------------------------------------------------------

    def load(self, dtype: str, scope: Scope, plain: float = 0.6) -> Node:
        """A read of a known tensor or of a new input, guarded where it may leave."""
        known = [tensor for tensor in self.tensors if tensor.dtype == dtype]
        if known and self.random.random() < 0.6:
            made = [tensor for tensor in known if tensor.body is not None]
            return self._read(self.random.choice(made if made and self.random.random() < 0.5 else known[-4:]), scope, plain)
        return self._read_new(dtype, scope, plain)

    def _index(self, scope: Scope, plain: float) -> Drawn:
        inner = [name for name in scope if name.startswith("k")]
        outer = [name for name in scope if name.startswith("i")]
        if inner and outer and self.random.random() < 0.2:
            return window(self.random, self.random.choice(outer), self.random.choice(inner), scope)
        return draw(self.random, scope, plain)

    def _read(self, tensor: Tensor, scope: Scope, plain: float) -> Node:
        pairs = [fitted(self.random, self._index(scope, plain), extent) for extent in tensor.shape]
        return self._guarded(tensor, [index for index, _ in pairs], [test for _, test in pairs if test])

    def _read_new(self, dtype: str, scope: Scope, plain: float) -> Node:
        """The indices first, then extents that hold them, or nearly."""
        indices, shape = [], []
        for _ in range(self.random.choices([1, 2, 3, 4], [2, 5, 4, 1])[0]):
            index = self._index(scope, plain)
            index = index.plus(-index.low) if self.random.random() < 0.8 or index.high < 0 else index
            extent = index.high + 1 + (self.random.randint(0, 3) if self.random.random() < 0.3 else 0)
            if index.high > 3 and self.random.random() < 0.2:
                extent = self.random.randint(index.high // 2, index.high)
            if prod(shape) * extent <= MOST_ELEMENTS:
                indices.append(index)
                shape.append(extent)
        if not shape:
            indices, shape = [Drawn("0", 0, 0)], [self.random.randint(1, 9)]
        tensor = self.given(tuple(shape), dtype)
        tests = [guard(self.random, index, extent) for index, extent in zip(indices, shape, strict=True)]
        return self._guarded(tensor, indices, [test for test in tests if test])

    def load_all(self, dtype: str, scope: Scope) -> Node:
        """An element of a new input of its own for every point: its axes permuted, reversed, at a stride or an offset."""
        names, shape, indices = self.random.sample(list(scope), len(scope)), [], []
        for name in names:
            extent, offset = scope[name], self.random.choice([0, 0, 0, 1, 3])
            form = self.random.choice(["{0}", "{0}", "({1} - {0})", "({0} + {2})", "({0}*2 + {2})", "({3} - {0}*2)"])
            index = measured(form.format(name, extent - 1, offset, 2 * (extent - 1)), scope)
            indices.append(index.text)
            shape.append(index.high + 1 + self.random.choice([0, 0, 1, 5]))
        tensor = self.given(tuple(shape), dtype, "spread" if dtype in DIGITS else "full")
        return Load(dtype, tensor.name, tuple(indices))

    def given(self, shape: tuple[int, ...], dtype: str, content: str = "") -> Tensor:
        content = content or self.random.choice(CONTENTS if dtype in DIGITS else INTEGER_CONTENTS)
        content += f":{self.random.randrange(1000)}"
        name = f"x{sum(one.body is None for one in self.tensors)}"
        packed = dtype in ("int8", "uint8") and self.random.random() < 0.2
        tensor = Tensor(name, shape, dtype, None, content, self.random.random() < 0.1, packed)
        self.tensors.append(tensor)
        return tensor

    def _guarded(self, tensor: Tensor, indices: list[Drawn], tests: list[str]) -> Node:
        load = Load(tensor.dtype, tensor.name, tuple(index.text for index in indices))
        if not tests:
            return load
        test = Test("bool", " & ".join(f"({test})" for test in tests))
        fill = Const("bool", self.random.random() < 0.5, True) if tensor.dtype == "bool" else self.literal(tensor.dtype, weak=True)
        return Op(tensor.dtype, "select", (test, load, fill))

    # Operations --------------------------------------------------------------------------------

    def _inner(self, dtype: str, scope: Scope, depth: int) -> Node:
        if dtype == "bool":
            return self._condition(scope, depth)
        ways = {"binary": 5, "weak": 2, "select": 3, "cast": 3, "unary": 3, "leaf": 1, "quotient": 2 * (dtype in DIGITS)}
        match self.random.choices(list(ways), list(ways.values()))[0]:
            case "binary":
                name = self.random.choice(["add", "sub", "mul", "max", "min", *(WHOLE if dtype in INTEGERS else ())])
                return Op(dtype, name, (self.value(dtype, scope, depth), self.value(dtype, scope, depth)))
            case "weak":
                return self._with_literal(dtype, self.value(dtype, scope, depth))
            case "select":
                condition = self._condition(scope, depth)
                return Op(dtype, "select", (condition, self.value(dtype, scope, depth), self.value(dtype, scope, depth - 1)))
            case "cast":
                return self.cast(dtype, scope, depth)
            case "unary":
                return self._unary(dtype, self.value(dtype, scope, depth))
            case "quotient":
                divisor = Op(dtype, "abs", (self.value(dtype, scope, depth - 1),))
                divisor = Op(dtype, "add", (divisor, Const(dtype, self.random.choice([1.0, 0.5, 3.0]), True)))
                name = self.random.choice(["div", "div", "fmod", "floored"])
                return Op(dtype, name, (self.value(dtype, scope, depth), divisor))
        return self.leaf(dtype, scope)

    def _with_literal(self, dtype: str, x: Node) -> Node:
        name = self.random.choice(["add", "sub", "mul", "max", "min"])
        literal = self.literal(dtype, weak=True, extreme=name in ("max", "min"))
        return Op(dtype, name, (x, literal) if self.random.random() < 0.6 else (literal, x))

    def _unary(self, dtype: str, x: Node) -> Node:
        if dtype not in DIGITS:
            return Op(dtype, self.random.choice(["neg", "abs"]), (x,))
        name = self.random.choice(["neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "round", "pow"])
        above = lambda least: Op(dtype, "add", (Op(dtype, "abs", (x,)), Const(dtype, least, True)))
        if name == "exp":
            return Op(dtype, "exp", (Op(dtype, "min", (x, Const(dtype, 4.0, True))),))
        if name in ("log", "rsqrt"):
            return Op(dtype, name, (above(0.5),))
        if name == "sqrt":
            return Op(dtype, name, (Op(dtype, "abs", (x,)),))
        if name == "pow":
            return Op(dtype, name, (above(1.0), Const(dtype, self.random.choice([0.5, 1.5, -1.0]), True)))
        return Op(dtype, name, (x,))

    def cast(self, dtype: str, scope: Scope, depth: int) -> Node:
        """From any other dtype; a float within what an integer holds."""
        source = self.random.choice([one for one in DTYPES if one != dtype])
        x = self.value(source, scope, depth)
        if source in DIGITS and dtype in INTEGERS:
            low, high = self.random.choice([(-300.0, 1000.0), (-60000.0, 65000.0)])
            low, high = max(low, float(np.iinfo(NUMPY[dtype]).min)), min(high, float(np.iinfo(NUMPY[dtype]).max))
            x = Op(source, "min", (Op(source, "max", (x, Const(source, low, True))), Const(source, high, True)))
        return Op(dtype, "cast", (x,))

    def _condition(self, scope: Scope, depth: int) -> Node:
        if depth <= 0:
            return self._compared(scope, 1) if self.random.random() < 0.5 else self.leaf("bool", scope)
        ways = {"compared": 6, "joined": 3, "not": 1, "same": 1, "cast": 1, "test": 1}
        match self.random.choices(list(ways), list(ways.values()))[0]:
            case "compared":
                return self._compared(scope, depth)
            case "joined":
                parts = self._condition(scope, depth - 1), self._condition(scope, depth - 1)
                return Op("bool", self.random.choice(["and", "or"]), parts)
            case "not":
                return Op("bool", "not", (self._condition(scope, depth - 1),))
            case "same":
                parts = self._condition(scope, depth - 1), self._condition(scope, depth - 1)
                return Op("bool", self.random.choice(["eq", "ne"]), parts)
            case "cast":
                return Op("bool", "cast", (self.value(self.random.choice((*FLOATS, *INTEGERS)), scope, depth - 1),))
        return self.leaf("bool", scope)

    def _compared(self, scope: Scope, depth: int) -> Node:
        dtype = self.random.choice((*FLOATS, *INTEGERS))
        name, x = self.random.choice(["lt", "le", "gt", "ge", "eq", "ne"]), self.value(dtype, scope, depth - 1)
        other = self.literal(dtype, weak=True, extreme=True) if self.random.random() < 0.3 else self.value(dtype, scope, depth - 1)
        return Op("bool", name, (x, other))
