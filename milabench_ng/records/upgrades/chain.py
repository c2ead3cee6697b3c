"""Chains of upgrade steps that turn a JSON object of any earlier schema into one of today's. Pure.

To raise a schema: add a step ``from_N`` to the chain of its kind, raise the number next to the type, and store a file
of the previous version under ``tests/data``. Steps are never changed later. A step leaves unexpected content unchanged:
the strict decoder that follows refuses it and names its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec

from milabench_ng import __version__
from milabench_ng.files import refuse
from milabench_ng.plain import short

Raw = dict[str, Any]
"""A JSON object."""
UpgradeStep = Callable[[Raw], Raw]
"""From one schema to the next; the chain changes the number itself."""


class Upgrades(msgspec.Struct, frozen=True):
    """The steps of one kind of file."""

    kind: str
    steps: tuple[UpgradeStep, ...]
    """The first one upgrades schema 1."""

    @property
    def current(self) -> int:
        """The schema of today."""
        return 1 + len(self.steps)

    def upgrade(self, raw: Any, source: str) -> Any:
        """``raw`` as an object of today's schema; anything else is returned unchanged. ``source`` is for errors.

        Raises InputError if the object names no schema, or one that this version does not know.
        """
        if not isinstance(raw, dict):
            return raw
        schema = raw.get("schema")
        if type(schema) is not int or schema < 1:
            refuse(source, f"{self.kind} schema {short(repr(schema))}: mnb writes 1 to {self.current}; was it changed?")
        if schema > self.current:
            refuse(source, newer(self.kind, schema, self.current))
        return reduce(lambda made, step: step(made), self.steps[schema - 1 :], raw) | {"schema": self.current}


def newer(kind: str, schema: int, current: int) -> str:
    """Why a file of a ``kind`` is not read, and what to do; ``current`` is the schema of today."""
    return f"{kind} schema {short(schema)}: this is mnb {__version__}, which reads up to schema {current}; update mnb"


def changed(raw: Raw, **changes: Callable[[Any], Any]) -> Raw:
    """``raw`` with some of its values changed, if it has them."""
    return raw | {name: change(raw[name]) for name, change in changes.items() if name in raw}


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with all its members changed, if it is a list or an object."""
    if isinstance(value, list):
        return [change(member) for member in value]
    if isinstance(value, dict):
        return {name: change(member) for name, member in value.items()}
    return value


def filled(value: Any, defaults: Raw) -> Any:
    """``value`` with ``defaults`` for the keys that it lacks, if it is an object."""
    return defaults | value if isinstance(value, dict) else value


def noted(mark: Any) -> Any:
    """A mark: those of schema 1 may be sentences, which become notes."""
    return {"kind": "noted", "what": mark} if isinstance(mark, str) else mark
