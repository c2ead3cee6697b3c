"""The newcomer's reading test: the first screen of a shipped bundle answers ten questions, each in a line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from printing import Terminal, on_terminal

from milabench_ng.model.units import four_digits
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.writers import write_report
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, comparable_baseline, make_report

BASELINES = Path(__file__).parents[2] / "baselines"
BUNDLE = BASELINES / "bundles" / "standard-rest-2xH200-20261122.tar.gz"
QUESTIONS = {
    "what?": r"^mnb · standard · \S+\.tar\.gz",
    "when?": r"2026-11-22 08:50 UTC$",
    "is it valid?": r"^Valid +72 of 72 launches +0 failed +isolation full$",
    "can it be compared?": r"^! NO VERDICT +only 3 repeats; a verdict needs at least 5$",
    "is it the whole suite?": r"^! PARTIAL +7 of 19 weighted tests were not selected$",
    "what is the score?": r"^Score +partial: 12 of 19 weighted tests +no score: only some tests ran",
    "and of a node?": r"^vs h200 +[\d.]+ per GPU and per node  ",
    "against what?": r"^vs h200 +[\d.]+ per GPU .* tests",
    "what does it cost?": r"^Price +\$300,000 per node +\$[\d,]+ per h200-node equivalent",
    "which device is worst?": r"^Look at .*GPU 1 in ssd \(-14\.7%\)",
    "what next?": r"^next +for a verdict: mnb jobs standard --repeat 5$",
}


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(
        Path(os.path.relpath(BUNDLE)), compare_to=[str(BASELINES / "h200.json")], options=ReportOptions(price=300_000.0)
    )


def printed(report: Report, monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    """The lines above the first table."""
    lines = on_terminal(monkeypatch, width, write_report, report, "table")
    return lines[: next(at for at, line in enumerate(lines) if line.startswith("test "))]


def test_a_newcomer_finds_ten_answers(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(report, monkeypatch, 160)
    assert [asked for asked, answer in QUESTIONS.items() if not any(re.search(answer, line) for line in lines)] == []


@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_is_one_screen(report: Report, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = printed(report, monkeypatch, width)
    assert len(lines) <= (32 if width == 80 else 30), "commands that can be copied take two lines each"
    assert all(len(line) <= width for line in lines)


def test_nothing_is_said_twice_and_the_worst_comes_first(report: Report) -> None:
    screen = first_screen(report)
    names = [fact.name for fact in screen.facts]
    assert names[0] == "PARTIAL"
    assert len({fact.text for fact in screen.facts}) == len(names)
    assert [answer.name for answer in screen.answers] == ["Node", "vs h200", "Score", "Price", "Valid"]


def test_a_study_without_weights_is_no_error_and_asks_for_no_score() -> None:
    screen = first_screen(make_report(BASELINES / "bundles" / "interference-loader-2xH200-20261125.tar.gz"))
    assert screen.alarms == ()
    assert [answer.name for answer in screen.answers] == ["Node", "Neighbors", "Valid"]
    (step,) = (command.text for command in screen.step)
    assert step.startswith("for the cost to each victim of each neighbor: mnb report ")


def test_what_keeps_numbers_from_a_decision_stands_above_what_is_only_to_be_known() -> None:
    names = [alarm.name for alarm in first_screen(make_report(BASELINES / "modern-h200.json")).alarms]
    assert names == ["NO VERDICT", "own reference", "2 sessions", "weights", "profile"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2900.77, "2,901"), (51.706, "51.71"), (5801.53, "5,802"), (49_092, "49,090"), (0.012344, "0.01234"), (0, "0")],
)
def test_points_have_four_significant_digits(value: float, shown: str) -> None:
    assert four_digits(value) == shown


def test_repeats_one_after_another_are_told_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them would give no verdict, either."""
    made = make_report(BASELINES / "bundles" / "modern-1xH200-20261124.tar.gz")
    (line,) = (line for line in printed(made, monkeypatch, 160) if "NO VERDICT" in line)
    assert line.endswith("(--order file); a verdict needs all tests in turn, as without --order")


def test_a_full_report_does_not_advise_itself(report: Report) -> None:
    full, brief = Terminal(), Terminal()
    write_report(report, "table", full, full=True)
    write_report(report, "table", brief)
    assert "--full" in brief.getvalue()
    assert "--full" not in full.getvalue()


def test_only_a_comparison_that_can_be_made_is_suggested() -> None:
    """A run of an older profile lacks tests of today's, and did the others with other options."""
    assert comparable_baseline(make_report(BASELINES / "h200.json")) == "v100"
    older = make_report(BASELINES / "bundles" / "cv-1xH200-20261122.tar.gz")
    screen = first_screen(older)
    assert [fact.text for fact in screen.step] == ["for a score, with the shipped profile: mnb jobs cv"]
    why = {fact.name: fact.text for fact in screen.alarms}
    assert why["NO SCORE"].startswith("19 of 38 weighted tests not in the profile of this run")
    assert (why["NO SCORE"].endswith(" and 15 more"), why["weights"].endswith(" and 38 more")) == (True, True)
    compared = make_report(BASELINES / "bundles" / "cv-1xH200-20261122.tar.gz", compare_to=["cv-h100"])
    (versus,) = (answer.fact.text for answer in first_screen(compared).answers if answer.name.startswith("vs"))
    assert "option autotune True vs. False (and 1 more) in 8 of 38 tests" in versus


def test_a_long_answer_pushes_no_column_of_the_others(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = msgspec.structs.replace(report.summary, suite="mine")
    alone = msgspec.structs.replace(report, score=None, comparisons=(), price=None, summary=summary)
    lines = printed(alone, monkeypatch, 200)
    assert any(line.startswith("Score  suite 'mine' has no official weights") for line in lines)
    assert any(re.match("Valid +72 of 72 launches {3,30}0 failed", line) for line in lines)
