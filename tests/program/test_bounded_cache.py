"""What is kept is bounded, and what goes first is what came first."""

from rollergen.program.model.together import BoundedCache


def test_what_was_put_in_first_goes_first():
    cache = BoundedCache(2)
    for number in range(3):
        cache.put(number, str(number))
    assert [cache.get(number) for number in range(3)] == [None, "1", "2"]


def test_nothing_is_left_of_what_was_cleared():
    cache = BoundedCache(2)
    cache.put("a", 1)
    cache.clear()
    assert cache.get("a") is None
