"""Slots: tests side by side in one batch, two tenants of one device, and company, in real runs of hand-made plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Batch, Device, Launch, Plan, Role
from milabench_ng.records.isolation import Share
from milabench_ng.records.ledger import Attempt, Company, Recorded
from milabench_ng.records.names import is_result_file
from milabench_ng.records.record import ConcurrentLaunch, Record
from milabench_ng.run.planning import planned_run
from milabench_ng.run.planning.request import ResolvedRequest
from milabench_ng.run.planning.rerun import profile_of
from milabench_ng.verification.checks import check_fence, check_ledger
from milabench_ng.verification.opening import opened
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import gather
from tests.run.conftest import BROKEN, Finished, Runner, needs_two_cpus

QUICK = {"workload": f"{BROKEN}:steady"}
READER = {"workload": "vae", "arguments": {"batch_size": 16}}
IN_PLACE = Callable[[Mapping[str, Device] | None, Callable[[Plan], tuple[Batch, ...]]], None]


@pytest.fixture
def plan_by_hand(monkeypatch: pytest.MonkeyPatch) -> IN_PLACE:
    """Have runs use these slots (by id, None: one per device) and the batches made of the profile's plan."""

    def use(slots: Mapping[str, Device] | None, batches: Callable[[Plan], tuple[Batch, ...]]) -> None:
        made = planned_run.plan_for

        def by_hand(resolved: ResolvedRequest, devices: tuple[Device, ...], memory: DeviceMemory | None = None) -> Plan:
            plan = made(resolved, devices, memory)
            return msgspec.structs.replace(plan, batches=batches(plan))

        def slots_by_hand(_devices: Sequence[Device], _per_device: int) -> dict[str, Device]:
            return dict(slots or {})

        monkeypatch.setattr(planned_run, "plan_for", by_hand)
        if slots is not None:
            monkeypatch.setattr(planned_run, "slots_of", slots_by_hand)

    return use


def on(plan: Plan, test: str, slot: str, role: Role = "measured") -> Launch:
    """The launch of a test of the profile, put on a slot."""
    launch = next(one for one in plan.launches if one.test == f"trial.{test}")
    device = int(slot.rstrip("ab"))
    return msgspec.structs.replace(launch, devices=(device,), slots=(slot,), role=role)


def batches(*made: Sequence[Launch]) -> tuple[Batch, ...]:
    """Numbered."""
    return tuple(Batch(number=number, launches=tuple(launches)) for number, launches in enumerate(made))


def shares(records: Sequence[Record]) -> dict[str, Share]:
    """By slot."""
    return {slot: one.requested for record in records for slot, one in record.mnb.isolation.items()}


def reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `mnb report` prints."""
    capsys.readouterr()
    assert call(["report", str(folder)]) == 0
    return capsys.readouterr().out


@needs_two_cpus
def test_two_tenants_of_one_device(
    run_profile: Runner,
    plan_by_hand: IN_PLACE,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One is measured on slot 0a, the other is its company on 0b."""
    device = Device(index=0, kind="cpu")
    plan_by_hand(
        {"0a": device, "0b": device},
        lambda plan: batches([on(plan, "one", "0a"), on(plan, "other", "0b", "company")]),
    )
    done = run_profile({"one": READER, "other": QUICK}, tenants=1)
    assert (done.outcome.planned, done.outcome.failed) == (1, 0)
    one, other = done.of("one")[0], done.of("other")[0]
    assert [(at.mnb.label, at.job_id, at.device) for at in (one, other)] == [
        ("trial.one", "0.0a", 0),
        ("trial.other", "0.0b", 0),
    ]
    assert (one.mnb.attempt, other.mnb.attempt) == (1, 0)
    assert (one.mnb.launch.measured, other.mnb.launch.measured) == (True, False)
    assert one.mnb.neighbours.who == (ConcurrentLaunch(job_id="0.0b", label="trial.other", role="company"),)
    assert other.mnb.neighbours.who == (ConcurrentLaunch(job_id="0.0a", label="trial.one"),)
    assert_fenced_apart(done)
    assert (one.mnb.data is not None, other.mnb.data) == (True, None)
    kinds = [(type(event), event.job_id) for event in done.events if isinstance(event, Attempt | Company | Recorded)]
    assert kinds[:2] == [(Attempt, "0.0a"), (Company, "0.0b")]
    assert sorted(kinds[2:], key=str) == [(Recorded, "0.0a"), (Recorded, "0.0b")]
    assert sorted(path.name for path in done.folder.glob("logs/*")) == [
        "trial.one.J0.0a.log",
        "trial.other.b0.J0.0b.company.log",
    ]
    assert all(is_result_file(path.name) for path in done.folder.glob("*.json"))
    assert_only_measured(load(done.folder), {"trial.one": ["0.0a"]})
    assert_books_are_sound(done.folder)
    said = reported(done.folder, capsys)
    assert "\none " in said
    assert "\nother  " not in said
    record = next(done.folder.glob("trial.one.J0.0a.*.json"))
    with pytest.raises(InputError, match="next to other tests"):
        profile_of(record)


