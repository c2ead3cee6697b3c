"""Racks or switches: which nodes belong together. Read from a file of the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from milabench_ng.fleet.nodes import NodeName, node_set
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.model.plain import plain, short

UNGROUPED = "no group"


def read_groups(file: Path, nodes: Sequence[NodeName]) -> Mapping[NodeName, str]:
    """The group of every node. A line is ``GROUP: NODES``, with nodes as in ``gpu[001-016],gpu020`` or by name.

    Raises InputError for other lines, for a node in two groups, and if no node of the fleet is in a group.
    """
    found: dict[NodeName, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        name, colon, listed = (word.strip() for word in words.partition(":"))
        if not (name and colon and listed):
            raise InputError(f"{plain(file)}: line {number}: expected GROUP: NODES, such as rack1: gpu[001-016]")
        for node in node_set(listed, f"{plain(file)}: line {number}"):
            if found.setdefault(node, name) != name:
                raise InputError(f"{plain(file)}: line {number}: {short(node)} is also in {short(found[node])}")
    if not any(node in found for node in nodes):
        raise InputError(f"{plain(file)}: no node of the fleet is in a group. Its nodes are {short(', '.join(nodes))}")
    return {node: found.get(node, UNGROUPED) for node in nodes}
