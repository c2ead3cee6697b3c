"""Which version wrote a record or manifest that this version cannot use, for error messages."""

from __future__ import annotations

from typing import Any

from milabench_ng import __version__
from milabench_ng.plain import short


def written_by(written: Any, current: int) -> str:
    """Describe the ``version`` and ``schema`` that the object ``written`` states; ``current``: our own schema."""
    known = written if isinstance(written, dict) else {}
    version, schema = known.get("version"), known.get("schema")
    ours = f"this is mnb {__version__}, schema {current}"
    if not isinstance(version, str) or type(schema) is not int:
        return f"it does not say by which version of mnb; {ours}"
    if (version, schema) == (__version__, current):
        return f"made by mnb {version}, schema {schema}, as this is: it was changed, or made before that release"
    age = "an earlier" if schema < current else "a later" if schema > current else "another"
    return f"made by {age} version of mnb, {short(version)}, schema {schema}; {ours}: use that version"
