"""Real runs that end at the border of a repeat, because their result is known well or their time is spent."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.folder import load
from milabench_ng.records.ledger import Attempt, Finished, StoppedEarly
from milabench_ng.records.stopping import Stopping
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.run.conftest import STEADY

SOON = Stopping(width=99.0, least=2)
"""Any interval is as narrow as that: no timing decides."""


def test_a_run_ends_at_the_first_border_where_the_result_is_known(run_profile, resume_run) -> None:  # type: ignore[no-untyped-def]
    done = run_profile(STEADY, tenants=1, repeat=4, stopping=SOON)
    assert (done.outcome.planned, done.outcome.missing, done.outcome.failed) == (2, 0, 0)
    assert sorted(record.job_id for record in done.records) == ["0.0", "1.0"]
    (enough,) = (event for event in done.events if isinstance(event, StoppedEarly))
    assert (enough.repeats, enough.why) == (2, "narrow")
    assert enough.detail.startswith("the mean rate is known to ±")
    assert f"stopping after 2 repeats: {enough.detail}" in done.notes
    assert any(note.startswith("up to 4 repeats: until the mean rate") for note in done.notes)
    assert isinstance(done.events[-1], Finished)
    assert done.events[-1].missing == 0
    assert done.manifest.stopping == SOON
    (row,) = load(done.folder).tests.values()
    assert (row.planned, row.missing) == (2, 0)
    found = {ruling.id: ruling for ruling in verify(done.folder, Rules()).rulings}
    assert found["R12"].reasons == ("its rule judges the interval from 2 repeats on, and fewer than 6 say too little",)
    assert (found["R8"].result, found["R13"].result) == ("pass", "pass")
    again = resume_run(done.folder)
    assert (again.outcome.missing, len(again.records)) == (0, 2), "nothing is left to do"


def test_one_repeat_is_made_within_any_budget(run_profile) -> None:  # type: ignore[no-untyped-def]
    done = run_profile(STEADY, tenants=1, repeat=8, stopping=Stopping(width=0.02, budget_s=0.1))
    assert any(
        note.startswith("the budget ends before --target-ci can stop the run: 6 repeats take") for note in done.notes
    )
    assert [event.job_id for event in done.events if isinstance(event, Attempt)] == ["0.0"]
    assert [event.why for event in done.events if isinstance(event, StoppedEarly)] == ["budget"]
    assert "R12" not in {ruling.id for ruling in verify(done.folder, Rules()).having("fail")}
    assert msgspec.to_builtins(done.manifest.stopping) == done.manifest.request["stopping"]
