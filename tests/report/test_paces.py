"""The host pace in reports, on made folders whose paces are known by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from printing import text_of
from tampering import changing

from milabench_ng.analysis.baselines.baseline import as_baseline
from milabench_ng.analysis.launch.host_paces import PaceSeen, PaceStat, differ, paces, without_pace
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Launch
from milabench_ng.present.render import as_csv, as_json, as_table
from milabench_ng.present.render.cells import Cell
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.statements import details
from milabench_ng.present.render.tables import other_tables
from milabench_ng.records.host_pace import HostPace
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import make_report


def folder(path: Path, edges: Any, repeat: int = 3, devices: int = 2) -> Path:
    """A run of one test; ``edges(launch)``: the host pace of a launch's share before and after, or None."""
    whole = make_records.plan("quick", {"vae": make_records.PER_GPU}, devices, repeat)
    make_records.write_run(path, whole)
    for file in path.glob("quick.*.json"):
        with changing(file) as made:
            pair = edges(msgspec.convert(made["mnb"]["launch"], Launch))
            index = str(made["device"])
            made["mnb"]["host_pace"] = {} if pair is None else {index: make_records.host_pace(*pair)}
    make_records.write_ledger(path, whole)
    return path


def told(report: Report) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """The table's row for all cores, and what is said below it."""
    (found,) = [each for each in other_tables(report) if each.key == "host-pace"]
    return found.rows[0], found.notes


def edge(mb_per_s: float, on_cpu: float = 1.0, library: str = "zlib 1") -> HostPace:
    """The same in all bursts."""
    return HostPace(library=library, mb_per_s=mb_per_s, bursts=(mb_per_s,) * 5, on_cpu=on_cpu)


def seen(
    before: float | HostPace, after: float | HostPace, device: str = "0", batch: int = 0, session: int = 1
) -> PaceSeen:
    """One share in one batch."""
    first, last = (pace if isinstance(pace, HostPace) else edge(pace) for pace in (before, after))
    return PaceSeen(run="run", session=session, batch=batch, device=device, before=first, after=last)


def test_medians_over_shares_edges_and_batches() -> None:
    found = paces(
        [
            seen(80.0, 82.0, "0", 0),
            seen(60.0, 70.0, "1", 0),  # of 60, 70, 80 and 82: 75; 70 is 17 % more than 60
            seen(90.0, 90.0, "0", 1),
            seen(88.0, 88.0, "1", 1),  # 89
            seen(81.0, 81.0, "0", 2),  # 81
        ]
    )
    assert found.run == PaceStat(3, 81.0, 75.0, 89.0)
    assert found.devices == {"0": PaceStat(3, 81.0, 81.0, 90.0), "1": PaceStat(2, 76.5, 65.0, 88.0)}
    assert found.sessions == {"1": found.run}
    assert found.changed == 1
    assert found.slow == {"1": pytest.approx(76.5 / 81 - 1)}


def test_a_batch_in_which_two_shares_changed_counts_once() -> None:
    found = paces([seen(80.0, 70.0, "0"), seen(80.0, 70.0, "1"), seen(80.0, 80.0, batch=1)])
    assert found.changed == 1


def test_the_limit_is_five_percent_of_the_faster() -> None:
    assert not differ(96.0, 100.0)
    assert not differ(100.0, 96.0)
    assert differ(94.0, 100.0)
    assert differ(100.0, 94.0)


OF_ALL = "all: the median of all checks of a launch group"


def test_an_even_run_is_said_in_one_line_and_one_row(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path, lambda launch: (80.0 + launch.run, 80.0 + launch.run)))
    assert told(report) == (("all", 3, 81.0, 80.0, 82.0, 0.0), ("computed by zlib 1", OF_ALL))
    assert not [each for each in first_screen(report).look if each.name == "cores"]


def test_the_share_with_slow_cores_is_named(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path, lambda launch: (70.0,) * 2 if launch.devices == (2,) else (80.0,) * 2, 2, 4))
    assert told(report)[1] == ("computed by zlib 1", OF_ALL, "slow cores: device 2 (-12.5%)")
    (cores,) = [each for each in first_screen(report).look if each.name == "cores"]
    assert cores.text == "the CPU cores of GPU 2 are slower than the others (-12.5%)"
    text = text_of(as_table.write, report, full=True)
    row = next(line for line in text.splitlines() if line.startswith("device 2 "))
    assert row.split() == ["device", "2", "2", "70.0", "70.0", "70.0", "-12.5"]


def test_what_changed_over_a_batch_is_counted(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path, lambda launch: (80.0, 70.0) if launch.run == 1 else (80.0, 80.0)))
    assert told(report)[1][-1] == "CPU speed changed by more than 5% in 1 of 3 launch groups"


def test_a_single_launch_group_has_no_range_of_paces_to_print(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path, lambda _: (80.0, 70.0), 1))
    (cores,) = [each for each in first_screen(report).look if each.name == "cores"]
    assert cores.text == "CPU speed changed by more than 5% in 1 of 1 launch group"


def test_sessions_are_told_apart() -> None:
    found = paces([seen(80.0, 80.0), seen(70.0, 70.0, session=2), seen(72.0, 72.0, session=2, batch=1)])
    assert found.sessions == {"1": PaceStat(1, 80.0, 80.0, 80.0), "2": PaceStat(2, 71.0, 70.0, 72.0)}
    assert found.uneven


def test_cores_that_others_use_too_are_told() -> None:
    found = paces([seen(80.0, 80.0, "0"), seen(edge(80.0, on_cpu=0.5), 80.0, "1")])
    assert found.on_cpu == 0.75
    assert found.remarks[-1] == "other programs used 25% of the cores during these checks"


