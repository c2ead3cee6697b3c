"""What could mislead a reader of a report is said first, and next to the number."""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU, PROGRESSION
from printing import text_of
from tampering import changing

from milabench_ng.analysis.baselines.baseline import shortfalls
from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.summary.ending import left_pending
from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import FailedLaunch, Provenance, Summary, TestSummary
from milabench_ng.model.plan import Batch, Plan
from milabench_ng.model.units import four_digits
from milabench_ng.present.render.as_json import as_object
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.writers import write_report
from milabench_ng.records import ledger
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.checks.check_plan import tests_fact as fact_on_tests
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

QUICK = dict.fromkeys(("toy_reg", "toy_lstm", "vae", "loader", "convnet"), PER_GPU) | {"scaling": PROGRESSION}


def table(report: Report) -> str:
    return text_of(write_report, report, "table")


def scaled(whole: Plan, scale: float) -> Plan:
    """The plan with data of this scale, as ``--data-scale`` makes it."""
    batches = [
        msgspec.structs.replace(
            batch,
            launches=tuple(msgspec.structs.replace(launch, data_scale=scale) for launch in batch.launches),
        )
        for batch in whole.batches
    ]
    return msgspec.structs.replace(whole, batches=tuple(batches))


def rewrite(folder: Path, test: str, **changes: Any) -> None:
    """Change the ``mnb`` part of a test's records, of which no ledger tells."""
    (folder / "ledger.jsonl").unlink(missing_ok=True)
    for path in folder.glob(f"quick.{test}.J*.json"):
        with changing(path) as made:
            made["mnb"] |= changes
    make_records.write_ledger(folder, tampering.plan_of(folder))


@pytest.fixture
def whole() -> Plan:
    return make_records.plan("quick", QUICK, 2, 1)


def test_smaller_data_than_the_profile_says_are_a_mark(tmp_path: Path, whole: Plan) -> None:
    """The manifest keeps the profile's text and the plan that ran; a test that reads nothing is not marked."""
    make_records.write_run(tmp_path / "small", scaled(whole, 0.1))
    with changing(tmp_path / "small/run.json") as manifest:
        manifest["profile"]["text"] = make_records.profile_text(whole)
    data = make_records.record(whole.launches[0], make_records.steady)["mnb"]["data"]
    for test in QUICK:
        rewrite(tmp_path / "small", test, data=None if test.startswith("toy") else data | {"scale": 0.1})
    report = make_report(tmp_path / "small")
    first = first_screen(report).facts[0]
    assert (first.name, first.tone) == ("NOT COMPARABLE", "bad")
    assert first.text == "dataset scale 0.1 instead of 1 (at worst; 5 of 7 tests)"
    (score,) = [answer for answer in first_screen(report).answers if answer.name == "Score"]
    assert score.tone == "bad"
    assert any("dataset scale 0.1" in why for why in shortfalls(report.summary, {"quick": report.score}))


def test_the_profiles_own_scale_is_no_mark(tmp_path: Path, whole: Plan) -> None:
    made = scaled(whole, 0.02)
    make_records.write_run(tmp_path, made)
    data = make_records.record(whole.launches[0], make_records.steady)["mnb"]["data"]
    for test in QUICK:
        rewrite(tmp_path, test, data=data | {"scale": 0.02})
    assert make_report(tmp_path).marks == ()


def test_devices_that_are_left_out_are_a_mark(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, make_records.plan("quick", QUICK, 1, 1))
    with changing(tmp_path / "run.json") as manifest:
        manifest["inventory"] = make_records.manifest(whole)["inventory"]
    assert [mark.text for mark in make_report(tmp_path).marks] == ["only 1 of the node's 2 devices were used"]


