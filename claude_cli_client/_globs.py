"""Patterns with stars: whether something fits one.

Pure. No regular expression is made of a pattern. The text comes from the model: with several `.*` in one, it could
be a text that takes minutes, and `re` lets no other thread run meanwhile, so no limit would hold. Here no part of
a pattern looks at a part of the text twice: the cost is the length of the one times that of the other at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Wanted = TypeVar("Wanted")
Given = TypeVar("Given")


def glob(pattern: str, text: str) -> bool:
    """`*` is anything, and nothing else is special: quick enough for many long texts."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    last = rest.pop()
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for middle in rest:
        found = text.find(middle, position, end)
        if found < 0:
            return False
        position = found + len(middle)
    return True


def fits(
    pattern: Sequence[Wanted], given: Sequence[Given], star: Wanted, same: Callable[[Wanted, Given], bool]
) -> bool:
    """Whether all that is given fits: `star` is any number of items, everything else one that is the `same`.

    What stands behind a star is taken where it is found first. Only the last star is ever given more: to
    give an earlier one more would leave less to the later ones, and they may take anything.
    """
    wanted = item = begun = 0
    behind = None  # the last star, in the pattern; what is behind it was tried from `begun` on
    while item < len(given):
        if wanted < len(pattern) and pattern[wanted] == star:
            wanted += 1
            behind, begun = wanted, item
        elif wanted < len(pattern) and same(pattern[wanted], given[item]):
            wanted, item = wanted + 1, item + 1
        elif behind is None:
            return False
        else:
            begun += 1
            wanted, item = behind, begun
    return all(left == star for left in pattern[wanted:])
