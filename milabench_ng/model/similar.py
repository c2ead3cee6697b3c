"""The name that a user may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LIKENESS = 0.75
"""Of two words, 0 to 1: lower ones suggest what nobody meant."""
_TELLING = 3
"""So many letters of a name say which one is meant."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'quick'?)"`` for ``"quik"``; empty if no known word is like it.

    First comes the shortest name that holds the word, then one of the same letters, then the most similar one.
    """
    names = sorted(known, key=len)
    asked = word.lower()
    close = (
        *(name for name in names if asked in name.lower() and len(word) >= _TELLING),
        *(name for name in names if sorted(asked) == sorted(name.lower())),
        *difflib.get_close_matches(word, names, n=1, cutoff=_LIKENESS),
    )
    return f" (did you mean {close[0]!r}?)" if close else ""


def meant_or_all(word: str, known: Iterable[str]) -> str:
    """`did_you_mean`, or all that is known where no word is like it."""
    names = list(known)
    return did_you_mean(word, names) or (f". Known: {', '.join(names)}" if names else "")
