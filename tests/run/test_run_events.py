"""What a run tells while it goes on, against what its records say afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.records.names import EVENTS
from milabench_ng.records.window import launch_perf
from milabench_ng.report.reporting import make_report
from milabench_ng.run.display.json_lines import JsonLines
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.events.run_events import (
    AnyRunEvent,
    BatchBegins,
    BatchProgress,
    LaunchEnds,
    LaunchState,
    Note,
    RunBegins,
    RunEnds,
    Slices,
    Stage,
    Stamped,
)
from milabench_ng.run.planning.duration import allowance_s, least_batch_s, time_left_s
from milabench_ng.verification.folder_files import result_files
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.one_server import OneServer
from tests.run.conftest import BROKEN, PlannedError

TESTS: dict[str, object] = {
    "steady": {"workload": f"{BROKEN}:steady"},
    "exits": {"workload": f"{BROKEN}:exits"},
}
ROOT = Path(__file__).parents[2]


def read(folder: Path) -> list[Stamped]:
    return [msgspec.json.decode(line, type=Stamped) for line in (folder / EVENTS).read_bytes().splitlines()]


@pytest.fixture(scope="module")
def finished(run_profile):  # type: ignore[no-untyped-def]
    """A run with launches that succeed and launches that fail."""
    return run_profile(TESTS)


def of(lines: list[Stamped], kind: type) -> list:  # type: ignore[type-arg]
    return [line.event for line in lines if isinstance(line.event, kind)]


def test_the_file_has_all_events_of_the_run_in_order(finished) -> None:  # type: ignore[no-untyped-def]
    lines = read(finished.folder)
    begins = next(place for place, one in enumerate(finished.told) if isinstance(one.event, RunBegins))
    assert lines == finished.told[begins:]
    first, last = lines[0].event, lines[-1].event
    assert isinstance(first, RunBegins)
    assert (first.schema, first.session, first.run_id) == (1, 1, finished.manifest.run_id)
    assert (first.batches, first.launches) == (2, len(finished.records))
    assert last == RunEnds(missing=0, failed=finished.outcome.failed, interrupted=False)


def test_launches_end_as_their_records_say(finished) -> None:  # type: ignore[no-untyped-def]
    ends = of(read(finished.folder), LaunchEnds)
    records = {record.job_id + record.mnb.label: record for record in finished.records}
    assert len(ends) == len(records)
    for end in ends:
        record = records[end.job_id + end.label]
        assert (finished.folder / end.file).is_file()
        assert (end.batch, end.attempt, end.unit) == (record.mnb.batch, record.mnb.attempt, record.mnb.unit)
        if record.success:
            assert end.perf == launch_perf([rank.slices for rank in record.mnb.ranks], record.mnb.window)
            assert (end.cause, end.detail) == (None, "")
        else:
            assert end.perf is None
            assert (end.cause, end.detail) == (record.mnb.failure.cause, record.mnb.failure.detail)


def test_slices_sum_up_to_those_of_the_records(finished) -> None:  # type: ignore[no-untyped-def]
    told = of(read(finished.folder), Slices)
    for record in finished.records:
        mine = [one for one in told if (one.batch, one.job_id) == (record.mnb.batch, record.job_id)]
        rows = [row for rank in record.mnb.ranks for row in rank.slices]
        assert sum(one.count for one in mine) == sum(row.count for row in rows)
        assert sum(one.steps for one in mine) == sum(row.steps for row in rows)
        assert sum(one.length_s for one in mine) == pytest.approx(sum(row.length_s for row in rows))
        if rows:
            assert mine[-1].slices == tuple(len(rank.slices) for rank in record.mnb.ranks)


def test_states_follow_each_other(finished) -> None:  # type: ignore[no-untyped-def]
    states = of(read(finished.folder), LaunchState)
    for record in finished.records:
        mine = [one for one in states if (one.batch, one.job_id) == (record.mnb.batch, record.job_id)]
        reached = [one.state for one in mine]
        if record.success:
            assert reached == ["starting", "ready", "working", "full", "ended"]
        else:
            assert reached == ["starting", "ready", "working", "ended"]
        assert mine[-1].rank_pids == tuple(rank.pid for rank in record.mnb.ranks)


def test_batches_are_told_with_progress_and_the_time_left(finished) -> None:  # type: ignore[no-untyped-def]
    lines = read(finished.folder)
    begins = of(lines, BatchBegins)
    assert [one.number for one in begins] == [batch.number for batch in finished.manifest.plan.batches]
    plan, rule = finished.manifest.plan, finished.manifest.window_rule
    least_s = [least_batch_s(batch, rule) for batch in plan.batches]
    assert begins[0].left_s == time_left_s(least_s, [], finished.manifest.start)
    assert begins[1].left_s > least_s[1]
    for batch, begun in zip(finished.manifest.plan.batches, begins, strict=True):
        assert [one.job_id for one in begun.launches] == [launch.job_id for launch in batch.launches]
    working = [one for one in of(lines, BatchProgress) if one.working_s is not None]
    assert all(len(one.items_per_s) == one.launches for one in working)


def test_what_is_left_of_a_run_follows_its_own_pace() -> None:
    assert time_left_s([10.0, 20.0], [], "cold") == 30.0 + 2 * allowance_s("cold")
    assert time_left_s([10.0, 20.0], [1.0, 5.0], "cold") == 36.0
    assert time_left_s([], [1.0], "warm") == 0.0


def test_events_disturb_nobody_who_reads_the_folder(finished) -> None:  # type: ignore[no-untyped-def]
    names, foreign = result_files(finished.folder)
    assert EVENTS not in names
    assert foreign == ()
    there = (make_report(finished.folder), verify(finished.folder, Rules()).rulings)
    kept = (finished.folder / EVENTS).read_bytes()
    (finished.folder / EVENTS).unlink()
    try:
        assert (make_report(finished.folder), verify(finished.folder, Rules()).rulings) == there
    finally:
        (finished.folder / EVENTS).write_bytes(kept)


def test_a_resumed_session_appends(finished, resume_run) -> None:  # type: ignore[no-untyped-def]
    before = (finished.folder / EVENTS).read_bytes()
    (finished.folder / EVENTS).write_bytes(before + b'{"number":99,"utc":"cut sh')
    again = resume_run(finished.folder, retry=1)
    after = (finished.folder / EVENTS).read_bytes()
    assert after.startswith(before + b'{"number":')
    later = read(finished.folder)[len(before.splitlines()) :]
    done = [type(one.event) for one in later if not isinstance(one.event, Note | Stage)]
    assert (done[0], done[-1], done.count(RunBegins)) == (RunBegins, RunEnds, 1)
    assert later[0].event.session == 2  # type: ignore[union-attr]
    assert again.outcome.failed == 2 * finished.outcome.failed, "what failed was tried again"


def hang(_: AnyRunEvent) -> None:
    """Never comes back; its thread does not keep the process."""
    threading.Event().wait()


def fail(event: AnyRunEvent) -> None:
    """Raises when the first batch begins."""
    if isinstance(event, BatchBegins):
        raise PlannedError


@pytest.mark.parametrize("act", [hang, fail])
def test_a_run_goes_on_and_ends_whatever_a_sink_does(run_profile, act) -> None:  # type: ignore[no-untyped-def]
    trial = run_profile({"steady": {"workload": f"{BROKEN}:steady"}}, act, tenants=1)
    assert [record.success for record in trial.records] == [True]
    lines = read(trial.folder)
    assert [line.number for line in lines] == list(range(lines[0].number, lines[0].number + len(lines)))
    assert len(of(lines, RunEnds)) == len(of(lines, LaunchEnds)) == 1
    assert [note.text.partition(" ")[0] for note in of(lines, Note)].count("witness") == 1


def test_the_command_leaves_the_file_and_a_record_in_a_file_has_none(
    tmp_path: Path, one_server: OneServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("out", "one.json"):
        with one_server.lent():
            code = call(["run", "toy_reg", "-o", target, "--window", "0.5", "--tenants", "1", "--isolation", "none"])
        said = capfd.readouterr().err
        assert code == 0, said
        assert "[1/1] run.toy_reg, run 0, 1 device: starting" in said.splitlines()
    (end,) = of(read(tmp_path / "out"), LaunchEnds)
    assert (tmp_path / "out" / end.file).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "one.log", "out"]


def test_a_folder_that_cannot_be_written_costs_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    bus = Bus(JsonLines(tmp_path / "results" / EVENTS))
    bus.publish(RunBegins(version="1", run_id="r", session=1, suite="s", batches=1, launches=1, least_s=1.0))
    bus.close()
    assert (tmp_path / "results").read_bytes() == b""
