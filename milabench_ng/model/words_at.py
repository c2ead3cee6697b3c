"""What a JSON file may say at a place, by the type that it is read as: for messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import inspect

_STEP = re.compile(r"\.(?P<key>[^.[]+)|\[[^]]*\]")
_KEYS = "key` in `"
"""How msgspec names the place of a wrong key of a mapping."""


def keys_at(kind: type, place: str) -> list[str]:
    """The keys of the object at ``place``, which is as msgspec names it: ``$.stamps``."""
    found = _at((inspect.type_info(kind),), place)
    return [field.encode_name for at in found if isinstance(at, inspect.StructType) for field in at.fields]


def words_at(kind: type, place: str) -> list[str]:
    """The words from which the value at ``place`` is chosen, or each key of the mapping there."""
    return [str(value) for at in _texts_at(kind, place) if isinstance(at, inspect.LiteralType) for value in at.values]


def form_at(kind: type, place: str) -> str:
    """What a text at ``place`` should look like, as the ``description`` beside its pattern says; empty without one."""
    told = (at.extra_json_schema or {} for at in _texts_at(kind, place) if isinstance(at, inspect.Metadata))
    return next((str(one["description"]) for one in told if "description" in one), "")


def _texts_at(kind: type, place: str) -> list[inspect.Type]:
    """The types of the value at ``place``, or of the keys of the mapping there."""
    found = _at((inspect.type_info(kind),), place.removeprefix(_KEYS))
    return (
        _unions(at.key_type for at in found if isinstance(at, inspect.DictType)) if place.startswith(_KEYS) else found
    )


def _at(found: Iterable[inspect.Type], place: str) -> list[inspect.Type]:
    for step in _STEP.finditer(place):
        found = [inner for at in _unions(found) for inner in _inside(at, step["key"])]
    return _unions(found)


def _unions(found: Iterable[inspect.Type]) -> list[inspect.Type]:
    """Each alternative for itself."""
    return [one for at in found for one in (at.types if isinstance(at, inspect.UnionType) else (at,))]


def _inside(at: inspect.Type, key: str | None) -> Iterator[inspect.Type]:
    """The types of what is in an object under ``key``, or in a list or mapping."""
    match at:
        case inspect.StructType():
            yield from (field.type for field in at.fields if field.encode_name == key)
        case inspect.DictType():
            yield at.value_type
        case inspect.ListType() | inspect.VarTupleType():
            yield at.item_type
