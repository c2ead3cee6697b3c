"""Sanitising of untrusted text: what came from a file or a name must not control the terminal."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec

_LONGEST = 300
# Control characters (C0, DEL, C1: cursor, colours, titles), line and paragraph separators, directions that reorder what
# is read (Unicode 16, UAX #9), invisible marks, and halves of surrogate pairs, which cannot be encoded at all.
_STEERS = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
    "\ud800-\udfff\U000e0100-\U000e01ef"
)
_ONE_LINE = re.compile(f"[{_STEERS}]")
_WORD = re.compile(r"\w+")
_ALIKE = frozenset({"LISU", "MATHEMATICAL"})
"""Scripts without cases that look like Latin, by how Unicode's names of their letters begin."""
_UNITS = frozenset("\u00b5\u03bc\u03a9\u2126")
"""Micro and ohm."""
_LINES = re.compile(f"(?!\n)[{_STEERS}]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_BYTES = {chr(0xDC00 + byte) for byte in range(0x80, 0x100)}
"""What Python makes of bytes that are no UTF-8."""


def plain(text: object) -> str:
    """``text`` in one line; characters that control a terminal are written as ``\\x1b``, and so are letters of other
    scripts in Latin words, which only look like Latin ones."""
    made = _ONE_LINE.sub(_escape, str(text))
    return made if made.isascii() else _WORD.sub(_of_one_script, made)


def quoted(text: object) -> str:
    """The same as one word of a command that a user copies into a shell, such as the name of a folder."""
    return shlex.quote(plain(text))


def plain_lines(text: str) -> str:
    """The same for a text of several lines."""
    return _LINES.sub(_escape, text)


def short(text: object) -> str:
    """The same in at most 300 characters, for names and reasons."""
    made = plain(text)
    return made if len(made) <= _LONGEST else f"{made[:_LONGEST]}..."


def short_end(text: object) -> str:
    """The last 300 characters of what others said, its lines in one: the reason comes last."""
    made = plain("; ".join(filter(None, map(str.strip, str(text).splitlines()))))
    return made if len(made) <= _LONGEST else f"...{made[-_LONGEST:]}"


def names_of(these: Sequence[str], most: int = 8) -> str:
    """``"a, b and 3 more"``: the first names, and how many there are more."""
    more = f" and {len(these) - most:,} more" if len(these) > most else ""
    return ", ".join(map(plain, these[:most])) + more


def plain_json(text: str) -> str:
    """JSON with all characters that control a terminal as ``\\u009b``: the same values, and safe to print."""
    return _LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def whole_json(value: Any) -> bytes:
    """``value`` as JSON. Strings from the system may hold bytes that are not UTF-8: these are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def encodable(text: str) -> str:
    """``text`` with bytes that were no UTF-8 (surrogateescape, PEP 383) as ``\\xff``."""
    return _SURROGATES.sub(_escape, text)


def printed_json(value: object, indent: int = 1) -> str:
    """``value`` as indented `plain_json` that ends its line."""
    return plain_json(msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()) + "\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inside) for key, inside in value.items()}
    return [_encodable(inside) for inside in value] if isinstance(value, list | tuple) else value


def _of_one_script(word: re.Match[str]) -> str:
    """A word with Latin letters, in which those of other scripts are escaped; a word of one script stands.

    Only letters of two cases count, since scripts that have them (Greek, Cyrillic, Armenian, Cherokee) look like
    Latin, and those of `_ALIKE`. Greek letters of units stand.
    """
    named = {letter: unicodedata.name(letter, "").partition(" ")[0] for letter in word[0]}
    scripts = {one: script for one, script in named.items() if one != one.swapcase() or script in _ALIKE}
    strange = [letter for letter, script in scripts.items() if script != "LATIN" and letter not in _UNITS]
    mixed = "LATIN" in scripts.values()
    return word[0].translate({ord(letter): _written(letter) for letter in strange}) if mixed else word[0]


def _escape(match: re.Match[str]) -> str:
    if match[0] in _BYTES:
        return f"\\x{ord(match[0]) & 0xFF:02x}"
    return _written(match[0])


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode()