def test_company_that_the_profile_does_not_say_is_a_mark(tmp_path: Path, whole: Plan) -> None:
    """As ``--neighbors none`` makes it: one slot after the other; a progression has no company at any time."""
    alone = tuple(launch for batch in whole.batches for launch in batch.launches)
    made = tuple(Batch(number=number, launches=(launch,)) for number, launch in enumerate(alone))
    make_records.write_run(tmp_path, msgspec.structs.replace(whole, batches=made))
    with changing(tmp_path / "run.json") as manifest:
        manifest["profile"]["text"] = make_records.profile_text(whole)
    (mark,) = make_report(tmp_path).marks
    assert mark.text.startswith("ran next to nothing, which the profile does not specify")
    assert "5 of 7 tests" in first_screen(make_report(tmp_path)).facts[0].text


@pytest.mark.parametrize(("repeat", "marked"), [(2, ["ran in file order, all repeats of a test in a row"]), (1, [])])
def test_all_repeats_in_a_row_are_a_mark(tmp_path: Path, repeat: int, marked: list[str]) -> None:
    made = make_records.plan("quick", QUICK, 2, repeat)
    make_records.write_run(tmp_path, msgspec.structs.replace(made, order="file"))
    assert [mark.text for mark in make_report(tmp_path).marks] == marked