def test_what_was_not_measured_has_its_reason_and_no_figure(tmp_path: Path) -> None:
    old = make_report(folder(tmp_path / "old", lambda _: None))
    assert "host-pace" not in {each.key for each in other_tables(old)}
    unknown = HostPace(problem="CPU 7 may not be used by this process: Invalid argument")
    assert paces([seen(unknown, unknown)]) is None
    some = [seen(80.0, 80.0), seen(unknown, unknown, batch=1)]
    found = paces(some)
    assert found.run.n == 1
    assert without_pace(some) == (f"CPU speed check not done: {unknown.problem}",)


def test_the_reason_stands_in_the_report(tmp_path: Path) -> None:
    path = folder(tmp_path, lambda _: (80.0, 80.0))
    for file in path.glob("quick.*.json"):
        with changing(file) as made:
            made["mnb"]["host_pace"] = {"0": {at: {"problem": "CPU 7 may not be used"} for at in ("before", "after")}}
    report = make_report(path)
    assert [at.text for at in details(report) if at.name == "note"] == [
        "CPU speed check not done: CPU 7 may not be used"
    ]


def test_another_library_is_another_computation() -> None:
    other = edge(200.0, library="zlib 2")
    both = [seen(80.0, 80.0), seen(other, other, batch=1)]
    found = paces(both)
    assert (found.run.n, found.run.max) == (1, 80.0)
    assert without_pace(both) == ("CPU speed checks made with zlib 2 are left out",)


def test_summaries_and_baselines_carry_it_and_older_ones_are_read(tmp_path: Path) -> None:
    summary = load(folder(tmp_path / "run", lambda _: (80.0, 80.0)))
    assert summary.host_pace is not None
    assert decode_summary(encode_summary(summary).encode(), "run").host_pace == summary.host_pace
    assert as_baseline(summary, ()).host_pace == summary.host_pace
    old = json.loads(encode_summary(summary))
    del old["host_pace"]
    assert decode_summary(json.dumps(old).encode(), "old").host_pace is None


@pytest.mark.parametrize("bad", [{"sessions": {}}, {"devices": {}}, {"run": {"n": 0}}, {"run": {"median": 0}}])
def test_a_summary_of_others_with_an_impossible_pace_is_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    made = json.loads(encode_summary(load(folder(tmp_path / "run", lambda _: (80.0, 80.0)))))
    made["host_pace"] |= {key: (made["host_pace"][key] | value if value else value) for key, value in bad.items()}
    with pytest.raises(InputError, match="not a summary"):
        decode_summary(json.dumps(made).encode(), "made")


def test_two_hosts_whose_paces_differ_are_told_apart(tmp_path: Path) -> None:
    slow = folder(tmp_path / "slow", lambda _: (70.0, 70.0))
    fast = folder(tmp_path / "fast", lambda _: (80.0, 80.0))
    same = folder(tmp_path / "same", lambda _: (79.0, 79.0))
    told = make_report(slow, compare_to=[str(fast), str(same)]).comparisons
    assert [(one.what, one.run, one.baseline) for one in told[0].differences] == [
        ("CPU speed check", "70.0 MB/s per CPU", "80.0 MB/s per CPU")
    ]
    (again,) = make_report(fast, compare_to=[str(same)]).comparisons
    assert again.differences == ()


def test_json_and_csv_have_it(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path / "run", lambda launch: (80.0 - launch.devices[0],) * 2))
    assert json.loads(json.dumps(msgspec.to_builtins(as_json.as_object(report)["host_pace"])))["run"]["median"] == 79.5
    as_csv.write_all(report, tmp_path / "tables")
    rows = (tmp_path / "tables" / "host-pace.csv").read_text().splitlines()
    assert rows[0].startswith("cores of,launch groups,median (MB/s per CPU),")
    assert [row.split(",")[:3] for row in rows[1:]] == [
        ["all", "3", "79.5"],
        ["device 0", "3", "80.0"],
        ["device 1", "3", "79.0"],
    ]


def test_a_batch_whose_pace_moved_is_a_flag_of_its_launch(tmp_path: Path) -> None:
    path = folder(tmp_path, lambda launch: (80.0, 70.0) if launch.job_id == "1.1" else (80.0, 79.0))
    row = load(path).tests["quick.vae"]
    (flag,) = row.flags
    assert (flag.job_id, flag.kind) == ("1.1", "host pace")
    assert flag.detail == "device 1: -12.5%, 80.0 MB/s per CPU before the launch group, 70.0 after"
    assert row.marks == ()


def test_a_median_without_its_bursts_counts_as_not_measured(tmp_path: Path) -> None:
    """Slower cores would show in the bursts, so nothing is believed without them."""
    place = folder(tmp_path, lambda _: (50.0, 100.0))
    for file in place.glob("quick.*.json"):
        with changing(file) as made:
            for share in made["mnb"]["host_pace"].values():
                for one in share.values():
                    one["bursts"] = []
    summary = load(place)
    assert summary.host_pace is None
    assert "CPU speed checks without recorded bursts are left out" in summary.notes


@pytest.mark.parametrize("stated", [81.0, None])
def test_a_median_that_does_not_follow_from_its_bursts_is_damaged(tmp_path: Path, stated: float | None) -> None:
    place = folder(tmp_path, lambda _: (80.0, 80.0))
    file = sorted(place.glob("quick.*.json"))[0]
    with changing(file) as made:
        next(iter(made["mnb"]["host_pace"].values()))["after"]["mb_per_s"] = stated
    (failed,) = load(place).tests["quick.vae"].failed
    assert failed.cause == "unreadable"
    assert f"a CPU speed of {stated} MB/s does not follow from its bursts" in failed.detail
