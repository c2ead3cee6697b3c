"""The names of nodes and of their sessions. Both become folders, and nodes also words of commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plain import short

NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}(?<!\.)\Z"
SESSION = r"^(screen|retest-[1-9][0-9]{0,3})\Z"

NodeName = Annotated[str, msgspec.Meta(pattern=NODE)]
"""What Slurm, ssh or Kubernetes calls a node."""
SessionName = Annotated[str, msgspec.Meta(pattern=SESSION)]
"""Which of a node's runs it is: ``screen`` is the first, ``retest-1`` the first of what was suspicious."""

SCREEN: SessionName = "screen"
LOCK = ".lock"
"""A file of a node's own folder, which is held while a session goes on there."""


def node_name(text: str) -> NodeName:
    """``text`` if it names a node. Raises InputError if it could mean anything else in a path or a command."""
    if not re.fullmatch(NODE, text):
        raise InputError(
            f"node {short(repr(text))}: expected letters, digits, dots, dashes and underscores, first a letter or "
            "digit, and no dot at the end. For ssh, give it such a name as a Host in ~/.ssh/config"
        )
    return text


def node_set(text: str, where: str) -> tuple[NodeName, ...]:
    """The nodes of a set such as ``gpu[001-016],gpu020``; names alone need no ClusterShell.

    Raises InputError, which begins with ``where``, for what is none.
    """
    if not _OF_SETS & set(text):
        names = text.replace(",", " ").split()
    else:
        try:
            sets = import_module("ClusterShell.NodeSet")
        except ModuleNotFoundError:
            raise InputError(
                f'{where}: node sets need ClusterShell. pip install "milabench_ng[fleet]", or write all names'
            ) from None
        try:
            names = list(map(str, sets.NodeSet(text)))
        except sets.NodeSetException as error:
            raise InputError(f"{where}: {short(error)}. Expected nodes such as gpu[001-016]") from None
    if not names:
        raise InputError(f"{where}: no node. Expected nodes such as gpu[001-016]")
    return tuple(dict.fromkeys(map(node_name, names)))


_OF_SETS = frozenset("[]@!&^%*?")
"""What names alone do not have."""


def nodes_by_value(values: Mapping[NodeName, str]) -> dict[str, tuple[NodeName, ...]]:
    """Nodes by value, the most frequent first."""
    found = gathered((value, node) for node, value in values.items())
    return {value: tuple(nodes) for value, nodes in sorted(found.items(), key=lambda item: -len(item[1]))}


def retest(number: int) -> SessionName:
    """The name of the ``number``-th retest, from 1."""
    return f"retest-{number}"


def shared_with(name: str, traits: Iterable[str], owners: dict[str, str]) -> tuple[str, ...]:
    """Which other sessions have one of the ``traits``, which no two runs share; notes its own in ``owners``."""
    others = (owners[trait] for trait in traits if owners.setdefault(trait, name) != name)
    return tuple(dict.fromkeys(others))