def test_a_profile_that_cannot_be_read_hides_no_report(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    with changing(tmp_path / "run.json") as manifest:
        manifest["profile"]["text"] = "{"
    assert make_report(tmp_path).marks == ()


def test_a_failure_is_the_first_line(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("quick.vae.J0.*"):
        path.write_text('{"x":1}')
    report = make_report(tmp_path)
    first = first_screen(report).facts[0]
    least = "failure rate at least 3.05% (95% confidence), limit 1.00%"
    assert (first.name, first.text) == ("FAIL", f"2 of 12 launches failed (2 unreadable): {least}")
    (valid,) = [answer for answer in first_screen(report).answers if answer.name == "Valid"]
    assert (valid.parts[:2], valid.tone) == (("10 of 12 launches", "2 failed"), "bad")


def test_a_run_that_ended_early_says_how_to_go_on(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("quick.convnet.*"):
        path.unlink()
    make_records.write_ledger(tmp_path, whole)
    screen = first_screen(make_report(tmp_path))
    assert [(fact.name, fact.text) for fact in screen.facts[:2]] == [
        ("INTERRUPTED", "2 of 12 launches have not run yet"),
        ("NO SCORE", "1 of 7 weighted tests missing: convnet"),
    ]
    (valid,) = [answer.parts for answer in screen.answers if answer.name == "Valid"]
    assert valid[:2] == ("10 of 12 launches", "0 failed")
    (following,) = [fact.text for fact in screen.step]
    assert following == f"for 2 launches not run yet: mnb resume {tmp_path}"


def test_missing_tests_are_counted_among_all_weighted_ones(tmp_path: Path) -> None:
    """Whether the others were selected or not; a test without weight is not among them."""
    some = make_records.plan("quick", QUICK, 2, 1, names=["vae", "convnet"])
    make_records.write_run(tmp_path / "run", some)
    for path in (tmp_path / "run").glob("quick.vae.*"):
        path.unlink()
    weights = tmp_path / "weights.json"
    weights.write_text(json.dumps({f"quick.{name}": {"weight": 1} for name in ("convnet", "loader")}))
    told = [
        next(fact.text for fact in first_screen(report).facts if fact.name == "NO SCORE")
        for report in (make_report(tmp_path / "run"), make_report(tmp_path / "run", weights=weights))
    ]
    assert told == [
        "1 of 7 weighted tests missing: vae; 5 not selected",
        "1 planned test without weight missing: vae; 1 not selected",
    ]


def test_nothing_is_said_of_launches_before_one_has_ended(tmp_path: Path, whole: Plan) -> None:
    """A run that was killed in its first launch: whether tenants were isolated is not known, rather than bad."""
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("quick.*"):
        path.unlink()
    make_records.write_ledger(tmp_path, whole)
    report = make_report(tmp_path)
    screen = first_screen(report)
    assert [fact.name for fact in screen.alarms[:2]] == ["INTERRUPTED", "NO SCORE"]
    (valid,) = [answer.parts for answer in screen.answers if answer.name == "Valid"]
    assert valid == ("0 of 12 launches", "no launch has finished")
    assert "ISOLATED" not in table(report)


def test_a_launch_that_ctrl_c_ended_is_no_failure(tmp_path: Path, whole: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a record that says nothing about it, and the run is resumed from there."""
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("quick.convnet.*"):
        tampering.rewrite(path, tampering.failed("interrupted"))
    make_records.write_ledger(tmp_path, whole)
    report = make_report(tmp_path)
    screen = first_screen(report)
    assert [fact.name for fact in screen.alarms[:2]] == ["INTERRUPTED", "NO SCORE"]
    assert not any(fact.name in ("FAIL", "failed") for fact in screen.alarms)
    (score, valid) = [answer.parts for answer in screen.answers if answer.name in ("Score", "Valid")]
    assert (score, valid[:2]) == (("not yet: the run was interrupted",), ("10 of 12 launches", "0 failed"))
    assert [fact.text for fact in screen.step] == [f"for 2 launches not run yet: mnb resume {tmp_path}"]
    monkeypatch.setattr("milabench_ng.report.reporting.RESERVED_BYTES", 1 << 60)  # more than the disk has
    (full,) = first_screen(make_report(tmp_path)).step
    assert full.text == f"free some space; then, for 2 launches not run yet: mnb resume {tmp_path}"


def stopped(folder: Path, whole: Plan) -> None:
    """A run of which one test was stopped by Ctrl-C."""
    make_records.write_run(folder, whole)
    for path in folder.glob("quick.convnet.*"):
        tampering.rewrite(path, tampering.failed("interrupted"))
    make_records.write_ledger(folder, whole)


def test_what_was_stopped_is_pending_in_every_count(tmp_path: Path, whole: Plan) -> None:
    stopped(tmp_path, whole)
    report = make_report(tmp_path)
    (line,) = [line for line in report.lines if line.scored.test == "quick.convnet"]
    assert (line.scored.n, line.scored.fail, line.scored.perf_adj, line.causes) == (0, 0, None, {})
    made = as_object(report)
    assert made["launches"] == {"n": 10, "planned": 12, "missing": 0, "pending": 2}
    assert (made["failure_rate"], made["failures"]) == (
        0.0,
        {"n": 10, "fail": 0, "low": 0.0, "high": pytest.approx(0.2589, abs=1e-4), "passed": False},
    )
    assert made["failed"] == []
    assert "failed launch" not in table(report)
    assert (report.failure_rate.excess, report.exit_code) == ("2 of 12 launches have not run yet", 1)


def test_what_was_stopped_fails_where_others_decide(tmp_path: Path, whole: Plan) -> None:
    """A bid, a baseline and a delivered node are judged by the summary, where it counts as before."""
    stopped(tmp_path / "run", whole)
    make_records.write_run(tmp_path / "base", whole)
    found = load(tmp_path / "run")
    assert (found.failures, found.launches) == (2, 12)
    assert "2 of 12 launches failed" in shortfalls(found, {})
    assert failure_rate(found).excess
    (other,) = make_report(tmp_path / "run", compare_to=[str(tmp_path / "base")]).comparisons
    assert other.effect.verdict == "not judged"


def test_a_failure_whose_record_is_gone_is_not_pending(tmp_path: Path, whole: Plan) -> None:
    stopped(tmp_path, whole)
    path = next(tmp_path.glob("quick.vae.*"))
    path.unlink()
    report = make_report(tmp_path)
    assert (report.not_tried, report.failure_rate.fail) == (2, 1)
    assert [(test, one.cause, one.file) for test, one in report.failed] == [("quick.vae", "missing", path.name)]


def test_a_launch_is_either_pending_or_failed() -> None:
    """However often it was stopped, also by kill -9 after it was resumed; a failure of its own counts."""
    causes = {"0.0": ("interrupted", "interrupted"), "0.1": ("oom", "interrupted"), "1.0": ("interrupted",)}
    failed = tuple(FailedLaunch(job_id=job, cause=cause) for job, each in causes.items() for cause in each)
    row = TestSummary(n=6, failures=5, failed=failed, launches={"1.0": 1.0}, planned=3)
    provenance = Provenance(kind="measured", source="", hardware="")
    whole_run = Summary(
        suite="quick", units="true", devices=2, provenance=provenance, has_plan=True, tests={"quick.vae": row}
    )
    assert left_pending(whole_run) is whole_run
    told = left_pending(msgspec.structs.replace(whole_run, interrupted=True)).tests["quick.vae"]
    assert (told.n, told.failures, told.pending) == (4, 3, 1)
    assert {one.job_id for one in told.failed} == {"0.1", "1.0"}


def paused(folder: Path, whole: Plan, sessions: int, *ended: ledger.AnyLedgerEvent) -> Summary:
    """The summary of a run whose first session of ``sessions`` made all but one test, and whose ledger ends so."""
    make_records.write_run(folder, whole)
    for path in folder.glob("quick.convnet.*"):
        path.unlink()
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"request": {"sessions": sessions}}))
    make_records.write_ledger(folder, whole)
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:-1]
    chain = ledger.check_chain(b"".join(lines))
    more = ledger.extend(chain, "2026-01-06T17:00:00.123456Z", ended)[1] if ended else b""
    (folder / "ledger.jsonl").write_bytes(b"".join(lines) + more)
    return load(folder)


END = ledger.Finished(missing=2, failed=0)


@pytest.mark.parametrize(
    ("sessions", "ended", "between"),
    [
        (2, [END], True),
        (1, [END], False),  # nothing more was to come: the run could not do it
        (2, [ledger.Interrupted(by="SIGINT"), END], False),
        (2, [], False),  # killed, or the machine was lost
    ],
)
def test_a_break_between_sessions_is_no_interruption(
    tmp_path: Path, whole: Plan, sessions: int, ended: list[ledger.AnyLedgerEvent], between: bool
) -> None:
    found = paused(tmp_path, whole, sessions, *ended)
    assert (found.interrupted, found.between_sessions) == (True, between)
    assert pack(tmp_path, tmp_path.with_suffix(".tar.gz")).left == 2
    (complete,) = (ruling for ruling in verify(tmp_path, Rules()).rulings if ruling.id == "R12")
    left = "2 launches of later sessions have not run yet" if between else "it was interrupted with 2 launches left"
    assert complete.reasons[0].startswith(left)
    screen = first_screen(make_report(tmp_path))
    assert screen.alarms[0].name == ("BETWEEN SESSIONS" if between else "INTERRUPTED")
    assert screen.alarms[0].text == "2 of 12 launches have not run yet"
    (score,) = [answer.parts for answer in screen.answers if answer.name == "Score"]
    assert score == ("not yet: there are more sessions" if between else "not yet: the run was interrupted",)
    (step,) = [fact.text for fact in screen.step]
    why = "of later sessions, if it does not continue by itself" if between else "not run yet"
    assert step == f"for 2 launches {why}: mnb resume {tmp_path}"


def test_records_that_are_gone_are_no_interruption(tmp_path: Path, whole: Plan) -> None:
    """The ledger says that all was tried: what lacks was taken away."""
    make_records.write_run(tmp_path, whole)
    make_records.write_ledger(tmp_path, whole)
    first, *others = sorted(tmp_path.glob("quick.convnet.*"))
    for path in (first, *others):
        path.unlink()
    screen = first_screen(make_report(tmp_path))
    gone = f"2 of 12 launches without a record (recorded, but gone: {first.name} and 1 more)"
    rate = "failure rate at least 3.05% (95% confidence), limit 1.00%"
    assert (screen.facts[0].name, screen.facts[0].text) == ("FAIL", f"{gone}: {rate}")
    assert screen.step[0].text.startswith("put back what was changed or is gone")
    assert "2 failed, 0 interrupted; 2 without a record" in verify(tmp_path, Rules()).facts["attempts"]
    first.with_name(f".{first.name}.tmp").touch()
    assert "gone: quick.convnet.J0.1" in first_screen(make_report(tmp_path)).facts[0].text, (
        "a crash came before the name"
    )


def test_no_resume_is_named_that_would_be_refused(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    next(tmp_path.glob("quick.convnet.*")).unlink()
    ledger_file = tmp_path / "ledger.jsonl"
    for change in (lambda: ledger_file.write_bytes(ledger_file.read_bytes()[1:]), ledger_file.unlink):
        change()
        assert "mnb resume" not in first_screen(make_report(tmp_path)).step[0].text


def test_a_run_without_a_success_says_what_failed_first(tmp_path: Path) -> None:
    plan = make_records.plan("quick", {"vae": PER_GPU}, 2, 1)
    make_records.write_run(tmp_path, plan)
    for path in tmp_path.glob("quick.*.J*.json"):
        tampering.rewrite(path, tampering.failed("oom"))
    make_records.write_ledger(tmp_path, plan)
    screen = first_screen(make_report(tmp_path))
    (following,) = [fact.text for fact in screen.step]
    assert following.startswith("find out why quick.")
    assert " failed: oom" in following
    for path in tmp_path.glob("quick.*.J*.json"):
        tampering.rewrite(path, tampering.failed("exception"))
    make_records.write_ledger(tmp_path, plan)
    (following,) = [fact.text for fact in first_screen(make_report(tmp_path)).step]
    assert re.search(r'failed: exception.* \(traceback: "error" in quick\.[\w.-]+\.json\)$', following)


def test_many_failures_are_looked_into_before_anything_is_compared(tmp_path: Path, whole: Plan) -> None:
    """Also in the verdict of rules that set no limit."""
    make_records.write_run(tmp_path, whole, slices=24)
    for path in tmp_path.glob("quick.convnet.*"):
        tampering.rewrite(path, tampering.failed("oom"))
    make_records.write_ledger(tmp_path, whole)
    (following,) = [fact.text for fact in first_screen(make_report(tmp_path)).step]
    assert following.startswith("find out why quick.convnet J0.0 failed: oom")
    asked = (Rules(), Rules(failure_rate=0.5))
    told = ["2 of 12 launches failed (limit 1%)" in verify(tmp_path, rules).verdict for rules in asked]
    assert told == [True, False]


def test_both_scores_are_over_the_tests_that_the_ratio_is_over(tmp_path: Path, whole: Plan) -> None:
    """One test differs: the printed quotient is the printed ratio, and neither is that of the whole score."""
    make_records.write_run(tmp_path / "base", whole, lambda *_: 200.0)
    make_records.write_run(tmp_path / "run", whole, lambda launch, _: 100.0 if launch.workload != "vae" else 400.0)
    other_batches(tmp_path / "base", "vae")
    report = make_report(tmp_path / "run", compare_to=[str(tmp_path / "base")])
    (other,) = report.comparisons
    assert other.ratio == pytest.approx(0.5) == pytest.approx(other.charged_ratio)
    text = " ".join(text_of(write_report, report, "table", full=True).split())
    ours, theirs = four_digits(other.run_score or 0.0), four_digits(other.score or 0.0)
    of = f"6 of 7 tests, {other.weight_pct:.0f}% of the weight"
    assert (
        f"{ours} vs. {theirs} per device, ratio 0.500; both with penalties for variance and failures, over "
        f"{of}: toy_reg" in text
    )
    assert f" 0.500 per GPU and per node only comparable work: {of}" in text


def other_batches(folder: Path, test: str) -> None:
    """Make it another computation, of which no ledger tells."""
    (folder / "ledger.jsonl").unlink()
    for path in folder.glob(f"quick.{test}.J*.json"):
        with changing(path) as made:
            made["mnb"]["launch"]["arguments"]["batch_size"] = 128
    make_records.write_ledger(folder, tampering.plan_of(folder))


def row(report: Report, test: str) -> str:
    """The test's row in the table of tests."""
    lines = table(report).splitlines()
    start = next(place for place, line in enumerate(lines) if line.split()[:2] == ["test", "unit"])
    return next(line for line in lines[start:] if line.split()[:1] == [test])


def test_a_suppressed_ratio_is_shown_in_grey_with_its_reason(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path / "base", whole, lambda *_: 300.0)
    make_records.write_run(tmp_path / "run", whole, lambda *_: 100.0)
    other_batches(tmp_path / "base", "vae")
    report = make_report(tmp_path / "run", compare_to=[str(tmp_path / "base")])
    (vae,) = [line for line in report.lines if line.scored.test == "quick.vae"]
    assert (vae.compared[0].perf_ratio, vae.compared[0].suppressed_ratio) == (None, pytest.approx(1 / 3))
    assert " 0.33 " in row(report, "vae")
    assert "suppressed: option batch_size " in row(report, "vae")


def test_another_bottleneck_than_the_declared_one_is_told(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole, lambda *_: 100.0)
    span = {"n": 18, "min": 0.0, "max": 100.0, "span_s": 8.5}
    telemetry = {
        f"gpu:GPU-{index}": {"utilization_pct": span | {"mean": 26.0}, "power_w": span | {"mean": 200.0}}
        for index in range(2)
    }
    sampled = {"start_s": 1050.0, "end_s": 1059.0, "interval_s": 0.5, "dropped": 0}
    for test in QUICK:
        bound = "gpu-compute" if test == "convnet" else "cpu"
        rewrite(tmp_path, test, telemetry=telemetry, sampled=sampled, bound=bound)
    report = make_report(tmp_path)
    said = (
        "declared gpu-compute, but the CPUs that make the data set the pace: the GPU was busy for 26% of the window, "
        "and 25% of it was spent waiting for data"
    )
    assert {(test, flag.detail) for test, flag in report.flags if flag.kind == "bottleneck"} == {
        ("quick.convnet", said)
    }
    (told,) = [fact.text for fact in first_screen(report).facts if fact.text.startswith("bound by")]
    assert told == "bound by something else than declared: convnet by cpu, not gpu-compute"
    vae = load(tmp_path).tests["quick.vae"]
    assert (mean(vae.gpu_load.values()), vae.power_w) == (pytest.approx(0.26), pytest.approx(200.0))
    assert row(report, "vae").split()[-4:-1] == ["26", "200", "2"]  # 200 W for 100 items/s


def test_the_time_left_counts_later_sessions_and_the_wait_before_them(tmp_path: Path) -> None:
    """7 batches a session, 100 s apart: one of the first session and all of the second are left, an hour later."""
    make_records.write_run(tmp_path, make_records.plan("quick", QUICK, 2, 2))
    for path in (*tmp_path.glob("quick.*.J1.*"), *tmp_path.glob("quick.convnet.J0.*")):
        path.unlink()
    with changing(tmp_path / "run.json") as manifest:
        manifest["request"] |= {"sessions": 2, "session_gap_s": 3600.0}
    with (tmp_path / "run.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert load(tmp_path).left_s == 8 * 100 + 3600


def test_a_run_in_progress_says_how_far_it_is_and_fails_nothing(tmp_path: Path) -> None:
    """7 batches a repeat, 100 s apart: four of the second repeat are left."""
    whole = make_records.plan("quick", QUICK, 2, 2)
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("quick.*.J1.*"):
        if not path.name.startswith(("quick.toy", "quick.vae")):
            path.unlink()
    with (tmp_path / "run.json").open() as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)  # what the orchestrator holds while it lives
        report = make_report(tmp_path)
    assert report.exit_code == 0
    assert first_screen(report).facts[0] == Fact("running", "18 of 24 launches, about 6 min 40 s left", "fair")
    assert "not yet: the run is still in progress" in table(report)
    assert "NO SCORE" not in table(report)
    assert make_report(tmp_path).exit_code == 1  # it has ended, and launches are missing


def test_verify_counts_the_tests_of_a_run_as_its_report_does() -> None:
    """Each step of a progression is a test of its own: before, verify said 1 of 2 where a report said 1 of 3."""
    schemes = {"vae": PER_GPU, "scaling": PROGRESSION}
    assert fact_on_tests(make_records.plan("standard", schemes, 2, 1, names=["vae"])) == "1 of 3 tests of the profile"
    assert fact_on_tests(make_records.plan("standard", schemes, 2, 1)) == ""
