"""`mnb doctor --rules`: which of a buyer's rules a node keeps before a run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.preflight import planned, rulings_ahead
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device
from milabench_ng.model.profile import Profile
from milabench_ng.node.gpu_conditions import GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu
from milabench_ng.run.planning import dry_run
from milabench_ng.run.planning.dry_run import DryRun
from milabench_ng.run.planning.readiness import Checkup, examine
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules import DataRule, Pin, Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.worker.requests import DataEstimate, Effort

GPUS = tuple(
    Gpu(index=n, uuid=f"GPU-{n}", name="H200", pci_bus_id=f"0000:{n}7:00.0", numa_node=0, memory_bytes=1 << 37)
    for n in range(2)
)


@pytest.fixture(scope="module")
def checkup(tmp_path_factory: pytest.TempPathFactory) -> Checkup:
    """This node, as if it were ready and had two GPUs as they come from the factory, under a kernel that tells all."""
    options = NodeOptions(dataroot=tmp_path_factory.mktemp("data"))
    found = examine(options.request(Profile("", {}, "", "test")))
    assert found.conditions.settings is not None
    empty = dict.fromkeys(field.name for field in msgspec.structs.fields(GpuSettings))
    usual = msgspec.convert(
        empty | {"pci_bus_id": "0", "ecc": True, "power_limit_w": 700.0, "default_power_limit_w": 700.0}, GpuSettings
    )
    host = msgspec.structs.replace(found.conditions.settings.host, command_line="quiet")
    settings = msgspec.structs.replace(found.conditions.settings, host=host, gpus={gpu.uuid: usual for gpu in GPUS})
    return msgspec.structs.replace(
        found,
        ready=True,
        reasons=(),
        tier="full",
        inventory=msgspec.structs.replace(found.inventory, gpus=GPUS),
        devices=tuple(Device(index=gpu.index, kind="gpu", uuid=gpu.uuid, name=gpu.name) for gpu in GPUS),
        dataroot=msgspec.structs.replace(found.dataroot, kind="local"),
        conditions=msgspec.structs.replace(found.conditions, settings=settings),
    )


def broken(rules: Rules, checkup: Checkup, plan: DryRun | str | None = None) -> list[str]:
    return [f"{one.id} {one.reasons[0]}" for one in rulings_ahead(rules, checkup, plan) if one.result == "fail"]


def changed(checkup: Checkup, **values: object) -> Checkup:
    """The first GPU set in another way."""
    settings = checkup.conditions.settings
    assert settings is not None
    other = msgspec.structs.replace(settings.gpus["GPU-0"], **values)
    settings = msgspec.structs.replace(settings, gpus=settings.gpus | {"GPU-0": other})
    return msgspec.structs.replace(checkup, conditions=msgspec.structs.replace(checkup.conditions, settings=settings))


def in_state(checkup: Checkup, *of_gpus: str, **values: object) -> Checkup:
    """These GPUs tell these values, and no other."""
    names = (field.name for field in msgspec.structs.fields(GpuState))
    state = msgspec.convert(dict.fromkeys(names) | {"throttled_ns": {}} | values, GpuState, strict=False)
    conditions = msgspec.structs.replace(checkup.conditions, gpus=dict.fromkeys(of_gpus, state))
    return msgspec.structs.replace(checkup, conditions=conditions)


def test_a_node_that_keeps_the_shipped_rules(checkup: Checkup) -> None:
    assert broken(load_rules("standard"), checkup) == []


def test_each_rule_says_what_breaks_it_and_what_to_do(checkup: Checkup) -> None:
    rules = load_rules("standard")
    root = msgspec.structs.replace(checkup.dataroot, kind="memory", path="/data", filesystem="tmpfs")
    held = msgspec.structs.replace(checkup, tier="partial", dataroot=root, devices=checkup.devices[:1])
    found = broken(msgspec.structs.replace(rules, gpus=8, least_version="99.0"), changed(held, ecc=False))
    assert found[0].startswith("R16 isolation here is partial")
    assert found[1] == "R20 /data is on tmpfs (memory), which the rules refuse. Name another folder with --dataroot"
    assert found[2].startswith("R23 GPU 1 (H200) would not be used. Leave out --gpus")
    assert found[3].startswith("R24 off on GPU-0. Run nvidia-smi -i GPU-0 -e 1")
    assert found[4].startswith("R33 this is ")
    assert len(found) == 5
    (few,) = broken(Rules(gpus=8), checkup)
    assert few.startswith("R23 found 2 GPUs. Offer a node with 8")
    cut = [msgspec.structs.replace(one, kind="mig", name=f"{one.name} MIG 7g.141gb") for one in checkup.devices]
    (instances,) = broken(Rules(whole_gpus=True), msgspec.structs.replace(checkup, devices=tuple(cut)))
    assert instances.startswith("R23 H200 MIG 7g.141gb, H200 MIG 7g.141gb are parts of GPUs. Run nvidia-smi -mig 0")
    (power,) = broken(rules, changed(checkup, power_limit_w=500.0))
    assert power == "R25 GPU-0 has 500 W instead of its default 700 W. Run nvidia-smi -i GPU-0 -pl 700"
    (alone,) = broken(rules, in_state(checkup, "GPU-0", foreign_pids=[17]))
    assert alone == "R26 processes 17 use GPU-0. Stop them"


def test_a_profile_that_cannot_be_run_breaks_r6(checkup: Checkup) -> None:
    assert broken(Rules(), checkup, "standard: the datasets need 300 GiB") == ["R6 standard: the datasets need 300 GiB"]


NOTHING = DataEstimate(id=1, efforts=(), free_bytes=1 << 40, processes=16)


def plan_of(*suites: str, changed: tuple[str, ...] = ()) -> DryRun:
    planned: Any = SimpleNamespace(plan=SimpleNamespace(measured=tuple(SimpleNamespace(suite=one) for one in suites)))
    unread: Any = None
    return DryRun(
        planned=planned, data=(), to_generate=NOTHING, backend="", tier="full", duration=unread, changed=changed
    )


def test_a_library_that_was_changed_breaks_r21_of_the_closed_division(checkup: Checkup) -> None:
    plan = plan_of(changed=("torch 2.15.0 was changed after installation (/site/torch/x.py)",))
    assert broken(Rules(closed=True), checkup, plan) == [f"R21 {plan.changed[0]}"]
    assert broken(Rules(), checkup, plan) == []


def test_less_data_than_the_rules_need_breaks_r19_whoever_asked_for_it(checkup: Checkup) -> None:
    plan = msgspec.structs.replace(plan_of(), data=(("mnist", 0.02),))
    rules = Rules(data={"*": DataRule(scale=1.0)})
    assert broken(rules, checkup, plan) == ["R19 mnist has scale 0.02, but the rules need 1. Pass --data-scale 1"]


def test_r19_is_open_until_the_datasets_are_there(checkup: Checkup) -> None:
    rules, there = Rules(data={"*": DataRule(scale=1.0)}), msgspec.structs.replace(plan_of(), data=(("mnist", 1.0),))
    effort = Effort(name="mnist", scale=1.0, files=4, bytes=3 << 30, seconds=60.0)
    empty = msgspec.structs.replace(there, to_generate=msgspec.structs.replace(NOTHING, efforts=(effort,)))
    found = [
        next(one for one in rulings_ahead(rules, checkup, plan) if one.id == "R19")
        for plan in (there, empty, "no such profile", None)
    ]
    assert [one.result for one in found] == ["pass", "open", "open", "open"]
    assert "GiB to generate: mnist" in found[1].reasons[0]


def test_a_node_without_gpus_breaks_r23(checkup: Checkup) -> None:
    bare = msgspec.structs.replace(checkup, inventory=msgspec.structs.replace(checkup.inventory, gpus=()), devices=())
    assert broken(Rules(every_gpu=True), bare) == ["R23 no GPU found. Check the driver with nvidia-smi or amd-smi"]


def test_only_suites_without_weights_break_r15(checkup: Checkup) -> None:
    plan = plan_of("unweighed", "unweighed")
    (found,) = broken(Rules(margin=0.02), checkup, plan)
    assert (
        found == "R15 suite unweighed has no official weights, so there is no score. Ask the buyer to pin weights "
        "in the rules "
        "(suite_weights)"
    )
    pinned = Rules(margin=0.02, suite_weights={"unweighed": Pin(sha256="0" * 64)})
    assert broken(pinned, checkup, plan) == broken(Rules(), checkup, plan) == []
    assert broken(Rules(margin=0.02), checkup, plan_of("standard", "unweighed")) == []


def test_without_a_gpu_the_rules_on_gpus_stay_open(checkup: Checkup) -> None:
    bare = msgspec.structs.replace(checkup, inventory=msgspec.structs.replace(checkup.inventory, gpus=()))
    found = rulings_ahead(Rules(ecc=True, mitigations=True), bare, None)
    assert [(one.id, one.result, one.reasons) for one in found] == [
        ("node", "pass", ()),
        ("R24", "open", ("the node has no GPU",)),
        ("R25", "pass", ()),
    ]


SILENT = "GPU-0 does not report ECC. Ask the buyer for rules that do not require it"


def test_instances_of_one_board_are_one_gpu(checkup: Checkup) -> None:
    cut = tuple(msgspec.structs.replace(gpu, uuid=f"MIG-{gpu.index}", mig=True, parent="GPU-0") for gpu in GPUS)
    instances = msgspec.structs.replace(checkup, inventory=msgspec.structs.replace(checkup.inventory, gpus=cut))
    one = {one.title: one for one in rulings_ahead(Rules(gpus=1, ecc=True), instances, None)}
    assert (one["the node has 1 GPU"].result, one["ECC is on"].result) == ("pass", "pass")
    two = {one.title: one for one in rulings_ahead(Rules(gpus=2, ecc=True), changed(instances, ecc=None), None)}
    assert [problem.partition(".")[0] for problem in two["the node has 2 GPUs"].reasons] == ["found 1 GPU"]
    assert two["ECC is on"].reasons == (SILENT,)


def test_what_gpus_do_not_tell_breaks_the_rule(checkup: Checkup) -> None:
    rules = Rules(ecc=True, default_power=True, foreign_refused=True)
    found = {one.title: one for one in rulings_ahead(rules, changed(checkup, ecc=None), None)}
    assert found["ECC is on"].reasons == (SILENT,)
    assert found["no other processes on the GPUs"].reasons == ()
    quiet = in_state(checkup, "GPU-0", "GPU-1")
    found = {one.title: one for one in rulings_ahead(rules, quiet, None)}
    assert found["no other processes on the GPUs"].reasons[0].startswith("GPU-0 does not report its processes")
    assert found["ECC is on"].reasons == ()


def test_the_folder_that_doctor_runs_in_need_take_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: object) -> None:
        raise InputError("everything before it was in order")

    monkeypatch.setattr(dry_run, "serving", begin)
    monkeypatch.chdir("/proc")
    found = planned(Rules(profile=Pin(name="quick")), NodeOptions(dataroot=tmp_path))
    assert found == "everything before it was in order"


def test_a_node_that_cannot_sign_says_so_and_breaks_nothing(
    checkup: Checkup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_signing() -> Ruling:
        return next(one for one in rulings_ahead(Rules(signed=True), checkup, None) if one.id == "R2")

    (tmp_path / "ssh-keygen").touch(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert of_signing().result == "pass"
    (tmp_path / "ssh-keygen").unlink()
    assert of_signing().result == "open"
    assert of_signing().reasons[0].startswith("ssh-keygen is not installed. ")
