"""Which version wrote a file, and whether this one reads it."""

from __future__ import annotations

from typing import Any

from milabench_ng import __version__
from milabench_ng.model.files import refuse
from milabench_ng.model.plain import short

RECORD_SCHEMA = 2
RUN_SCHEMA = 1
"""Here, since types of records take long to import."""


def require_schema(schema: Any, kind: str, current: int, source: str) -> None:
    """Refuse a file of a ``kind`` whose ``schema`` is not ours, ``current``. ``source`` is for errors."""
    if type(schema) is not int or schema < 1:
        refuse(source, f"{kind} schema {short(repr(schema))}: mnb writes {current}. Was the file changed?")
    if schema > current:
        refuse(source, newer(kind, schema, current))
    if schema < current:
        refuse(source, f"{kind} schema {schema}: made by mnb 0.1, which later versions cannot read. Use that version")


def newer(kind: str, schema: int, current: int) -> str:
    """Why a file of a ``kind`` is not read, and what to do; ``current`` is the schema of today."""
    return f"{kind} schema {short(schema)}: this is mnb {__version__}, which reads schema {current}. Update mnb"


def written_by(written: Any, current: int) -> str:
    """Describe, for error messages, the ``version`` and ``schema`` that ``written`` states; ``current``: our schema."""
    known = written if isinstance(written, dict) else {}
    version, schema = known.get("version"), known.get("schema")
    ours = f"this is mnb {__version__}, schema {current}"
    if not isinstance(version, str) or type(schema) is not int:
        return f"it does not say which version of mnb made it; {ours}"
    if (version, schema) == (__version__, current):
        return (
            f"made by mnb {version}, schema {schema}, like this mnb. The file was changed, or made before that release"
        )
    age = "an earlier" if schema < current else "a later" if schema > current else "another"
    return f"made by {age} version of mnb, {short(version)}, schema {schema}; {ours}. Use that version"


def release(version: str) -> tuple[int, ...]:
    """``"0.2.0"`` as numbers without the zeros at its end (PEP 440); empty or odd versions sort first."""
    parts = [int(part) for part in version.split(".") if part.isdecimal()]
    return tuple(parts[: max((place for place, part in enumerate(parts, 1) if part), default=0)])
