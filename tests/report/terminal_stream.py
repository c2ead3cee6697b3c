"""A stream that says it is a terminal, and remembers what is written to it."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """Any terminal: its width is that of the environment."""

    def isatty(self) -> bool:
        return True
