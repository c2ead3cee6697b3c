"""Each upgrade step alone: an object of an earlier schema in, one of the next out."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milabench_ng.errors import InputError
from milabench_ng.records.manifest import RUN_SCHEMA, Manifest
from milabench_ng.records.record import RECORD_SCHEMA, Record
from milabench_ng.records.upgrades import record as record_steps
from milabench_ng.records.upgrades import summary as summary_steps
from milabench_ng.records.upgrades.chain import Raw, Upgrades
from milabench_ng.records.upgrades.manifest import MANIFEST_UPGRADES
from milabench_ng.records.upgrades.record import RECORD_UPGRADES, upgrade_record
from milabench_ng.records.upgrades.summary import SUMMARY_UPGRADES
from milabench_ng.report.summary.summary import SUMMARY_SCHEMA

STORED = Path(__file__).parents[1] / "data" / "stored"
KINDS = (RECORD_UPGRADES, MANIFEST_UPGRADES, SUMMARY_UPGRADES)
UNTIMED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("ranks", "telemetry", "source", "marks", "tests", "train", "origin", "mean", "kind", "band", "session")


def objects(keys: tuple[str, ...] = KEYS) -> st.SearchStrategy[Raw]:
    """JSON objects with the keys that steps look at, and anything under them."""
    inner = st.dictionaries(st.sampled_from(keys), VALUES, max_size=4)
    return st.dictionaries(st.sampled_from(keys), VALUES | inner | st.lists(inner, max_size=2), max_size=6)


def files(version: str) -> Iterator[tuple[str, Raw]]:
    """The JSON files of a stored run, with their names."""
    with tarfile.open(STORED / version / "run.bundle.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and member.name.startswith("results/") and member.name.endswith(".json"):
                yield member.name.removeprefix("results/"), json.load(content)


def records(version: str) -> list[Raw]:
    return [raw for name, raw in files(version) if name != "run.json"]


RECORDS_OF_1 = records("0.1.0")
"""With all that came before 0.1.0 ended."""


def test_the_numbers_beside_the_types_are_those_of_the_chains() -> None:
    assert [kind.current for kind in KINDS] == [RECORD_SCHEMA, RUN_SCHEMA, SUMMARY_SCHEMA]


def test_records_of_1_get_what_was_not_recorded_then() -> None:
    old = {
        "schema": 1,
        "source": {"workload": "vae"},
        "ranks": [{"rank": 0, "slices": [[0.0, 0.5, 1, 1, 0.0]]}],
        "telemetry": {"gpu:0": {"power_w": {"mean": 300.0, "n": 20}}},
        "marks": ["fence partial", {"kind": "throttled", "what": "heat"}],
    }
    assert record_steps.from_1(old) == {
        "schema": 1,
        "session": 1,
        "attempt": 1,
        "host_pace": {},
        "sampled": None,
        "source": {"workload": "vae", "modules": []},
        "ranks": [
            {"rank": 0, "slices": [[0.0, 0.5, 1, 1, 0.0]], "backlog": None, "gradient_norms": {}, "skipped": None}
        ],
        "telemetry": {"gpu:0": {"power_w": {"mean": 300.0, "n": 20, "span_s": 0.0}}},
        "marks": [{"kind": "noted", "what": "fence partial"}, {"kind": "throttled", "what": "heat"}],
    }


def test_records_of_1_keep_what_they_hold() -> None:
    """The last days of 0.1.0 wrote schema 1 with all of it."""
    held = {"session": 2, "attempt": 3, "host_pace": {"0": {}}, "sampled": {"dropped": 0}, "ranks": [{"skipped": {}}]}
    made = record_steps.from_1(held)
    assert {name: made[name] for name in held} == held | {
        "ranks": [{"backlog": None, "gradient_norms": {}, "skipped": {}}]
    }


def test_summaries_of_1_get_marks_and_estimates() -> None:
    origin = {"kind": "estimated", "source": "a rule", "band": [0.8, 1.25]}
    row = {"n": 4, "failures": 1, "train": {"mean": 100.0, "std": 1.0}, "repeats": {"0": 1.0}, "log_perf": {"n": 2}}
    old = {"tests": {"s.a": {"marks": ["odd"]}, "s.b": row | {"origin": origin}}}
    assert summary_steps.from_1(old)["tests"] == {
        "s.a": {"marks": [{"kind": "noted", "what": "odd"}]},
        "s.b": {
            "n": 0,
            "failures": 0,
            "train": None,
            "log_perf": None,
            "repeats": {},
            "origin": {"kind": "estimated", "source": "a rule"},
            "estimate": {"value": 100.0, "low": 80.0, "high": 125.0},
        },
    }


@pytest.mark.parametrize("band", [[2.0, 3.0], [0.5, 0.9], [0.0, 2.0], [1e-9, 1.0], [1.0, 1e9], [1.0], "x", None])
def test_a_band_without_its_own_value_makes_no_estimate(band: Any) -> None:
    row = {"train": {"mean": 100.0}, "origin": {"kind": "estimated", "band": band}}
    assert summary_steps.from_1({"tests": {"s.a": row}}) == {"tests": {"s.a": row}}


@pytest.mark.parametrize("version", ["0.1.0-early", "0.1.0", "0.2.0"])
def test_stored_files_decode_once_they_are_upgraded(version: str) -> None:
    read = dict(files(version))
    manifest = msgspec.convert(MANIFEST_UPGRADES.upgrade(read.pop("run.json"), "run.json"), Manifest)
    made = [msgspec.convert(upgrade_record(raw, name), Record) for name, raw in read.items()]
    assert len(made) == len(manifest.plan.launches) == 8
    assert {one.mnb.schema for one in made} == {RECORD_SCHEMA}
    assert {one.mnb.version for one in made} == {manifest.version}


def test_files_of_today_stay_as_they_are() -> None:
    for name, raw in files("0.2.0"):
        assert (MANIFEST_UPGRADES.upgrade(raw, name) if name == "run.json" else upgrade_record(raw, name)) == raw
    for name in ("summary.json", "baseline.json"):
        raw = json.loads((STORED / "0.2.0" / name).read_bytes())
        assert SUMMARY_UPGRADES.upgrade(raw, name) == raw


@UNTIMED
@given(left_out=st.sets(st.sampled_from(["session", "attempt", "host_pace", "sampled"])), data=st.data())
def test_a_record_of_1_may_lack_any_of_what_came_later(left_out: set[str], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(RECORDS_OF_1))
    mnb = {name: value for name, value in whole["mnb"].items() if name not in left_out}
    of_ranks = data.draw(st.sets(st.sampled_from(["backlog", "gradient_norms", "skipped"])))
    mnb["ranks"] = [{name: rank[name] for name in rank if name not in of_ranks} for rank in mnb["ranks"]]
    made = msgspec.convert(upgrade_record(whole | {"mnb": mnb}, "a record"), Record)
    assert [rank.count for rank in made.mnb.ranks] == [rank["count"] for rank in whole["mnb"]["ranks"]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@UNTIMED
@given(raw=objects())
def test_steps_survive_any_object_and_upgrading_twice_is_upgrading_once(kind: Upgrades, raw: Raw) -> None:
    """What makes no sense to a step is the decoder's to refuse."""
    before = json.dumps(raw)
    made = kind.upgrade(raw | {"schema": 1}, "a file")
    assert made["schema"] == kind.current
    assert kind.upgrade(made, "a file") == made
    assert json.dumps(raw) == before, "steps change nothing in place"
    assert all(step(step(raw)) == step(raw) for step in kind.steps)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_what_is_no_schema_of_ours_is_refused(kind: Upgrades) -> None:
    newer = kind.current + 1
    with pytest.raises(InputError, match=rf"^here: {kind.kind} schema {newer}: .* reads up to .*; update mnb$"):
        kind.upgrade({"schema": newer}, "here")
    for odd in (None, 0, -1, True, "1", 1.0, [1]):
        with pytest.raises(InputError, match=rf"^here: {kind.kind} schema .*; was it changed\?$"):
            kind.upgrade({"schema": odd}, "here")
    with pytest.raises(InputError, match=r"schema None: .*; was it changed\?$"):
        kind.upgrade({}, "here")


@pytest.mark.parametrize("other", [[], "text", 1, None, {}, {"mnb": None}, {"job_id": "0.0", "timings": {}}])
def test_what_is_no_record_of_ours_has_no_schema(other: Any) -> None:
    assert upgrade_record(other, "a record of 2020") == other
