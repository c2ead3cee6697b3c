"""What is in a folder, what should be and is not, and what cannot be read."""

from __future__ import annotations

import fcntl
from pathlib import Path

import make_records
import msgspec
import pytest
from make_records import PER_GPU, PROGRESSION
from tampering import changing

from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.analysis.summary.summary import Stat
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Plan
from milabench_ng.records.marks import Mark
from milabench_ng.report.reporting import make_report
from milabench_ng.telemetry.messages import Sample
from milabench_ng.telemetry.recorder import Recorder

STAMP = "20260106-160000-000000"


@pytest.fixture
def whole() -> Plan:
    return make_records.plan("standard", {"vae": PER_GPU, "scaling": PROGRESSION}, 2, 2)


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def test_complete_folder(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    summary = load(tmp_path)
    vae = summary.tests["standard.vae"]
    assert list(summary.tests) == ["standard.vae", "standard.scaling.1", "standard.scaling.2"]
    assert (summary.devices, summary.units, summary.provenance.hardware) == (2, "true", "2 x Test GPU")
    # 100 and 102 in run 0, 104 and 106 in run 1
    assert vae.train == Stat(4, 100.0, 106.0, 103.0, pytest.approx(5**0.5, rel=1e-12))
    assert vae.launches == {"0.0": 100.0, "0.1": 102.0, "1.0": 104.0, "1.1": 106.0}
    assert vae.pergpu == {"0": Stat(2, 100.0, 104.0, 102.0, 2.0), "1": Stat(2, 102.0, 106.0, 104.0, 2.0)}
    assert (vae.n, vae.planned, vae.missing, vae.pending, vae.failures) == (4, 4, 0, 0, 0)
    assert (vae.wait_share, vae.tiers, vae.work.precision, vae.peak_memory) == (0.25, ("full",), ("fp32",), 1001.0)
    assert vae.work.data[0].cache == "cold"
    assert summary.tests["standard.scaling.2"].train == Stat(2, 101.0, 105.0, 103.0, 2.0)  # over launches


def test_launches_of_one_batch_have_one_number_where_another_run_lacks_one(tmp_path: Path) -> None:
    """Of two runs in a folder, the first has no record of GPU 0 in its first repeat."""
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)
    for run in (0, 1):
        ids = {"run_id": f"{make_records.RUN_ID[:-1]}{run}", "started_utc": f"2026-01-06T1{run}:00:00Z"}
        for batch, launch in enumerate(whole.launches):
            if (run, launch.job_id) != (0, "0.0"):
                rate = 100.0 * (run + 1) + 10 * launch.run + 2 * launch.devices[0]
                made = make_records.record(launch, lambda *_, rate=rate: rate, batch=10 * run + batch, **ids)
                make_records.write(tmp_path, made, 10 * run + batch)
    found = load(tmp_path).tests["quick.vae"].launches
    assert {job: found[job] for job in ("0.1", "1.0", "1.1")} == {"0.1": 102, "1.0": 110, "1.1": 112}
    assert {job: found[job] for job in found if "#" in job} == {"0.0#2": 200, "0.1#2": 202, "1.0#2": 210, "1.1#2": 212}


def test_perf_comes_from_the_slices_and_not_from_what_the_record_says(tmp_path: Path, whole: Plan) -> None:
    made = make_records.record(whole.launches[0], lambda *_: 100.0)
    made["timings"]["train"]["rates"] = [1e9] * 120
    made["mnb"]["window"] = {"start_s": 0.0, "end_s": 1.0}
    make_records.write(tmp_path, made)
    assert load(tmp_path).tests["standard.vae"].launches == {"0.0": 100.0}


def test_missing_after_the_end_pending_before_it(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    files(tmp_path, "standard.vae.J1.1.*")[0].unlink()
    ended = load(tmp_path).tests["standard.vae"]
    assert (ended.n, ended.failures, ended.missing, ended.pending) == (4, 1, 1, 0)
    assert [(failed.job_id, failed.cause) for failed in ended.failed] == [("1.1", "missing")]
    with (tmp_path / "run.json").open() as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)  # what the orchestrator holds while it lives
        going_on = load(tmp_path)
    row = going_on.tests["standard.vae"]
    assert going_on.going_on
    assert (row.n, row.failures, row.missing, row.pending) == (3, 0, 0, 1)
    assert not load(tmp_path).going_on


