"""What is printed, as text: to a file, and on terminals of any width."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from os import terminal_size
from typing import Any

import pytest


class Terminal(io.StringIO):
    """Says that it is a terminal, and remembers what is written to it; its width is that of the environment."""

    def isatty(self) -> bool:
        return True


def text_of(write: Callable[..., None], *what: Any, **options: Any) -> str:
    """What ``write`` writes of ``what`` to a file."""
    stream = io.StringIO()
    write(*what, stream, **options)
    return stream.getvalue()


def on_terminal(
    patch: pytest.MonkeyPatch, width: int, write: Callable[..., None], *what: Any, **options: Any
) -> list[str]:
    """The lines that ``write`` writes of ``what`` to a terminal of so many columns, without their colours."""
    patch.setattr(shutil, "get_terminal_size", lambda: terminal_size((width, 40)))
    stream = Terminal()
    write(*what, stream, **options)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()]
