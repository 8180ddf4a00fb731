"""SymPy's forms of indices and conditions, turned into our records and values, and back.

Imported at first use only: SymPy costs most of a second to import.
"""

from __future__ import annotations

import functools
from typing import Any

import sympy

from rollergen.errors import ExpressionError, NonAffineIndexError
from rollergen.expr.guards import index_side
from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.values import Binary, Const, IndexValue, Unary, Value, index_number

_RELATIONS: dict[type, str] = {
    sympy.StrictLessThan: "lt",
    sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt",
    sympy.GreaterThan: "ge",
    sympy.Equality: "eq",
    sympy.Unequality: "ne",
}


@functools.lru_cache(maxsize=256)
def symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def to_sympy(index: Index) -> sympy.Expr:
    """`index` as a SymPy expression over nonnegative integer symbols."""
    total: Any = sympy.Integer(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            term = symbol(atom)
        elif isinstance(atom, FloorDiv):
            term = sympy.floor(to_sympy(atom.index) / atom.divisor)
        else:
            term = _remainder(to_sympy(atom.index), atom.divisor)
        total += coefficient * term
    return total


def _remainder(form: sympy.Expr, divisor: int) -> sympy.Expr:
    """``form % divisor``; of a form with remainders in it by their definition: SymPy 1.14 makes a power of the inner
    one, ``Mod(2*Mod(i, 5), 3)`` to ``Mod(2*Mod(i, 5)**2, 3)``."""
    if form.has(sympy.Mod):
        return form - divisor * sympy.floor(form / divisor)
    return sympy.Mod(form, divisor)


def condition_to_sympy(value: Value) -> sympy.Basic:
    """A condition on indices as a SymPy relation or logic; SympifyError for any other value."""
    index = index_side(value)
    if index is not None:
        return to_sympy(index)
    match value:
        case Binary(op="and" | "or" as op, a=a, b=b):
            combine = sympy.And if op == "and" else sympy.Or
            return combine(condition_to_sympy(a), condition_to_sympy(b))
        case Unary(op="not", x=x):
            return sympy.Not(condition_to_sympy(x))
        case Binary(op=op, a=a, b=b) if op in _RELATIONS.values():
            relation = next(kind for kind, name in _RELATIONS.items() if name == op)
            return relation(condition_to_sympy(a), condition_to_sympy(b))
    raise sympy.SympifyError(value)


def index_form(form: sympy.Expr) -> Index:
    """The integer record of a SymPy expression; NonAffineIndexError with the reason if it has none."""
    if form.is_Integer:
        return Index((), int(form))
    if form.is_Symbol:
        return Index.axis(form.name)
    if form.is_Add:
        total = Index()
        for term in form.args:
            total = total + index_form(term)
        return total
    if form.is_Mul:
        return _product(form)
    if isinstance(form, (sympy.floor, sympy.ceiling)):
        return _floor(form)
    if isinstance(form, sympy.Mod):
        divisor = form.args[1]
        if not (divisor.is_Integer and divisor > 0):
            raise NonAffineIndexError(f"% by {divisor}; expected a positive integer constant")
        return index_form(form.args[0]) % int(divisor)
    raise NonAffineIndexError(_reason(form))


def _product(form: sympy.Expr) -> Index:
    coefficient, rest = form.as_coeff_Mul()
    if not coefficient.is_Integer:
        raise NonAffineIndexError(f"{form} is not an integer for every value of its axes; use // for floor division")
    divisors = [f"({factor.base})" for factor in rest.args if factor.is_Pow and factor.exp.is_negative]
    if divisors:
        raise NonAffineIndexError(f"division by {' and '.join(divisors)}, which is not a constant")
    if rest.is_Mul or coefficient == 1:
        raise NonAffineIndexError(f"{rest} is a product of axes; expected an axis times a constant")
    return index_form(rest) * int(coefficient)


def _floor(form: sympy.Expr) -> Index:
    """``floor(p / d)`` with p integral is ``p // d``; ``ceiling(x)`` is ``-floor(-x)``."""
    inner = sympy.expand(form.args[0])
    sign = 1
    if isinstance(form, sympy.ceiling):
        inner, sign = sympy.expand(-inner), -1
    whole, divisor = _integral(inner)
    return (whole // divisor) * sign


def _integral(form: sympy.Expr) -> tuple[Index, int]:
    """``(index, d)`` with ``form == index / d``, for an expanded form with rational coefficients."""
    divisor = sympy.ilcm(1, *(_denominator(term) for term in sympy.Add.make_args(form)))
    return index_form(sympy.expand(form * divisor)), int(divisor)


def _denominator(term: sympy.Expr) -> int:
    coefficient = term.as_coeff_Mul()[0]
    if not coefficient.is_Rational:
        raise NonAffineIndexError(f"{term} has the coefficient {coefficient}; expected a rational constant")
    return int(coefficient.q)


def _reason(form: sympy.Expr) -> str:
    if form.is_Pow:
        if form.exp.is_negative:
            return f"division by {form.base}, which is not a constant"
        return f"{form} is a power of an axis"
    if form.is_Rational or form.is_Float:
        return f"{form} is not an integer"
    if isinstance(form, (sympy.Max, sympy.Min, sympy.Piecewise, sympy.Abs)):
        return f"{form} chooses between indices; choose between values with rg.select instead"
    return f"{type(form).__name__} is not accepted; expected axes combined by +, -, * // % with constants"


def operand_of(form: sympy.Basic) -> Value | int | float:
    """A SymPy number as a weak scalar, an integer expression as an index, a relation or its logic as a condition."""
    if form.is_number:
        return int(form) if form.is_Integer else float(form)
    return _index(form) if isinstance(form, sympy.Expr) else _condition(form)


def _index(form: sympy.Expr) -> Value:
    try:
        return IndexValue(index_form(form))
    except NonAffineIndexError as error:
        raise NonAffineIndexError(f"the index {form} used as a number is not quasi-affine: {error}") from None


def _condition(form: sympy.Basic) -> Value:
    operation = _RELATIONS.get(type(form))
    if operation is not None:
        return _relation(operation, form.args[0] - form.args[1])
    if isinstance(form, (sympy.And, sympy.Or)):
        return _chain("and" if isinstance(form, sympy.And) else "or", form.args)
    if isinstance(form, sympy.Not):
        return Unary("not", _condition(form.args[0]), "bool")
    if form in (sympy.true, sympy.false):
        return Const(bool(form), "bool")
    raise ExpressionError(f"{form} ({type(form).__name__}); expected an index or a condition on indices")


def _relation(operation: str, difference: sympy.Expr) -> Value:
    """``difference`` compared with 0; SymPy makes i/2 >= 1 of floor(i/2) >= 1, hence the scaling."""
    try:
        index, _ = _integral(sympy.expand(difference))
    except NonAffineIndexError as error:
        raise NonAffineIndexError(f"a condition on {difference} is not quasi-affine: {error}") from None
    number = index_number(index, {})
    return Binary(operation, number, Const(0, number.dtype), "bool")


def _chain(op: str, parts: tuple[sympy.Basic, ...]) -> Value:
    ordered = sorted(parts, key=sympy.default_sort_key)  # SymPy keeps a set: its order varies between processes
    return functools.reduce(lambda a, b: Binary(op, a, b, "bool"), map(_condition, ordered))
