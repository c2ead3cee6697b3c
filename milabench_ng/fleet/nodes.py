"""The names of nodes and of their sessions. Both become folders, and nodes also words of commands."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}(?<!\.)\Z"
SESSION = r"^(screen|retest-[1-9][0-9]{0,3})\Z"

NodeName = Annotated[str, msgspec.Meta(pattern=NODE)]
"""What Slurm, ssh or Kubernetes calls a node."""
SessionName = Annotated[str, msgspec.Meta(pattern=SESSION)]
"""Which of a node's runs it is: ``screen`` is the first, ``retest-1`` the first of what was suspicious."""

SCREEN: SessionName = "screen"


def node_name(text: str) -> NodeName:
    """``text`` if it names a node. Raises InputError if it could mean anything else in a path or a command."""
    if not re.fullmatch(NODE, text):
        raise InputError(f"node {short(repr(text))}: expected letters, digits, dots and dashes")
    return text


def retest(number: int) -> SessionName:
    """The name of the ``number``-th retest, from 1."""
    return f"retest-{number}"
