"""Functions of a kernel under construction: their bodies, every step a named value."""

from __future__ import annotations

from collections.abc import Callable

from rollergen.expr.dtypes import is_float
from rollergen.hal.dtypes import DTYPES
from rollergen.lower.expressions import BITS, Call, Convert, Expr, Name, Number, Operation
from rollergen.lower.ir import Function, Let, Statement


def use(functions: dict[str, Function], make: Callable[..., Expr], name: str, *operands: Expr) -> Expr:
    x = operands[0]
    full = f"{name}_{'f' if is_float(x.dtype) else 'i' if DTYPES[x.dtype].signed else 'u'}{BITS[x.dtype]}x{x.lanes}"
    if full not in functions:
        body = Body(functions, x.dtype, x.lanes)
        parameters = (body.x, body.y)[: len(operands)]
        result = make(body, *parameters)
        functions[full] = Function(full, parameters, tuple(body.statements), result)
    result = functions[full].result
    return Call(full, operands, result.dtype, result.lanes)


class Body:
    """The body of a function under construction: every step a named value."""

    def __init__(self, functions: dict[str, Function], dtype: str, lanes: int) -> None:
        self.functions, self.dtype, self.lanes = functions, dtype, lanes
        self.x, self.y = Name("x", dtype, lanes), Name("y", dtype, lanes)
        self.statements: list[Statement] = []

    def let(self, name: str, value: Expr) -> Name:
        self.statements.append(Let(name, value))
        return Name(name, value.dtype, value.lanes)

    def number(self, value: float | int, dtype: str = "") -> Number:
        return Number(value, dtype or self.dtype, self.lanes)

    def op(self, op: str, a: Expr, b: Expr | float) -> Operation:
        right = b if not isinstance(b, (int, float)) else self.number(b, a.dtype)
        return Operation(op, (a, right), a.dtype, self.lanes)

    def add(self, a: Expr, b: Expr | float) -> Operation:
        return self.op("add", a, b)

    def sub(self, a: Expr, b: Expr | float) -> Operation:
        return self.op("sub", a, b)

    def mul(self, a: Expr, b: Expr | float) -> Operation:
        return self.op("mul", a, b)

    def polynomial(self, x: Expr, coefficients: tuple[float, ...], wish: str = "p") -> Expr:
        """Horner's rule; ``coefficients`` by rising power."""
        value: Expr = self.number(coefficients[-1], x.dtype)
        for step, coefficient in enumerate(reversed(coefficients[:-1])):
            value = self.let(f"{wish}{step}", self.add(self.mul(value, x), coefficient))
        return value

    def where(self, order: str, a: Expr, b: Expr | float, yes: Expr | float, no: Expr | float) -> Operation:
        """The expression ``a order b ? yes : no``."""
        limit = b if not isinstance(b, (int, float)) else self.number(b, a.dtype)
        test = Operation(order, (a, limit), f"mask{BITS[a.dtype]}" if self.lanes > 1 else "bool", self.lanes)
        dtype = next((s.dtype for s in (yes, no) if not isinstance(s, (int, float))), self.dtype)
        sides = tuple(s if not isinstance(s, (int, float)) else self.number(s, dtype) for s in (yes, no))
        return Operation("select", (test, *sides), sides[0].dtype, self.lanes)

    def test(self, order: str, a: Expr, b: Expr, bits: int) -> Expr:
        """The comparison ``a order b``; for vectors a mask for lanes of so many bits."""
        if self.lanes == 1:
            return Operation(order, (a, b), "bool")
        mask = Operation(order, (a, b), f"mask{BITS[a.dtype]}", self.lanes)
        return mask if BITS[a.dtype] == bits else Convert(mask, f"mask{bits}")

    def choose(self, condition: Expr, yes: Expr, no: Expr) -> Operation:
        return Operation("select", (condition, yes, no), yes.dtype, self.lanes)

    def own(self, make: Callable, name: str, x: Expr) -> Expr:  # type: ignore[type-arg]
        return use(self.functions, make, name, x)
