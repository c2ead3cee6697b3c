"""The last screen of a run has verdict, score, validity and what to do, in twelve lines at 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from printing import on_terminal

from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import FailedLaunch
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.writers import write_last_screen
from milabench_ng.records.marks import Mark
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import build_report, make_report

BASELINES = Path(__file__).parents[2] / "baselines"
SURE = Interval(value=2900.0, low=2880.0, high=2920.0, n=5, df=4.0)
FOLDERS = ("h200.json", "bundles/standard-rest-2xH200-20261122.tar.gz", "bundles/cv-1xH200-20261122.tar.gz")
STUDY = "bundles/unfenced-toy_lstm-2xH100-20261125.tar.gz"
"""Not isolated, without weights, and about neighbours."""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are short, wherever the tests are."""
    monkeypatch.chdir(BASELINES)


def printed(report: Report, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> list[str]:
    """The lines on a terminal."""
    return on_terminal(monkeypatch, width, write_last_screen, report)


def named(lines: list[str]) -> list[str]:
    """What the lines are about."""
    return [line[:9].strip() for line in lines if line[:9].strip()]


def test_a_study_of_neighbours_says_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(make_report(Path(STUDY)), monkeypatch)
    assert len(lines) <= 12
    assert re.match(r"Verdict +NOT COMPARABLE: NOT ISOLATED: isolation none", lines[0])
    assert any(line.startswith("Neighbors  ") for line in lines)


def test_a_note_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(make_report(Path("bundles/modern-2xH200-20261124.tar.gz")), monkeypatch)
    assert lines[0] == "Verdict  NO VERDICT: only 3 repeats; a verdict needs at least 5"


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("width", [80, 120])
def test_it_has_twelve_lines_at_most(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_report(Path(name))
    lines = printed(report, monkeypatch, width)
    assert len(lines) <= 12
    assert all(len(line) <= width or "/" in line for line in lines), "paths alone are not broken"
    assert [one for one in named(lines) if one != "Look at"] == [
        "Verdict",
        "Score",
        "Valid",
        "results",
        "next",
        "details",
    ]


def test_its_answers_are_those_of_the_first_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_report(Path("h200.json"))
    told = {answer.name: "   ".join(answer.parts) for answer in first_screen(report).answers}
    lines = printed(report, monkeypatch)
    assert lines[:3] == [
        "Verdict  NO VERDICT: only 3 repeats; a verdict needs at least 5",
        f"Score    {told['Score']}",
        f"Valid    {told['Valid']}",
    ]


def test_what_finds_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten reasons why nothing can be compared, and a failure: the worst comes first, the rest is counted."""
    summary = make_report(Path("h200.json")).summary
    marks = tuple(Mark(kind="classic data", what=f"{'a long name of a set ' * 5}{number}") for number in range(10))
    failed = FailedLaunch(job_id="0.0", cause="oom", detail="killed")
    tests = {
        label: msgspec.structs.replace(row, marks=marks, failures=1, failed=(failed,))
        for label, row in summary.tests.items()
    }
    report = build_report(msgspec.structs.replace(summary, tests=tests), "results")
    lines = printed(report, monkeypatch)
    assert len(lines) <= 12
    assert lines[0].startswith("Verdict  FAIL: 19 of 108 launches failed (19 oom)")
    found = re.search(r"with (\d+) more findings$", " ".join(lines[-2:]))
    assert int(found[1]) >= 8


def test_a_run_without_any_finding_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_report(Path("h200.json"))
    assert report.score is not None
    judged = msgspec.structs.replace(report.score, interval=SURE)
    quiet = msgspec.structs.replace(report, score=judged)
    assert printed(quiet, monkeypatch)[0] == "Verdict  no issues found"
