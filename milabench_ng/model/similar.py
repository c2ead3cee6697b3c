"""The name that a user may have meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_LIKENESS = 0.75
"""Of two words, 0 to 1: lower ones suggest what nobody meant."""
_LIKENESS_BEGUN = 0.7
"""The same of words that begin alike."""
_TELLING = 3
"""So many letters of a name say which one is meant."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'quick'?)"`` for ``"quik"``; empty if no known word is like it.

    First comes the shortest name that holds the word, without the dashes of an option, then one of the same letters,
    then the most similar one.
    """
    names = sorted(known, key=len)
    asked, part = word.lower(), word.lower().lstrip("-")
    close = (
        *(name for name in names if part in name.lower() and len(part) >= _TELLING),
        *(name for name in names if sorted(asked) == sorted(name.lower())),
        *_likest(word, names),
    )
    return f" (did you mean {close[0]!r}?)" if close else ""


def _likest(word: str, names: Iterable[str]) -> list[str]:
    """Those that are like it, the likest first: ``--reps`` is more like ``--repeat`` than like ``--rules``."""
    begin = word.lstrip("-")[:_TELLING]
    alike = ((SequenceMatcher(None, name, word).ratio(), name.lstrip("-")[:_TELLING] == begin, name) for name in names)
    found = [(begun, ratio, name) for ratio, begun, name in alike if ratio >= (_LIKENESS_BEGUN if begun else _LIKENESS)]
    return [name for *_, name in sorted(found, reverse=True)]


def meant_or_all(word: str, known: Iterable[str]) -> str:
    """`did_you_mean`, or all that is known where no word is like it."""
    names = list(known)
    return did_you_mean(word, names) or (f". Known: {', '.join(names)}" if names else "")
