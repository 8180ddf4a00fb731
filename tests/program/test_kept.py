"""What is kept is bounded, and what goes first is what came first."""

from rollergen.program.model.kept import Kept


def test_what_was_put_in_first_goes_first():
    kept = Kept(2)
    for number in range(3):
        kept.put(number, str(number))
    assert [kept.get(number) for number in range(3)] == [None, "1", "2"]


def test_nothing_is_left_of_what_was_cleared():
    kept = Kept(2)
    kept.put("a", 1)
    kept.clear()
    assert kept.get("a") is None
