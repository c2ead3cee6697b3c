"""What says nothing is called so: a run in units of itself or beside itself, and results without their plan."""

from __future__ import annotations

from pathlib import Path

import make_records
import pytest
from make_records import PER_GPU
from msgspec.structs import replace

from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Plan
from milabench_ng.model.shipped import bundle_file
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.opening import load_result
from milabench_ng.verification.verified_results import CheckedResults, require_different

REFERENCE = "modern-2xH200-20261124"
"""What the reference of the suite modern was made of."""


def test_a_run_that_is_its_own_reference_and_its_own_baseline() -> None:
    bundle = bundle_file(REFERENCE)
    screen = first_screen(make_report(bundle, compare_to=[str(bundle)]))
    told = {fact.name: fact.text for fact in screen.alarms}
    assert told["own reference"].startswith("the score is in units of this run itself (x modern-h200)")
    (versus,) = (one for one in screen.answers if one.name.startswith("vs "))
    assert versus.parts[-1] == "the run itself"
    assert screen.against == f"vs {REFERENCE}.tar.gz"
    other = first_screen(make_report(bundle_file("modern-1xH200-20261124")))
    assert "own reference" not in {fact.name for fact in other.alarms}


def test_a_run_is_known_by_its_id_and_where_one_has_none_by_its_rates() -> None:
    run, stored = load_result(bundle_file(REFERENCE)), load_baseline("modern-h200")
    assert run.runs
    assert not stored.runs
    assert run.is_of_the_run(run)
    assert run.is_of_the_run(stored)
    assert not run.is_of_the_run(replace(run, runs=("another",)))
    assert not run.is_of_the_run(replace(stored, tests={}))
    assert not run.is_of_the_run(load_baseline("modern-h200-x1"))
    sides = {
        name: CheckedResults(source=name, summary=one, verification=None, demanded=False)
        for name, one in (("bid", run), ("delivered", stored))
    }
    with pytest.raises(InputError, match="delivered is the same run as bid: all of their rates are equal"):
        require_different(sides)
    require_different(sides | {"delivered": replace(sides["bid"], summary=load_baseline("modern-h200-x1"))})


def test_a_baseline_of_the_same_run_with_other_rates_is_told(tmp_path: Path, small: Plan) -> None:
    make_records.write_run(tmp_path / "run", small)
    make_records.write_run(tmp_path / "other", small, lambda launch, rank: 0.9 * make_records.steady(launch, rank))
    for other, there in (("run", False), ("other", True)):
        screen = first_screen(make_report(tmp_path / "run", compare_to=[str(tmp_path / other)]))
        told = {fact.name: fact.text for fact in screen.alarms}
        (versus,) = (one for one in screen.answers if one.name.startswith("vs "))
        assert ("OTHER RATES" in told, versus.parts[-1] != "the run itself") == (there, there)
    assert told["OTHER RATES"].endswith(f"Run mnb verify {tmp_path / 'run'} and mnb verify {tmp_path / 'other'}")


@pytest.fixture
def small() -> Plan:
    return make_records.plan("quick", {"vae": PER_GPU}, 2, 2)


def test_results_without_a_manifest_are_told_so(
    tmp_path: Path, small: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    make_records.write_run(tmp_path / "run", small)
    call(["report", str(tmp_path / "run")])
    assert "NO PLAN" not in capsys.readouterr().out
    (tmp_path / "run" / "run.json").unlink()
    call(["report", str(tmp_path / "run")])
    told = capsys.readouterr().out
    assert "! NO PLAN" in told
    assert "there is no run.json, so it is unknown what was planned" in told