def test_a_test_without_any_record_is_a_row(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    for path in files(tmp_path, "standard.vae.*"):
        path.unlink()
    row = load(tmp_path).tests["standard.vae"]
    assert (row.n, row.failures, row.missing, row.train) == (4, 4, 4, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b'{"job_id": "0.0", "name": "standard.v', "not a readable record"),
        (b"[1, 2]", "it holds no job_id"),
        (b'{"job_id": "0.0"}', "not a readable record"),
        (b'{"job_id": "0.0", "x": "\xff\xfe"', "not a readable record"),
    ],
)
def test_an_unreadable_record_is_a_failure_of_its_test(
    tmp_path: Path, whole: Plan, content: bytes, reason: str
) -> None:
    make_records.write_run(tmp_path, whole)
    files(tmp_path, "standard.vae.J0.0.*")[0].write_bytes(content)
    files(tmp_path, "standard.scaling.J1.1.*")[0].write_bytes(content)
    summary = load(tmp_path)
    vae = summary.tests["standard.vae"]
    assert (vae.n, vae.failures, vae.missing) == (4, 1, 0)
    assert vae.failed[0].cause == "unreadable"
    assert reason in vae.failed[0].detail
    assert summary.tests["standard.scaling.2"].failures == 1
    assert summary.problems == ()


def test_without_a_plan_the_name_says_where_an_unreadable_record_belongs(tmp_path: Path, whole: Plan) -> None:
    for launch in whole.launches:
        make_records.write(tmp_path, make_records.record(launch, make_records.steady))
    files(tmp_path, "standard.scaling.J1.1.*")[0].write_bytes(b"{")
    assert load(tmp_path).tests["standard.scaling.2"].failures == 1


