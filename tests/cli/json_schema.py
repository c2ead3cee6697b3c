"""The part of JSON Schema (2020-12) that our schemas use, as a check that is independent of the types."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    *("$schema", "$id", "$defs", "title", "description", "version", "default", "discriminator"),
    *("$ref", "anyOf", "if", "else", "type", "enum", "properties", "patternProperties", "additionalProperties"),
    *("required", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"),
    *("minProperties", "format", "pattern"),
}


def errors(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "$") -> list[str]:
    """What of ``value`` does not satisfy ``schema``, whose references are looked up in ``root``."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"the check does not know {unknown}"
    found: list[str] = []
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        found += errors(value, root["$defs"][name], root, where)
    if "anyOf" in schema and all(errors(value, one, root, where) for one in schema["anyOf"]):
        found.append(f"{where}: fits none of the alternatives")
    if "if" in schema and errors(value, schema["if"], root, where):
        found += errors(value, schema["else"], root, where)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "type" in schema and not _is(value, schema["type"]):
        return [*found, f"{where}: {value!r} is no {schema['type']}"]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if schema.get("format") == "date-time" and not _is_moment(value):
        found.append(f"{where}: {value!r} is no date with a time")
    if isinstance(value, int | float) and not _in_range(value, schema):
        found.append(f"{where}: {value!r} is out of range")
    if isinstance(value, dict):
        found += _object_errors(value, schema, root, where)
    if isinstance(value, list):
        found += _array_errors(value, schema, root, where)
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _is_moment(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _in_range(value: float, schema: dict[str, Any]) -> bool:
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    return bool(low <= value <= high and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]))


def _object_errors(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> list[str]:
    found = [f"{where}: {key} is missing" for key in schema.get("required", ()) if key not in value]
    if len(value) < schema.get("minProperties", 0):
        found.append(f"{where}: too few members")
    for key, member in value.items():
        matching = [one for pattern, one in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
        if key in schema.get("properties", {}):
            matching.append(schema["properties"][key])
        rest = schema.get("additionalProperties", True)
        if not matching and rest is False:
            found.append(f"{where}: {key} is unknown")
        if not matching and isinstance(rest, dict):
            matching.append(rest)
        for one in matching:
            found += errors(member, one, root, f"{where}.{key}")
    return found


def _array_errors(value: list[Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> list[str]:
    found = []
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        found.append(f"{where}: {len(value)} items")
    before = schema.get("prefixItems", [])
    rest = schema.get("items", {})
    for place, member in enumerate(value):
        one = before[place] if place < len(before) else rest
        if one is False:
            found.append(f"{where}[{place}]: too many")
        elif isinstance(one, dict):
            found += errors(member, one, root, f"{where}[{place}]")
    return found
