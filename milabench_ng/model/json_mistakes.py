"""What is wrong with a text that should be JSON, in words of those who write such files by hand. Pure."""

from __future__ import annotations

import json
import re
from itertools import chain

_AT = (
    (r",\s*[}\]]", "a comma stands before the closing bracket. Remove it"),
    (r"['\u2018\u2019\u201c\u201d]", 'keys and texts stand in straight double quotes, such as "name"'),
    (r"//|/\*|#", "JSON has no comments. Remove this one"),
    (r"(True|False|None)\b", "JSON writes true, false and null, with small letters"),
    (r"[\w$-]+\s*:", 'keys stand in double quotes, such as "name"'),
)
"""By what stands at the mistake, or is the last character before it; the first that fits."""
_SAID = (
    ("Unterminated string", "a text has no closing quotation mark"),
    ("Expecting property name", 'expected a key in double quotes, such as "name"'),
    ("Expecting ',' delimiter", "expected a comma or a closing bracket"),
    ("Expecting ':' delimiter", "expected a colon after the key"),
    ("Expecting value", "expected a value"),
    ("Extra data", "something follows the closing bracket of the file. Remove it"),
    ("Invalid control character", r"a text has a line break or a tab in it. Write \n or \t"),
    ("Invalid \\", r"a backslash in a text is written twice: \\"),
)
"""By how a message of `json` begins."""


def mistake(error: json.JSONDecodeError) -> str:
    """What is wrong and what to do, without the place: ``a comma stands before the closing bracket. Remove it``."""
    here, before = error.doc[error.pos :].lstrip(), error.doc[: error.pos].rstrip()[-1:]
    in_a_text = error.msg.startswith(("Unterminated", "Invalid"))  # which may hold anything
    at = (words for form, words in _AT if re.match(form, here) or re.match(form, before + here))
    said = (words for begin, words in _SAID if error.msg.startswith(begin))
    return next(said, error.msg) if in_a_text else next(chain(at, said), error.msg)
