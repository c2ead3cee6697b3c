"""``mnb schema``."""

from __future__ import annotations

import msgspec

from milabench_ng.schemas import SchemaKind
from milabench_ng.schemas import schema as make_schema


def schema(kind: SchemaKind, /) -> int:
    """Print the JSON Schema of a file or stream, for editors and programs that read results.

    Example: mnb schema profile > profile.schema.json

    Parameters
    ----------
    kind
        A profile, a launch's record, an event, a summary, the manifest run.json, a ledger line, a buyer's rules,
        or the bids of a tender.
    """
    print(msgspec.json.format(msgspec.json.encode(make_schema(kind)), indent=2).decode())
    return 0
