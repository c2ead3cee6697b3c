"""The schemas that ``mnb schema`` prints agree with what is read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import json_schema
import pytest

from milabench_ng.cli.schema import SchemaKind, schema_of
from milabench_ng.model import events
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import parse_profile

REPOSITORY = Path(__file__).parents[2]
TEST = {"workload": "vae"}


def problems(kind: SchemaKind, value: Any) -> list[str]:
    schema = schema_of(kind)
    return json_schema.errors(value, schema, schema)


@pytest.mark.parametrize("kind", get_args(SchemaKind))
def test_every_schema_has_its_head_and_resolves(kind: SchemaKind) -> None:
    schema = schema_of(kind)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == f"mnb {kind}"
    assert schema["version"] == (2 if kind in ("record", "summary", "ledger") else 1)
    text = json.dumps(schema)
    named = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert named <= set(schema["$defs"])


@pytest.mark.parametrize("path", sorted((REPOSITORY / "profiles").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_profiles_satisfy_the_schema(path: Path) -> None:
    assert problems("profile", json.loads(path.read_text())) == []


@pytest.mark.parametrize("path", sorted((REPOSITORY / "rules").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_rules_satisfy_the_schema(path: Path) -> None:
    assert problems("rules", json.loads(path.read_text())) == []


@pytest.mark.parametrize(
    ("profile", "good"),
    [
        ({"a": TEST}, True),
        ({"*": {"data_scale": 0.5}, "a": TEST}, True),
        ({"*": TEST, "a": {}}, True),
        ({"*": TEST, "a": {"require": "full", "arguments": {"batch_size": 3}}}, True),
        ({"a": {}}, False),
        ({"*": {"data_scale": 0.5}, "a": {}}, False),
        ({"a": {**TEST, "colour": 1}}, False),
        ({"*": {"colour": 1}, "a": TEST}, False),
        ({"a": {**TEST, "data_scale": "half"}}, False),
        ({"a": {**TEST, "partition_scheme": {"type": "per-socket"}}}, False),
        ({"a": {**TEST, "arguments": {"batch_size": [3]}}}, False),
        ({"a b": TEST}, False),
        ({"a": 3}, False),
    ],
)
def test_the_profile_schema_takes_what_the_reader_takes(profile: dict[str, Any], good: bool) -> None:
    assert (problems("profile", profile) == []) is good
    text = json.dumps(profile)
    if good:
        parse_profile("x", text, "x.json")
    else:
        with pytest.raises(InputError):
            parse_profile("x", text, "x.json")


@pytest.mark.parametrize(
    "message",
    [
        events.Slice(start_s=1.5, length_s=0.5, count=3, steps=1, wait_s=0.0),
        events.Loss(step=1, value=None),
        events.GradientNorm(step=1, value=0.5),
        events.Stop(),
    ],
)
def test_the_event_schema_takes_what_is_sent(message: Any) -> None:
    line = json.loads(events.encode(message))
    assert problems("event", line) == []
    assert problems("event", {**line, "event": "Nonsense", "command": "Nonsense"})


@pytest.mark.parametrize("path", sorted((REPOSITORY / "baselines").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_baselines_satisfy_the_summary_schema(path: Path) -> None:
    baseline = json.loads(path.read_text())
    assert problems("summary", baseline) == []
    assert problems("summary", {**baseline, "devices": "eight"})


def test_fields_that_a_record_must_have_are_required() -> None:
    schema = schema_of("record")
    assert {"name", "job_id", "success", "timings", "gpu_monitor", "mnb"} <= set(schema["$defs"]["Record"]["required"])
    assert problems("record", {"name": "quick.vae"})
