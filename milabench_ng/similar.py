"""The name that a user may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LIKENESS = 0.75
"""Of two words, 0 to 1: lower ones suggest what nobody meant."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'quick'?"`` for ``"quik"``; empty if no known word is like it."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=_LIKENESS)
    return f"; did you mean {close[0]!r}?" if close else ""
