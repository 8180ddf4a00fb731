"""Whether a card is named in what a driver calls the one that is present."""

from __future__ import annotations

import re

_OTHER_CARD = r"[a-z0-9]| (?:d|ti|super|laptop|max-q)\b"
"""What follows a card's name in the name of another: L40S is no L4, an RTX 4090 Laptop GPU no RTX 4090."""


def names_card(card: str, name: str) -> bool:
    """Whether `card` stands in `name` as whole words that go on to no other card's.

    >>> names_card("L4", "NVIDIA L4"), names_card("L4", "NVIDIA L40S")
    (True, False)
    """
    return re.search(rf"(?<![a-z0-9]){re.escape(card.lower())}(?!{_OTHER_CARD})", name.lower()) is not None
