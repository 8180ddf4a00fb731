"""In which order the operands of an einsum are multiplied, two at a time.

Exhaustive over subsets up to `EXHAUSTIVE` operands, else greedy (Smith and Gray, opt_einsum, JOSS 3(26), 753, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod

EXHAUSTIVE = 7
"""Operands of which every order is tried: 3^7 pairs of subsets take a few milliseconds."""

Letters = frozenset[str]
Order = tuple[tuple[int, int], ...]


def kept_letters(operands: Sequence[Letters], output: Letters, members: Sequence[int]) -> Letters:
    """The letters that the product of some operands keeps: those that the output or another operand has."""
    others = frozenset().union(output, *(letters for n, letters in enumerate(operands) if n not in members))
    return frozenset().union(*(operands[n] for n in members)) & others


def contraction_order(operands: Sequence[Letters], output: Letters, extents: Mapping[str, int]) -> Order:
    """Pairs of positions, each replaced by its product, which comes last; none where all at once is no dearer.

    The cost is that of opt_einsum: multiplications, of all at once one less than there are operands at each point.

    >>> letters = [frozenset("ij"), frozenset("jk"), frozenset("k")]
    >>> contraction_order(letters, frozenset("i"), {"i": 10, "j": 10, "k": 10})
    ((1, 2), (0, 1))
    """
    count = len(operands)
    find = _best if count <= EXHAUSTIVE else _greedy
    cost, tree = find(list(operands), output, extents)
    at_once = (count - 1) * _points(frozenset().union(*operands), extents)
    return tuple(_pairs(tree, list(range(count)))) if cost < at_once else ()


Tree = int | tuple["Tree", "Tree"]


def _points(letters: Letters, extents: Mapping[str, int]) -> int:
    return prod(extents[letter] for letter in letters)


def _best(operands: list[Letters], output: Letters, extents: Mapping[str, int]) -> tuple[int, Tree]:
    """The cheapest tree of pairs, from the smallest subsets on."""
    found: dict[frozenset[int], tuple[int, Tree, Letters]] = {
        frozenset({n}): (0, n, letters) for n, letters in enumerate(operands)
    }
    everything = range(len(operands))
    for size in range(2, len(operands) + 1):
        for members in combinations(everything, size):
            kept = kept_letters(operands, output, members)
            first, *rest = members  # one side has the first, so that no pair comes twice
            sides = (frozenset({first, *some}) for few in range(size - 1) for some in combinations(rest, few))
            best: tuple[int, Tree, Letters] | None = None
            for left in sides:
                (cost, tree, had), (other_cost, other, has) = found[left], found[frozenset(members) - left]
                total = cost + other_cost + _points(had | has, extents)
                if best is None or total < best[0]:
                    best = (total, (tree, other), kept)
            assert best is not None  # a subset of two or more has sides
            found[frozenset(members)] = best
    return found[frozenset(everything)][:2]


def _greedy(operands: list[Letters], output: Letters, extents: Mapping[str, int]) -> tuple[int, Tree]:
    """The pair next that shrinks what is left most: its result's elements less those of its operands."""
    trees, letters = list[Tree](range(len(operands))), list(operands)
    total = 0
    while len(trees) > 1:
        a, b = min(combinations(range(len(trees)), 2), key=lambda pair: _growth(letters, output, pair, extents))
        total += _points(letters[a] | letters[b], extents)
        product, kept = (trees[a], trees[b]), kept_letters(letters, output, (a, b))
        trees = [*(one for n, one in enumerate(trees) if n not in (a, b)), product]
        letters = [*(one for n, one in enumerate(letters) if n not in (a, b)), kept]
    return total, trees[0]


def _growth(
    letters: list[Letters], output: Letters, pair: tuple[int, int], extents: Mapping[str, int]
) -> tuple[int, int]:
    """Elements of a pair's product less those of its operands, and the multiplications that it takes."""
    result = _points(kept_letters(letters, output, pair), extents)
    points = _points(letters[pair[0]] | letters[pair[1]], extents)
    return result - sum(_points(letters[n], extents) for n in pair), points


def _pairs(tree: Tree, present: list[Tree]) -> Iterator[tuple[int, int]]:
    """The tree's pairs as positions among what is present, from the leaves on."""
    if isinstance(tree, int):
        return
    for side in tree:
        yield from _pairs(side, present)
    a, b = sorted(present.index(side) for side in tree)
    yield a, b
    del present[b], present[a]
    present.append(tree)
