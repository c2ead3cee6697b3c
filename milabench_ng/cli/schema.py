"""``mnb schema``."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from milabench_ng.analysis.summary.summary import SUMMARY_SCHEMA, Summary
from milabench_ng.model.events import EVENT_SCHEMA, AnyCommand, AnyEvent
from milabench_ng.model.profile import PROFILE_SCHEMA, TEST_NAME, Test
from milabench_ng.records.ledger import LEDGER_SCHEMA, LedgerLine
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.origin import RECORD_SCHEMA, RUN_SCHEMA
from milabench_ng.records.record import Record
from milabench_ng.records.series import SERIES_SCHEMA, BatchSeries
from milabench_ng.run.events.run_events import RUN_EVENTS_SCHEMA, Stamped
from milabench_ng.tender.bids import BIDS_SCHEMA, Bids
from milabench_ng.verification.rules import RULES_SCHEMA, Rules

SchemaKind = Literal["profile", "record", "event", "summary", "run", "ledger", "series", "run-event", "rules", "bids"]
Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = f"^{TEST_NAME.pattern}$"


def schema(kind: SchemaKind, /) -> int:
    """Print the JSON Schema of a file or stream, for editors and programs that read results.

    Example: mnb schema profile > profile.schema.json

    Parameters
    ----------
    kind
        A profile, a launch's record, an event, a summary, the manifest run.json, a ledger line, a buyer's rules,
        or the bids of a tender.
    """
    print(msgspec.json.format(msgspec.json.encode(schema_of(kind)), indent=2).decode())
    return 0


def schema_of(kind: SchemaKind) -> Schema:
    """The schema of ``kind``: a profile file, the record of a launch, one line of the protocol, a summary, run.json,
    one line of ledger.jsonl, one line of events.jsonl, a buyer's rules, the bids of a tender.
    """
    return _profile() if kind == "profile" else _of(kind, *_FILES[kind])


_FILES: dict[str, tuple[int, str, tuple[Any, ...]]] = {
    "record": (RECORD_SCHEMA, "The JSON file of one launch.", (Record,)),
    "event": (
        EVENT_SCHEMA,
        "One line between worker and orchestrator: an event upwards, or a command downwards.",
        (AnyEvent, AnyCommand),
    ),
    "summary": (SUMMARY_SCHEMA, "The statistics of a result folder; stored, a baseline.", (Summary,)),
    "rules": (RULES_SCHEMA, "A buyer's demands on a result; see docs/reference/rules-file.md.", (Rules,)),
    "bids": (BIDS_SCHEMA, "The offers of a tender and the buyer's assumptions, for mnb bids.", (Bids,)),
    "run": (RUN_SCHEMA, "run.json, the manifest of a result folder.", (Manifest,)),
    "ledger": (LEDGER_SCHEMA, "One line of ledger.jsonl, what was done to a result folder.", (LedgerLine,)),
    "series": (SERIES_SCHEMA, "The telemetry of one launch group, in series/ of a result folder.", (BatchSeries,)),
    "run-event": (RUN_EVENTS_SCHEMA, "One line of events.jsonl, what happened while a run went on.", (Stamped,)),
}


def _of(title: str, version: int, description: str, types: tuple[Any, ...]) -> Schema:
    roots, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    if work := definitions.pop("Work", None):  # in a file it stands beside the figures of its row
        row = definitions["TestSummary"]["properties"]
        del row["work"]
        row |= work["properties"]
    body = roots[0] if len(roots) == 1 else {"anyOf": list(roots)}
    return {**_head(title, version, description), **body, "$defs": definitions}


def _profile() -> Schema:
    """An object whose ``"*"`` holds any keys of a test, and whose other members are tests.

    A test may omit required keys that ``"*"`` has, since both are merged. Profiles of the 2020 tool have another
    format, which this does not describe.
    """
    _, definitions = msgspec.json.schema_components([Test], ref_template="#/$defs/{name}")
    test = definitions["Test"]
    stated = test["properties"]  # with the words of before 0.3.0
    stated["company"] = stated["neighbors"]
    stated["role"] = {**stated["role"], "enum": [*stated["role"]["enum"], "company"]}
    definitions["Defaults"] = {
        **{key: value for key, value in test.items() if key != "required"},
        "title": "Defaults",
        "description": "Keys that every test has unless it says otherwise.",
    }
    return {
        **_head("profile", PROFILE_SCHEMA, "Tests by name, with defaults for all of them under '*'."),
        "type": "object",
        "properties": {"*": {"$ref": "#/$defs/Defaults"}},
        "patternProperties": {_NAME: {"$ref": "#/$defs/Defaults"}},
        "additionalProperties": False,
        "if": {"required": ["*"], "properties": {"*": {"required": test["required"]}}},
        "else": {"patternProperties": {_NAME: {"$ref": "#/$defs/Test"}}},
        "$defs": definitions,
    }


def _head(title: str, version: int, description: str) -> Schema:
    return {
        "$schema": DIALECT,
        "$id": f"urn:milabench_ng:{title}:{version}",
        "title": f"mnb {title}",
        "description": description,
        "version": version,
    }
