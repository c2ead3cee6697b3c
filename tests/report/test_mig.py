"""Unequal MIG instances of one GPU: what they cost each other, and what the rules make of their shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering

from milabench_ng.analysis.summary.comparable import differences
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.plan import Device, Launch, Plan, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import build_profile
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify

PROFILE = {
    "alone": {"workload": "vae", "company": "none"},
    "together": {"workload": "vae"},
}
INSTANCES = [
    Device(index=i, kind="mig", uuid=f"GPU-{i}", name=f"H200 MIG {slices}g.71gb", numa_node=0, part=slices / 7)
    for i, slices in enumerate((3, 4))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The larger instance is faster; packed, each is 1.25 times slower."""
    monkeypatch.setattr(make_records, "device", INSTANCES.__getitem__)

    def rate(launch: Launch, _: int) -> float:
        whole_batches = 640 * (3 + launch.devices[0])
        return whole_batches / (1.25 if launch.test == "m.together" else 1.0)

    make_records.write_run(tmp_path, plan(), rate)
    return tmp_path


def plan() -> Plan:
    made = build_profile("m", PROFILE, "{}", "m.json")
    options = {name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in made.tests.items()}
    return make_plan(made, options, INSTANCES, 3)


def ruling_on(folder: Path, gpus: int) -> tuple[str, ...]:
    """What R23 says of a demand for so many GPUs."""
    return next(one.reasons for one in verify(folder, Rules(gpus=gpus)).rulings if one.id == "R23")


def broken(folder: Path) -> dict[str, tuple[str, ...]]:
    return {one.id: one.reasons for one in verify(folder, load_rules(None)).rulings if one.result == "fail"}


def test_what_instances_cost_each_other_is_the_slowdown_of_each(folder: Path) -> None:
    report = make_report(folder)
    (packed,) = report.neighbours
    assert (packed.value, packed.fairness) == (pytest.approx(1.25, rel=5e-3), pytest.approx(1.0, rel=5e-3))
    assert report.summary.models == {"0": "H200 MIG 3g.71gb", "1": "H200 MIG 4g.71gb"}
    assert not report.gpus.stragglers, "the smaller instance is another model, not a slow device"
    assert not broken(folder).keys() & {"R16", "R27"}


def test_instances_are_devices_and_their_board_one_gpu(folder: Path) -> None:
    def of_one_board(content: dict[str, Any]) -> None:
        for gpu in content["inventory"]["gpus"]:
            gpu["parent"] = "GPU-whole"

    tampering.manifest(of_one_board)(folder)
    assert (load(folder).devices, load(folder).node_devices) == (2, 2)
    reasons = {gpus: ruling_on(folder, gpus) for gpus in (1, 2)}
    assert reasons == {1: (), 2: ("1 GPU worked, 2 required",)}


def test_a_tender_can_demand_whole_gpus(folder: Path) -> None:
    def r23(source: Path) -> tuple[str, tuple[str, ...]]:
        return next((one.result, one.reasons) for one in verify(source, Rules(whole_gpus=True)).rulings[22:23])

    assert r23(folder) == (
        "fail",
        tuple(f"device {at.index} is {at.name}, a part of a GPU, but the rules require whole GPUs" for at in INSTANCES),
    )
    text = (folder / "run.json").read_text()
    text = text.replace('"kind":"mig"', '"kind":"gpu"').replace('"part":', '"parts":')
    (folder / "run.json").write_text(text)
    assert r23(folder)[0] == "fail", "the name says it as well"
    (folder / "run.json").write_text(text.replace(" MIG ", " "))
    assert r23(folder) == ("pass", ())


def test_a_part_that_the_inventory_does_not_know_is_found(folder: Path) -> None:
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace(f'"part":{3 / 7}', f'"part":{1 / 7}'))
    assert "device 0 is 0.143 of a GPU in the plan, and not in the inventory" in broken(folder)["R27"]


def test_the_larger_instance_with_fewer_cpus_is_unfair(folder: Path) -> None:
    def fewer(record: dict[str, Any]) -> None:
        share = record["mnb"]["isolation"].get("1")
        if share is not None:
            for held in (share["requested"], share["effective"], share["effective_end"]):
                held["cpus"] = [2]
            share["proc"]["cpus_allowed"] = [2]

    tampering.records(fewer)(folder)
    tampering.rehash(folder)
    assert any(reason.endswith("its tenants had different numbers of CPUs") for reason in broken(folder)["R16"])


def test_gpus_cut_into_instances_are_not_compared_with_whole_ones(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that the host bounds is as fast on an instance as on a GPU, and there are more instances."""
    other = tmp_path_factory.mktemp("whole")
    monkeypatch.undo()
    make_records.write_run(other, plan(), lambda *_: 640.0)
    whole = load(other)
    whole = msgspec.structs.replace(whole, models=dict.fromkeys(whole.models, "H200"))
    found = {each.what: (each.run, each.baseline, each.ratio) for each in differences(load(folder), whole)}
    assert found["GPUs"] == ("MIG 3g and 4g", "whole", "suppressed")
    assert "GPUs" not in {each.what for each in differences(load(folder), load(folder))}
    assert "GPUs" not in {each.what for each in differences(whole, whole)}
