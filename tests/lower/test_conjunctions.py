"""Conditions are joined so that no compiler finds a constant in them to warn of."""

from rollergen.emit.division import functions
from rollergen.expr.index import Index
from rollergen.lower.expressions import Inside, Number
from rollergen.lower.place import conjunction


def test_where_a_test_cannot_hold_there_is_plain_false():
    open_, never = Inside(Index.axis("i"), None, 127), Inside(Index.of(-1), 0, -2)
    assert conjunction((open_, never)) == conjunction((never,)) == Number(False, "bool")
    assert conjunction((open_,)) is open_ and conjunction(()) is None


def test_divisions_by_a_reciprocal_put_what_stands_before_a_question_mark_in_parentheses():
    text = functions(16, "")["divided_by16"]
    assert "return ((left <" in text
