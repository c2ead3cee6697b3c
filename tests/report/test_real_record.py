"""What a report reads is what a run on GPUs writes: a record made on four H200, its environment left out."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.present.html.details_tables import telemetry_section
from milabench_ng.present.html.folder_details import details_of
from milabench_ng.records.folder import read_folder
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.reading import ReadRecord, read_record
from milabench_ng.records.record import Mnb, Record, encode_record
from milabench_ng.records.work import Work
from milabench_ng.verification.opening import opened

RECORD = Path(__file__).parents[1] / "data" / "standard.recom.J0.0.20261121-131334-263402.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(RECORD, tmp_path)
    return tmp_path


def empty(thing: object, names: tuple[str, ...]) -> set[str]:
    return {name for name in names if getattr(thing, name) in (None, (), {}, "", [], 0)}


def test_every_field_is_there() -> None:
    found = read_record(RECORD.read_bytes(), RECORD.name)
    assert isinstance(found, ReadRecord)
    mnb = found.record.mnb
    made_before = {"sampled", "host_pace", "derived", "exit_status"}
    left_out = {"environment", "dropped_environment"}
    assert empty(mnb, Mnb.__struct_fields__) == {"failure", "marks", *made_before, *left_out}  # it did not fail
    assert all("power_w" in at for key, at in mnb.telemetry.items() if key.startswith("gpu:"))


def test_records_of_one_slot_per_device_are_written_as_they_were_before_there_were_slots() -> None:
    """Key by key as 0.2.0 wrote them, in the same order; 0.3.0 adds derived units, the layers' type, each
    slice's latencies, notes and latencies of items, and the clock."""
    with opened(RECORD.parent / "stored" / "0.2.0" / "run.bundle.tar.gz") as there:
        contents = [path.read_bytes() for path in there.place.glob("quick.*.json")]
    assert len(contents) == 8
    for content in contents:
        again = json.loads(encode_record(msgspec.json.decode(content, type=Record)))
        assert again["mnb"].pop("derived") == []
        assert again["mnb"]["precision"].pop("layer_dtype") is None
        settings = [edge["settings"] for edge in again["mnb"]["conditions"].values() if edge["settings"]]
        assert settings
        assert all(one["host"].pop("clock_source") is None for one in settings)
        rows = [row for rank in again["mnb"]["ranks"] for row in rank["slices"]]
        assert rows
        assert all((row.pop(), row.pop(), row.pop()) == ({}, {}, []) for row in rows)
        ordered = json.loads(json.dumps(again), object_pairs_hook=list)
        assert ordered == json.loads(content, object_pairs_hook=list)


def test_every_field_of_the_row_is_filled(folder: Path) -> None:
    summary = load(folder)
    row = summary.tests["standard.recom"]
    without_failures = {"failed", "flags", "marks", "failures", "missing", "telemetry_dropped"}
    without_a_plan = {"planned", "pending"}
    assert empty(row, TestSummary.__struct_fields__) == {
        *without_failures,
        *without_a_plan,
        *(
            "ranks",
            "origin",
            "estimate",
            "departures",
            "latency",
            "item_latency",
            "sessions",
            "gpu_load",
            "bottleneck",
            "read_limits",
        ),
        *("company", "company_units", "pressing", "notes", "kernels"),
        *("verified", "answers", "power_fraction", "drift"),  # of stress
        *("power_w", "power_basis", "power_launches", "energy"),  # made before `sampled`
    }
    assert empty(row.work, Work.__struct_fields__) == {"derived", "pace_only"}
    assert summary.provenance.hardware == "1 x NVIDIA H200"


def test_the_steps_of_a_row_are_those_of_the_slices_before_and_in_the_window(folder: Path) -> None:
    row = load(folder).tests["standard.recom"]
    slices = json.loads(RECORD.read_bytes())["mnb"]["ranks"][0]["slices"]
    before = list(accumulate(each[3] for each in slices)).index(row.steps.before) + 1
    inside = slices[before + 1 : -3]  # one slice lies across the beginning, three end after the end
    assert sum(each[3] for each in inside) == row.steps.measured
    assert sum(each[2] for each in inside) / sum(each[1] for each in inside) == pytest.approx(row.train.mean)


def test_telemetry_and_fence_are_found(folder: Path) -> None:
    evidence = details_of(read_folder(folder))
    section = telemetry_section(evidence, "standard.recom")
    assert {"power", "energy", "clock of the GPU's cores", "CPUs of the node busy", "page cache of the tenant"} <= {
        str(cells[0]) for cells in section.rows
    }
    (fence,) = evidence.fences["0"]
    assert empty(fence, Isolation.__struct_fields__) == {"io", "notes"}
    assert (fence.tier, fence.disjoint) == ("full", True)
