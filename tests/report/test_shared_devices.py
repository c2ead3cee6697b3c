"""Several tenants on each device: marked, never compared with one, and side by side in a table. Runs are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import device

from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.plan import Launch, Plan, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import build_profile
from milabench_ng.present.render.as_json import as_object
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.tables import other_tables
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, make_report
from milabench_ng.tender.acceptance import Acceptance, accept
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify

PROFILE = {"one": {"workload": "vae"}, "other": {"workload": "toy_reg"}}


def plan(per_device: int, **options: Any) -> Plan:
    made = build_profile("k", PROFILE, "{}", "k.json")
    resolved = {
        name: ResolvedOptions(make_records.arguments_of(test.workload) | options) for name, test in made.tests.items()
    }
    return make_plan(made, resolved, [device(0), device(1)], 2, slots_per_device=per_device)


def rate(launch: Launch, _: int) -> float:
    """A device does 1000 items/s alone, 1200 between two; its second tenant gets less."""
    if launch.slots is msgspec.UNSET:
        return 1000.0
    return 700.0 if launch.slot_ids[0].endswith("a") else 500.0


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By the number of tenants on each device."""
    made = {count: tmp_path_factory.mktemp(f"k{count}") for count in (1, 2)}
    for count, folder in made.items():
        make_records.write_run(folder, plan(count), rate, slices=24)
    return made


def compared(folders: dict[int, Path]) -> Report:
    return make_report(folders[1], compare_to=[str(folders[2])])


def test_they_are_marked(folders: dict[int, Path]) -> None:
    report = make_report(folders[2])
    assert [mark.text for mark in report.summary.tests["k.one"].marks] == ["2 tenants shared each GPU, in turns"]
    assert "2 tenants shared each GPU, in turns" in str(first_screen(report).alarms)
    (line, _) = report.lines
    assert (line.row.devices, line.node_total) == (4, pytest.approx(2400, rel=1e-3))
    assert not make_report(folders[1]).summary.tests["k.one"].marks


def test_with_a_daemon_they_shared_it_through_mps(folders: dict[int, Path], tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(2), rate)
    text = (tmp_path / "run.json").read_text()
    assert '"mps":null' in text
    (tmp_path / "run.json").write_text(text.replace('"mps":null', '"mps":"/tmp/nvidia-mps, process 7"'))
    (mark,) = make_report(tmp_path).summary.tests["k.one"].marks
    assert mark.text == "2 tenants shared each GPU, through MPS"
    found = make_report(folders[2], compare_to=[str(tmp_path)]).comparisons[0]
    assert {each.what for each in found.differences if each.ratio == "suppressed"} == {"tenants on each device"}


def test_no_ratio_is_made_of_one_tenant_and_two(folders: dict[int, Path]) -> None:
    found = compared(folders).comparisons[0]
    (why,) = [each for each in found.differences if each.what == "tenants on each device"]
    assert (why.run, why.baseline, why.ratio) == ("1", "2 (GPU, in turns)", "suppressed")
    assert all(row.perf_ratio is None for row in found.rows.values())
    again = make_report(folders[2], compare_to=[str(folders[2])]).comparisons[0]
    assert all(row.perf_ratio == pytest.approx(1.0) for row in again.rows.values()), "of the same number there is one"


def test_the_table_has_the_node_each_tenant_and_the_worst(folders: dict[int, Path]) -> None:
    report = compared(folders)
    assert [(line.test, line.tenants) for line in report.shared_devices] == [
        ("k.one", 1),
        ("k.one", 2),
        ("k.other", 1),
        ("k.other", 2),
    ]
    alone, shared = report.shared_devices[:2]
    assert (alone.node_total, alone.gain, alone.each) == (pytest.approx(2000, rel=1e-3), 1.0, alone.worst)
    assert (shared.node_total, shared.gain) == (pytest.approx(2400, rel=1e-3), pytest.approx(1.2, rel=1e-3))
    assert (shared.each, shared.worst) == (pytest.approx(600, rel=1e-3), pytest.approx(500, rel=1e-3))
    (table,) = [section for section in other_tables(report) if section.key == "shared-devices"]
    assert [row[2] for row in table.rows] == [None, "GPU, in turns"] * 2
    assert [line.tenants for line in as_object(report)["shared_devices"]] == [1, 2, 1, 2]
    assert make_report(folders[1]).shared_devices == (), "one run has nothing beside it"


def accepted(bid: Path, delivered: Path) -> Acceptance:
    return accept(load(bid), load(delivered), {"k": {"k.one": 1.0, "k.other": 1.0}}, 0.97)


def test_the_devices_that_were_delivered_are_counted_not_their_tenants(folders: dict[int, Path]) -> None:
    fewer, same = accepted(folders[2], folders[1]), accepted(folders[2], folders[2])
    assert (fewer.verdict, fewer.reasons) == ("inconclusive", ())
    assert {test.why for test in fewer.tests} == {"other work, or not known to be the same: tenants on each device"}
    assert (same.verdict, same.score.ratio) == ("inconclusive", pytest.approx(1.0))
    assert {(mark.side, mark.mark.kind) for mark in same.marks} == {
        ("bid", "shared devices"),
        ("delivered", "shared devices"),
    }


def test_a_price_per_gpu_is_that_of_all_its_tenants(folders: dict[int, Path], tmp_path: Path) -> None:
    weights = tmp_path / "k.json"
    weights.write_text('{"k.one": {"weight": 1}, "k.other": {"weight": 1}}')
    of_node = make_report(folders[2], weights=weights, options=ReportOptions(price=2000.0)).price
    of_gpu = make_report(folders[2], weights=weights, options=ReportOptions(price=1000.0, price_per="gpu")).price
    assert (of_gpu.per_node, of_gpu.rpp) == (2000.0, pytest.approx(of_node.rpp))


def test_another_batch_has_no_gain(folders: dict[int, Path], tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(2, batch_size=32), rate)
    lines = make_report(folders[1], compare_to=[str(tmp_path)]).shared_devices
    assert [line.gain for line in lines if line.tenants == 2] == [None, None]


def test_the_rules_know_tenants_that_share_a_device(folders: dict[int, Path]) -> None:
    found = verify(folders[2], load_rules(None))
    assert found.facts["departures"] == "2 tenants shared each GPU, in turns (at worst; 2 of 2 tests)"
    assert [(ruling.id, ruling.reasons) for ruling in found.rulings if ruling.result == "fail"] == []


def test_a_plan_of_one_tenant_is_not_that_of_two(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(2), rate)
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace(',"slots_per_device":2', ""))
    broken = {ruling.id for ruling in verify(tmp_path, load_rules(None)).rulings if ruling.result == "fail"}
    assert "R8" in broken
