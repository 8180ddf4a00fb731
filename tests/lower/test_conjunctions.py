"""Conditions are joined so that no compiler finds a constant in them to warn of."""

from rollergen.emit.division import functions
from rollergen.expr.index import Index
from rollergen.lower.expressions import Inside
from rollergen.lower.place import conjunction


def test_a_test_that_cannot_hold_stands_alone():
    open_, never = Inside(Index.axis("i"), None, 127), Inside(Index.of(0), None, -2)
    assert conjunction((open_, never)) is never
    assert conjunction((open_,)) is open_ and conjunction(()) is None


def test_divisions_by_a_reciprocal_put_what_stands_before_a_question_mark_in_parentheses():
    text = functions(16, "")["divided_by16"]
    assert "return ((left <" in text
