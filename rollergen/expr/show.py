"""Values as text, for messages and explanations; never parsed back."""

from __future__ import annotations

from rollergen.expr.places import Put
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Take, Unary, Value, Var

_INFIX = {row.name: row.symbol for row in PRIMITIVES.values() if row.symbol and row.operands == 2}


def show(value: Value) -> str:
    """`value` in the public language's spelling.

    >>> from rollergen.expr.values import Binary, Const, Unary
    >>> show(Binary("mul", Unary("exp", Const(1.0, "float32"), "float32"), Const(2.0, "float32"), "float32"))
    'exp(1.0)*2.0'
    """
    match value:
        case Const():
            return str(value.value)
        case Load():
            text = f"{value.buffer.name.partition('#')[0]}[{', '.join(map(str, value.indices))}]"
            bounds = " and ".join(map(str, value.guard))
            return f"({text} if {bounds} else {value.fill})" if bounds else text
        case Take():
            ids = ", ".join(f"{show(one)}*{stride}" for one, stride in zip(value.ids, value.strides, strict=True))
            mode = "" if value.mode == "raise" else f", {value.mode}"
            return f"take({show(value.row)}, {ids}{mode})"
        case Put():
            return f"{show(value.value)} put {value.multiple} * ({show(value.shift)}) behind"
        case IndexValue():
            return str(value.index)
        case Binary():
            if value.op in _INFIX:
                return f"{_operand(value.a)}{_spaced(value.op)}{_operand(value.b)}"
            return f"{value.op}{'imum' if value.op in ('max', 'min') else ''}({show(value.a)}, {show(value.b)})"
        case Unary():
            if symbol := PRIMITIVES[value.op].symbol:
                return symbol + _operand(value.x)
            return f"{value.op}({show(value.x)})"
        case Select():
            return f"select({show(value.cond)}, {show(value.a)}, {show(value.b)})"
        case Cast():
            return f"{value.dtype}({show(value.x)})"
        case Var():
            return value.name
        case Partial():
            return value.name + (f".{value.component}" if value.component else "")
    return f"{value}"


def _operand(value: Value) -> str:
    text = show(value)
    compound = (isinstance(value, Binary) and value.op in _INFIX) or (isinstance(value, IndexValue) and " " in text)
    return f"({text})" if compound else text


def _spaced(op: str) -> str:
    return _INFIX[op] if op in ("mul", "div", "pow") else f" {_INFIX[op]} "
