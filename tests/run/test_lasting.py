"""Launches that work for a given time: the rule, what refuses it, and both ends in the record."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli.node_options import lasting_rule, window_rule
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import parse_profile
from milabench_ng.records import endurance
from milabench_ng.records.window import MEASURED_BY, Window, rate
from milabench_ng.run.planning.request import RunRequest, resolve_request
from milabench_ng.worker.discovery import describe
from tests.run.conftest import BRIEF, Runner


def test_the_window_is_at_the_end_of_the_time() -> None:
    rule = lasting_rule(MEASURED_BY, 1800.0)
    assert (rule.total_s, rule.length_s, rule.settle_s, rule.comparable) == (1800.0, 599.0, 1200.0, True)
    assert lasting_rule(MEASURED_BY, 7200.0).length_s == endurance.PART_S
    assert lasting_rule(window_rule(1.0), 1800.0).length_s == 1.0
    assert lasting_rule(MEASURED_BY, 20.0).length_s == MEASURED_BY.length_s
    with pytest.raises(InputError, match="works for at least 12 s anyway, got 5 s"):
        lasting_rule(MEASURED_BY, 5.0)


@pytest.mark.parametrize("longest", [600, 86400])
def test_a_test_that_ends_earlier_is_refused(longest: int) -> None:
    text = json.dumps({"a": {"workload": "burn_cpu", "arguments": {"max_seconds": longest}}})
    request = RunRequest(
        profile=parse_profile("s", text, "s.json"),
        dataroot=Path("/data"),
        outdir=Path("/results"),
        rule=lasting_rule(MEASURED_BY, 1800.0),
    )
    if longest > 1800:
        resolve_request(request, describe(()))
        return
    with pytest.raises(InputError, match=r"--for asks for 1800 s of work, and .* 600 s. Add -- --max-seconds 2400"):
        resolve_request(request, describe(()))


def test_both_ends_of_a_long_launch_are_recorded(run_profile: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endurance, "LEAST_S", 0.5)
    finished = run_profile(
        {"burn": {"workload": "burn_cpu", "arguments": {"side": 64, "products": 4, "sample_duration": 0.1}}},
        tenants=1,
        rule=msgspec.structs.replace(BRIEF, settle_s=5.4),
    )
    (record,) = finished.of("burn")
    assert record.mnb.start_s is not None
    assert record.mnb.stop_s is not None
    assert record.mnb.stop_s - record.mnb.start_s >= 6.0
    assert record.mnb.endurance
    first, last = record.mnb.endurance.first, record.mnb.endurance.last
    assert first.start_s == pytest.approx(record.mnb.start_s + 2)
    assert last.end_s == pytest.approx(record.mnb.stop_s - BRIEF.margin_s)
    assert first.end_s - first.start_s == pytest.approx(last.end_s - last.start_s)
    assert first.end_s <= last.start_s
    rows = record.mnb.ranks[0].slices
    for end in (first, last):
        assert end.rate == pytest.approx(rate(rows, Window(start_s=end.start_s, end_s=end.end_s, edges="shared")))
        assert end.rate > 0
