"""A test with company, in a real run: what the profile says happens, is recorded, and is checked."""

from __future__ import annotations

from milabench_ng.analysis.summary.folder import load
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.checks import check_fence, check_ledger, check_plan
from milabench_ng.verification.opening import opened
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import gather
from tests.run.conftest import Runner, needs_two_cpus

STEADY = {"workload": "tests.run.broken:steady"}


@needs_two_cpus
def test_a_test_visits_each_slot_beside_its_company(run_profile: Runner, resume_run: Runner) -> None:
    done = run_profile(
        {"one": {**STEADY, "company": ["noise"]}, "noise": {**STEADY, "role": "company"}}, tenants=2, isolation="none"
    )
    assert (done.outcome.planned, done.outcome.failed) == (2, 0)
    assert [(at.mnb.batch, at.job_id) for at in done.of("one")] == [(0, "0.0"), (1, "0.1")]
    assert {(at.mnb.batch, at.job_id, at.mnb.attempt) for at in done.of("noise")} == {(0, "0.1", 0), (1, "0.0", 0)}
    for record in done.of("one"):
        (beside,) = record.mnb.neighbours.who
        assert (beside.label, beside.role) == ("trial.noise", "company")
    summary = load(done.folder)
    assert list(summary.tests) == ["trial.one"]
    assert "company" not in [mark.kind for mark in make_report(done.folder).marks]
    with opened(done.folder) as there:
        evidence = gather(there, load_rules(None), None, None, None)
    rules = (check_plan.plan, check_ledger.complete, check_ledger.ledger, check_fence.together)
    assert [rule(evidence).reasons for rule in rules] == [(), (), (), ()]
    assert resume_run(done.folder).outcome.failed == 0
    assert len(list(done.folder.glob("trial.*.json"))) == 4