def assert_fenced_apart(done: Finished) -> None:
    """Everything that belongs to a slot is named after it, and the shares have nothing in common."""
    held = shares(done.records)
    assert held == {slot: share for slot, share in done.manifest.shares.items() if slot in held}
    assert not set(held["0a"].cpus) & set(held["0b"].cpus)
    for record in done.records:
        (slot,) = record.mnb.launch.slot_ids
        assert list(record.mnb.isolation) == list(record.mnb.host_pace) == [slot]
        assert f"tenant:{slot}" in record.mnb.telemetry
        assert record.mnb.isolation[slot].group.endswith(f"/b0-d{slot}")
        assert record.mnb.isolation[slot].disjoint in (True, None)
        if done.outcome.tier == "full":
            assert record.mnb.isolation[slot].disjoint is True
            assert record.mnb.isolation[slot].proc.cpus_allowed == held[slot].cpus


def assert_books_are_sound(folder: Path) -> None:
    """Company needs a record in the ledger, and is neither planned nor tried for its own sake."""
    with opened(folder) as there:
        evidence = gather(there, load_rules(None), None, None, None)
    rules = (check_ledger.complete, check_ledger.ledger, check_fence.together)
    assert [rule(evidence).reasons for rule in rules] == [(), (), ()]
    assert check_ledger.attempts_fact(evidence).startswith("1 attempt in the ledger: 0 failed, 0 interrupted")


def assert_only_measured(summary: Summary, jobs_of: Mapping[str, list[str]]) -> None:
    """The summary has these rows with these launches, and misses none."""
    assert {label: list(row.launches) for label, row in summary.tests.items()} == jobs_of
    assert all((row.missing, row.failures, row.devices) == (0, 0, 1) for row in summary.tests.values())
    assert summary.problems == ()


@needs_two_cpus
def test_a_partition_that_is_shared_is_planned_fenced_and_marked(run_profile: Runner) -> None:
    done = run_profile({"one": QUICK}, tenants=1, slots_per_device=2)
    assert (done.outcome.planned, done.outcome.failed) == (2, 0)
    assert (done.manifest.plan.slots, done.manifest.plan.slots_per_device) == (("0a", "0b"), 2)
    assert {record.job_id for record in done.records} == {"0.0a", "0.0b"}
    assert {share.device_part for share in done.manifest.shares.values()} == {0.5}
    assert_fenced_apart(done)
    marks = load(done.folder).tests["trial.one"].marks
    assert "2 tenants shared each CPU partition" in [mark.text for mark in marks]


@needs_two_cpus
def test_two_tests_change_places(
    run_profile: Runner, plan_by_hand: IN_PLACE, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are measured, on slots 0 and 1: every launch has the data, the limits and the I/O share of its own test."""
    plan_by_hand(
        None,
        lambda plan: batches(
            [on(plan, "one", "0"), on(plan, "other", "1")],
            [on(plan, "other", "0"), on(plan, "one", "1")],
        ),
    )
    limited = {**READER, "io": {"read": "900 MiB/s"}}
    done = run_profile({"one": limited, "other": QUICK}, tenants=2, isolation="none")
    assert (done.outcome.planned, done.outcome.failed) == (4, 0)
    assert {(at.mnb.label, at.job_id, at.mnb.batch) for at in done.records} == {
        ("trial.one", "0.0", 0),
        ("trial.other", "0.1", 0),
        ("trial.other", "0.0", 1),
        ("trial.one", "0.1", 1),
    }
    for record in done.records:
        reads = record.mnb.label == "trial.one"
        (isolation,) = record.mnb.isolation.values()
        assert (record.mnb.data is not None) == (isolation.io is not None) == reads
        assert record.mnb.launch.slots is msgspec.UNSET
        (neighbour,) = record.mnb.neighbours.who
        assert neighbour.label == ("trial.other" if reads else "trial.one")
    both = ["0.0", "0.1"]
    assert_only_measured(load(done.folder), {"trial.one": both, "trial.other": both})
    said = reported(done.folder, capsys)
    assert "\none " in said
    assert "\nother  " in said


@needs_two_cpus
def test_company_that_is_lost_fails_nothing(run_profile: Runner, resume_run: Runner, plan_by_hand: IN_PLACE) -> None:
    """Its loss stands in its neighbour's record; a resumed run has nothing to do."""
    plan_by_hand(None, lambda plan: batches([on(plan, "one", "0"), on(plan, "dies", "1", "company")]))
    done = run_profile({"one": QUICK, "dies": {"workload": f"{BROKEN}:raises", "arguments": {"after": 5}}}, tenants=2)
    assert (done.outcome.planned, done.outcome.failed) == (1, 0)
    one, lost = done.of("one")[0], done.of("dies")[0]
    assert (one.success, lost.success) == (True, False)
    (neighbour,) = one.mnb.neighbours.lost
    assert (neighbour.job_id, neighbour.label, neighbour.cause) == ("0.1", "trial.dies", "exception")
    assert "neighbours lost" in [mark.kind for mark in one.mnb.marks]
    summary = load(done.folder)
    assert list(summary.tests) == ["trial.one"]
    assert (summary.launches, summary.failures) == (1, 0)
    assert resume_run(done.folder).outcome.failed == 0
    assert len(list(done.folder.glob("trial.*.json"))) == 2
    assert json.loads((done.folder / "run.json").read_text())["plan"]["batches"][0]["launches"][1]["role"] == "company"
