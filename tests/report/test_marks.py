"""Equal marks are counted together, and those of older files still read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU
from tampering import changing

from milabench_ng.analysis.baselines.baseline import shortfalls
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.analysis.summary.marked import Marked
from milabench_ng.present.render.alarms import NOT_COMPARABLE, alarms
from milabench_ng.present.render.as_json import as_object
from milabench_ng.records.marks import Mark
from milabench_ng.report.reporting import make_report


def hot(device: int, share: float) -> dict[str, Any]:
    """Clocks held down by heat, as a record has it."""
    mark = Mark(kind="throttled", device=str(device), what="hw_thermal", value=share, limit=0.005)
    return msgspec.to_builtins(mark)


def run(folder: Path, marks: dict[str, list[Any]]) -> Path:
    """Two tests, two repeats, two devices; the marks of some launches by test and job id."""
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU}, 2, 2)
    make_records.write_run(folder, whole)
    for launch in whole.launches:
        found = marks.get(f"{launch.test.removeprefix('quick.')} {launch.job_id}")
        if found:
            (path,) = folder.glob(f"{launch.test}.J{launch.job_id}.*")
            with changing(path) as record:
                record["mnb"]["marks"] = found
    return folder


def said(folder: Path) -> list[str]:
    return [fact.text for fact in alarms(make_report(folder)) if fact.name == NOT_COMPARABLE]


def test_marks_with_other_percentages_are_counted_together(tmp_path: Path) -> None:
    folder = run(tmp_path, {"vae 0.1": [hot(1, 0.031)], "vae 1.1": [hot(1, 0.047)]})
    text = "GPU clocks throttled (hw_thermal) for 4.7% of the time (limit 0.5%) (at worst; 1 of 2 tests; device 1)"
    assert said(folder) == [text]
    assert load(folder).tests["quick.vae"].marks == (msgspec.convert(hot(1, 0.047), Mark),)
    assert f"marked: {text}" in shortfalls(load(folder), {})


def test_a_mark_of_the_only_test_speaks_of_one_test() -> None:
    mark = Marked(kind="throttled", what="x", tests=("s.a",), devices=(), worst=None, limit=None, text="slow")
    assert mark.counted(1) == "slow (1 of 1 test)"


def test_marks_of_several_tests_and_devices_are_one_line(tmp_path: Path) -> None:
    cooler = {"kind": "throttled", "device": "0", "what": "sw_thermal", "value": 0.01, "limit": 0.005}
    others = {"convnet 0.0": [hot(0, 0.2), cooler], "convnet 1.1": [hot(1, 0.3)]}
    folder = run(tmp_path, {"vae 0.1": [hot(1, 0.1)], **others})
    assert said(folder) == [
        "GPU clocks throttled (hw_thermal) for 30% of the time (limit 0.5%) (at worst; 2 of 2 tests; devices 0, 1)",
        "GPU clocks throttled (sw_thermal) for 1% of the time (limit 0.5%) (at worst; 1 of 2 tests; device 0)",
    ]
    (first, second) = as_object(make_report(folder))["marks"]
    assert (first.worst, first.limit, first.devices) == (0.3, 0.005, ("0", "1"))
    assert first.tests == ("quick.vae", "quick.convnet")
    assert (second.kind, second.what, second.devices) == ("throttled", "sw_thermal", ("0",))


def test_a_stored_summary_holds_typed_marks(tmp_path: Path) -> None:
    summary = load(run(tmp_path, {"vae 0.1": [hot(1, 0.031)]}))
    assert decode_summary(encode_summary(summary).encode(), "stored") == summary


@pytest.mark.parametrize("value", [None, -1e308, 1e308])
def test_a_number_that_was_not_measured_is_short(value: float | None) -> None:
    for kind in ("throttled", "window shortened", "loss outside the reference"):
        assert len(Mark(kind=kind, what="x", value=value).text) < 100
