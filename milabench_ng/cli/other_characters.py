"""What is printed for a character that the encoding of a terminal or a log lacks, such as that of ``LANG=C``."""

from __future__ import annotations

import codecs

ALIKE = {"±": "+-", "·": "-", "…": "...", "°": "deg ", "░": "."} | dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True))
HANDLER = "mnb-alike"
"""The name of `alike` for ``errors`` of a stream."""


def alike(error: UnicodeError) -> tuple[str, int]:
    """The characters that look like those that cannot be encoded; a question mark where none does."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(ALIKE.get(each, "?") for each in error.object[error.start : error.end]), error.end


codecs.register_error(HANDLER, alike)
