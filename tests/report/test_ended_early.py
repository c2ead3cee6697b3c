"""Runs that ended by a rule for stopping: what a report counts, and what verification finds where it was not so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU
from rows import row_of

from milabench_ng.analysis.scoring.narrowness import half_width, headline
from milabench_ng.analysis.statistics.intervals import log_stat
from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.plan import Launch
from milabench_ng.records.borders import narrow
from milabench_ng.records.stopping import Headline, Stopping
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify

NARROW = Stopping(width=0.02)
STEADY = (1.0, 1.01, 0.99, 1.01, 0.99, 1.0, 1.01, 0.99)
"""The 95 % interval of the first six is +-0.9 %."""
NOISY = (1.0, 1.05, 0.95, 1.05, 0.95, 1.0, 1.05, 0.95)
"""Theirs is +-5 %, and never within 2 %."""
HUNDRED_S = make_records.BETWEEN_S
"""Every repeat is one batch, and takes this long."""


def made(
    folder: Path,
    rates: Sequence[float],
    rule: Stopping,
    repeats: int,
    why: Literal["narrow", "budget"] | None = "narrow",
) -> Path:
    """A run of at most eight repeats that ended after so many."""
    plan = make_records.plan("standard", {"vae": PER_GPU}, 1, len(rates))

    def rate(launch: Launch, _: int) -> float:
        return 1e6 * rates[launch.run]

    make_records.write_run(folder, plan, rate, slices=24)
    tampering.end_after(folder, repeats, rule, why)
    return folder


def reasons(folder: Path, rule: str = "R12") -> tuple[str, ...]:
    """Why it breaks the rule that every planned launch has a record."""
    (found,) = (one for one in verify(folder, Rules()).rulings if one.id == rule)
    return found.reasons


def test_half_the_width_of_an_interval_by_hand() -> None:
    # The logarithms of 0.99 and 1.01 are -0.01005 and 0.00995: s^2 = 4.0e-4 / 5, and t(0.975, 5) = 2.5706.
    assert half_width(log_stat(STEADY[:6])) == pytest.approx(2.5706 * (8.0e-5 / 6) ** 0.5, rel=0.01)
    assert half_width(log_stat(STEADY[:1])) is None


def test_what_a_run_is_for_is_its_mean_rate_or_in_a_study_of_neighbours_their_cost() -> None:
    def row(rates: Sequence[float], **more: Any) -> TestSummary:
        launches = {f"{run}.0": rate for run, rate in enumerate(rates)}
        repeats = {str(run): rate for run, rate in enumerate(rates)}
        known = {"workload": "vae", "options": {"batch_size": 64}}
        return row_of(n=len(rates), failures=0, launches=launches, repeats=repeats, **known, **more)

    alone, beside = row(NOISY, company={}), row([0.5 * rate for rate in NOISY], company={"stream": 1.0})
    packed = row([0.9 * rate for rate in STEADY], company=None)
    assert headline({"s.a": alone}).width == pytest.approx(half_width(log_stat(NOISY)))
    opposite = row([1 / rate for rate in NOISY], company={})
    assert headline({"s.a": alone, "s.b": opposite}) == Headline("the mean rate", pytest.approx(0.0), 8), "by repeat"
    cells = {"s.a": alone, "s.a-stream": beside}
    expected = Headline("the mean slowdown", pytest.approx(0.0), 8)
    assert headline(cells) == expected, "the pairs of a repeat share its noise"
    cost = headline(cells | {"s.a-packed": packed})
    of_pairs = [one / (0.9 * other) for one, other in zip(NOISY, STEADY, strict=True)]
    assert cost == Headline("the cost of neighbors", pytest.approx(half_width(log_stat(of_pairs))), 8)
    starved = msgspec.structs.replace(beside, launches={})
    assert headline(cells | {"s.a-starved": starved}).width is None, "a slowdown that nobody knows"
    assert headline({"s.a": alone, "s.b": TestSummary(n=5, failures=5)}).width is None, "a rate that nobody knows"
    assert headline({}).width is None
    lossy = [msgspec.structs.replace(alone, repeats=dict.fromkeys(some, 1.0)) for some in ("01234567", "67")]
    few = headline(dict(zip(("s.a", "s.b"), lossy, strict=True)))
    assert few.repeats == 2, "that both have"
    assert narrow(NARROW, 8, few) is None


def test_what_was_not_asked_for_is_not_missing(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", STEADY, NARROW, 6)
    summary = load(folder)
    (row,) = summary.tests.values()
    assert (row.n, row.planned, row.missing, row.failures) == (6, 6, 0, 0)
    assert not summary.interrupted
    assert any(note.startswith("ended after 6 repeats, as asked") for note in summary.notes)
    assert reasons(folder) == ()


@pytest.mark.parametrize(
    ("repeats", "rule", "why", "note"),
    [
        (3, Stopping(width=0.02, budget_s=3 * HUNDRED_S), "budget", "; the requested interval of ±2%"),
        (1, Stopping(budget_s=HUNDRED_S), "budget", "ended after 1 repeat, as asked"),
        (8, NARROW, None, "all repeats ran: the requested interval of ±2%"),
    ],
)
def test_a_report_says_that_it_is_not_as_narrow_as_asked(
    tmp_path: Path, repeats: int, rule: Stopping, why: Literal["narrow", "budget"] | None, note: str
) -> None:
    folder = made(tmp_path / "run", NOISY, rule, repeats, why)
    assert [one for one in load(folder).notes if note in one]


def test_without_a_rule_a_ledger_cannot_ask_for_less(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", STEADY, NARROW, 6)
    tampering.rewrite(folder / "run.json", lambda content: content.update(stopping=None))
    tampering.rehash(folder)
    (row,) = load(folder).tests.values()
    assert (row.planned, row.missing) == (8, 2)
    assert any("the ledger ends the run by a rule" in reason for reason in reasons(folder))


@pytest.mark.parametrize(
    ("rates", "rule", "repeats", "why", "reason"),
    [
        (NOISY, NARROW, 7, "narrow", "it ended after 7 repeats, where its rule had it go on: the mean rate was"),
        (STEADY, NARROW, 5, "narrow", "it ended after 5 repeats, where its rule had it go on"),
        (STEADY, NARROW, 7, "narrow", "it went on after 6 repeats, when the mean rate is known to"),
        (NOISY, Stopping(width=0.1, least=3), 4, "narrow", "judges the interval from 3 repeats on"),
        (NOISY, Stopping(budget_s=5 * HUNDRED_S), 2, "budget", "it ended after 2 repeats, where its rule had it go on"),
        (NOISY, Stopping(budget_s=2 * HUNDRED_S), 6, "budget", "it went on after 3 repeats, when another repeat would"),
    ],
)
def test_where_the_rule_had_it_end(
    tmp_path: Path,
    rates: Sequence[float],
    rule: Stopping,
    repeats: int,
    why: Literal["narrow", "budget"],
    reason: str,
) -> None:
    assert [one for one in reasons(made(tmp_path / "run", rates, rule, repeats, why)) if reason in one]


@pytest.mark.parametrize("rule", [Stopping(budget_s=350.0), Stopping(width=0.02, budget_s=350.0)])
def test_a_budget_that_is_spent(tmp_path: Path, rule: Stopping) -> None:
    folder = made(tmp_path / "run", NOISY, rule, 4, "budget")
    assert reasons(folder) == ()
    altered = msgspec.structs.replace(rule, budget_s=3500.0)
    tampering.rewrite(folder / "run.json", lambda content: content.update(stopping=msgspec.to_builtins(altered)))
    assert any("differs from the start of the run" in reason for reason in reasons(folder, "R13"))
    tampering.rehash(folder)
    assert any("where its rule had it go on" in reason for reason in reasons(folder))


def test_a_budget_is_not_spent_by_waiting(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", NOISY, Stopping(budget_s=3600.0), 4, "budget")

    def an_hour_later(entry: Any) -> Any:
        late = type(entry.what).__name__ in ("StoppedEarly", "Finished", "CodeSeen") and entry.number > 10
        return msgspec.structs.replace(entry, utc="2026-01-06T17:30:00.000000Z") if late else entry

    tampering.rehash(folder, an_hour_later)
    assert any("s before its rule ended it" in reason for reason in reasons(folder))


def test_a_request_and_a_rule_that_differ(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", STEADY, NARROW, 6)
    tampering.rewrite(folder / "run.json", lambda content: content.update(request={"stopping": None}))
    assert any("asks for stopping None" in reason for reason in reasons(folder, "R8"))
    assert json.loads((folder / "run.json").read_bytes())["stopping"]["width"] == 0.02


def test_a_tender_refuses_rules_for_stopping(tmp_path: Path) -> None:
    """A budget made up afterwards, for the first six of eight repeats, agrees with ledger and times."""
    cut = made(tmp_path / "cut", STEADY, Stopping(budget_s=5.5 * HUNDRED_S), 6, "budget")
    whole = make_records.plan("standard", {"vae": PER_GPU}, 1, 6)
    make_records.write_run(tmp_path / "whole", whole, slices=30)

    def r11(folder: Path, rules: Rules) -> tuple[str, tuple[str, ...]]:
        return next((one.result, one.reasons) for one in verify(folder, rules).rulings if one.id == "R11")

    assert reasons(cut) == ()
    assert r11(cut, Rules(repeat=5)) == ("pass", ())
    refused = Rules(repeat=5, stopping=False)
    assert r11(cut, refused) == r11(cut, Rules(stopping=False))
    assert r11(cut, refused)[0] == "fail"
    assert r11(cut, refused)[1][0].startswith("it was free to end early: it was to repeat")
    assert r11(cut, Rules(repeat=10, stopping=False))[1][0].endswith("6 of 10 runs have records"), "the number is first"
    assert r11(tmp_path / "whole", refused) == ("pass", ())
    assert r11(tmp_path / "whole", Rules()) == ("not required", ())


@pytest.mark.parametrize("name", ["standard", "procurement"])
def test_the_shipped_rules_refuse_rules_for_stopping(name: str) -> None:
    assert not load_rules(name).stopping