def test_a_file_that_cannot_be_placed_counts_as_a_failed_launch(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    (tmp_path / "what.json").write_bytes(b'{"job_id": "0.0", ')
    report = make_report(tmp_path)
    assert [problem.file for problem in report.summary.problems] == ["what.json"]
    assert (report.failure_rate.n, report.failure_rate.fail, report.exit_code) == (9, 1, 1)


def test_other_json_files_are_passed_by(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    before = load(tmp_path)
    (tmp_path / "base.json").write_text(encode_summary(before))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "other.json").write_text('{"a": 1}')
    (tmp_path / ".half.json").write_text("{")
    assert load(tmp_path) == before


def test_records_below_the_folder_are_found(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path / "deep" / "er", whole)
    assert load(tmp_path).tests == load(tmp_path / "deep" / "er").tests


def test_power_is_the_mean_of_what_the_recorder_kept_of_each_gpu(tmp_path: Path, whole: Plan) -> None:
    recorder = Recorder()
    for index, moment, watts in ((0, 1.0, 300.0), (0, 2.0, 500.0), (1, 1.5, 600.0)):
        recorder.feed(Sample(time_s=moment, source="gpu", key=f"GPU-{index}", values={"power_w": watts}))
    make_records.write_run(tmp_path, whole)
    for path in tmp_path.glob("standard.vae.J0.*"):
        with changing(path) as made:
            made["mnb"]["telemetry"] = msgspec.to_builtins(
                recorder.telemetry([("gpu", f"GPU-{made['device']}")], 0.0, 10.0)
            )
    assert load(tmp_path).tests["standard.vae"].power_w == 500.0  # of 400 and 600 W


def test_every_way_to_fail_has_its_cause(tmp_path: Path) -> None:
    whole = make_records.plan("standard", {"vae": PER_GPU}, 5, 1)
    one, two, three, four, five = whole.launches
    make_records.write_manifest(tmp_path, whole)
    make_records.write(tmp_path, make_records.failed(one, "oom", "killed by the kernel"))
    make_records.write(tmp_path, make_records.record(two, make_records.steady, slices=3))
    make_records.write(tmp_path, make_records.record(three, make_records.steady) | {"metrics": {"loss": None}})
    make_records.write(tmp_path, make_records.record(four, make_records.steady, marks=[{"kind": "scheduling"}]))
    make_records.write(tmp_path, make_records.record(five, make_records.steady, stop_s=None))
    row = load(tmp_path).tests["standard.vae"]
    causes = {failed.job_id: failed.cause for failed in row.failed}
    assert causes == {"0.0": "oom", "0.1": "short", "0.2": "nan", "0.4": "short"}
    assert (row.n, row.failures, list(row.launches)) == (5, 4, ["0.3"])
    assert row.marks == (Mark(kind="scheduling"),)


def test_a_schema_of_before_is_said_to_be_of_01(tmp_path: Path, whole: Plan) -> None:
    make_records.write(tmp_path, make_records.record(whole.launches[0], make_records.steady, schema=1))
    detail = load(tmp_path).tests["standard.vae"].failed[0].detail
    assert "record schema 1: made by mnb 0.1, which later versions cannot read. Use that version" in detail


def test_isolation_is_the_weakest_of_all_launches(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    assert make_report(tmp_path).isolation == "full"
    weak = {"0": {"tier": "full"}, "1": {"tier": "affinity"}}
    make_records.write(
        tmp_path, make_records.record(whole.launches[-1], make_records.steady, isolation=weak), moment=50
    )
    assert make_report(tmp_path).isolation == "affinity"


def test_only_what_had_lost_a_neighbour_is_replaced_by_a_retry(tmp_path: Path, whole: Plan) -> None:
    """Whoever measures a launch again for its number alone gets the mean of both."""
    make_records.write_run(tmp_path, whole)
    label, job = whole.launches[0].label, whole.launches[0].job_id
    (first,) = tmp_path.glob(f"{label}.J{job}.*")
    again = make_records.record(whole.launches[0], lambda *_: 200.0)
    again["mnb"]["started_utc"] = "2026-01-07T00:00:00.000000Z"
    make_records.write(tmp_path, again, moment=86400)
    picked = load(tmp_path).tests[label].train
    assert (picked.n, picked.min) == (5, 100.0)
    with changing(first) as lost:
        lost["mnb"]["marks"] = [{"kind": "neighbours lost", "what": "1", "value": 1}]
    row = load(tmp_path).tests[label]
    assert (row.train.n, row.train.min, row.train.max, row.marks) == (4, 102.0, 200.0, ())


@pytest.mark.parametrize(("dead", "isolation"), [(True, "full"), (False, "none")])
def test_only_a_dead_launch_may_lack_its_evidence(tmp_path: Path, whole: Plan, dead: bool, isolation: str) -> None:
    make_records.write_run(tmp_path, whole)
    without = make_records.record(whole.launches[0], make_records.steady, isolation={})
    if dead:
        without["success"] = False
    make_records.write(tmp_path, without, moment=50)
    assert make_report(tmp_path).isolation == isolation


def test_a_summary_survives_its_file(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    summary = load(tmp_path)
    assert decode_summary(encode_summary(summary).encode(), "s") == summary
    (tmp_path / "base.json").write_text(encode_summary(summary))
    report, again = make_report(tmp_path), make_report(tmp_path / "base.json")
    assert again.score == report.score
    assert again.lines == report.lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a summary"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": 2, "tests": {}}', "not a summary"),
        ('{"vae": {"n": 1}}', "not a summary of mnb or milabench 2020"),
        ("{}", "empty"),
    ],
)
def test_bad_summaries_are_bad_input(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "s.json")


def test_bad_folders_are_bad_input(tmp_path: Path, whole: Plan) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="it has no record"):
        load(tmp_path)
    make_records.write(tmp_path, make_records.record(whole.launches[0], make_records.steady))
    classic = make_records.record(whole.launches[1], make_records.steady)
    del classic["mnb"]
    make_records.write(tmp_path, classic)
    with pytest.raises(InputError, match="different items"):
        load(tmp_path)


def test_the_manifest_alone_is_a_run_that_has_just_begun(tmp_path: Path, whole: Plan) -> None:
    make_records.write_manifest(tmp_path, whole)
    with (tmp_path / "run.json").open() as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)
        report = make_report(tmp_path)
    assert report.failure_rate.rate is None
    assert report.score.status == "invalid"


def test_nobody_knows_what_was_planned_without_a_whole_manifest(tmp_path: Path, whole: Plan) -> None:
    make_records.write_run(tmp_path, whole)
    with changing(tmp_path / "run.json") as broken:
        del broken["plan"]["devices"]
    with pytest.raises(InputError, match=r"run\.json: not a readable manifest: .*the key 'devices' is missing"):
        load(tmp_path)
