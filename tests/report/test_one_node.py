"""Launches of two nodes, or with other software, are no repeats of each other, however they came into one folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_node import inventory
from make_records import PER_GPU
from tampering import changing

from milabench_ng.analysis.summary.folder import load
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device
from milabench_ng.records.ledger import Chain, Resumed, Session, Started, extend
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, make_report

REPEAT = 2


def gpus(*uuids: str, models: Sequence[str] = ()) -> list[Device]:
    """GPUs by UUID, of one model unless told."""
    names = models or ["Test GPU"] * len(uuids)
    return [
        Device(index=index, kind="gpu", uuid=uuid, name=name, numa_node=0)
        for index, (uuid, name) in enumerate(zip(uuids, names, strict=True))
    ]


def visible(devices: list[Device]) -> Any:
    """What `run.json` says of these GPUs."""
    return msgspec.to_builtins(inventory(devices).gpus)


def cpus(count: int = 2) -> list[Device]:
    """The devices of a node without a GPU."""
    return [Device(index=index, kind="cpu") for index in range(count)]


def run(
    folder: Path,
    run_id: str,
    devices: list[Device],
    *,
    rate: float = 100.0,
    hostname: str = "node",
    manifest: bool = True,
    software: str = "2.15.0",
    **inventory: Any,
) -> Path:
    """A result folder of a run on ``devices``; ``inventory`` is what else `run.json` says of the node."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU}, len(devices), REPEAT)
    whole = msgspec.structs.replace(whole, devices=tuple(devices))
    if manifest:
        made = make_records.manifest(whole, run_id)
        shown = [gpu for gpu, one in zip(made["inventory"]["gpus"], devices, strict=True) if one.kind == "gpu"]
        made["inventory"] |= {"hostname": hostname, "gpus": shown, "pci_gpus": []} | inventory
        made["software"] = {"torch": software}
        (folder / "run.json").write_text(json.dumps(made))
    for moment, launch in enumerate(whole.launches):
        own = [msgspec.to_builtins(devices[index]) for index in launch.devices]
        made = make_records.record(launch, lambda *_: rate, run_id=run_id, devices=own)
        made["hostname"] = hostname
        make_records.write(folder, made, moment if run_id < "b" else 100 + moment)
    return folder


def test_two_nodes_are_not_two_repeats(tmp_path: Path) -> None:
    run(tmp_path / "both" / "first", "a", gpus("GPU-1", "GPU-2"), hostname="n1")
    run(tmp_path / "both" / "second", "b", gpus("GPU-3", "GPU-4"), rate=200.0, hostname="n2")
    with pytest.raises(InputError) as refused:
        load(tmp_path / "both")
    text = str(refused.value)
    assert text.startswith(f"{tmp_path / 'both'}: first and second are not repeats on one node")
    assert "two nodes, n1 (GPU-1, GPU-2) and n2 (GPU-3, GPU-4)" in text
    assert text.endswith("mnb report FOLDER --compare OTHER")
    report = make_report(tmp_path / "both" / "second", compare_to=[str(tmp_path / "both" / "first")])
    assert report.comparisons[0].rows["quick.vae"].perf_ratio == pytest.approx(2.0)


@pytest.mark.parametrize("manifests", [(False, False), (True, False), (False, True)])
def test_nor_are_they_where_their_records_alone_tell(tmp_path: Path, manifests: tuple[bool, bool]) -> None:
    run(tmp_path, "a", gpus("GPU-1", "GPU-2"), manifest=manifests[0])
    run(tmp_path, "b", gpus("GPU-3", "GPU-4"), manifest=manifests[1])  # the names of their hosts are the same
    with pytest.raises(InputError, match=r"two nodes, node \(GPU-\d, GPU-\d\) and node \(GPU-\d, GPU-\d\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        ["report", "{folder}"],
        ["report", "{folder}", "--html", "{out}"],
        ["report", "{alone}", "--compare", "{folder}"],
        ["summary", "{folder}"],
        ["baseline", "build", "{folder}", "-o", "{out}"],
        ["bundle", "{folder}", "-o", "{out}"],
        ["verify", "{folder}"],
        ["accept", "{alone}", "{folder}", "--guarantee", "0.98"],
        ["bids", "{bids}"],
    ],
)
def test_every_command_refuses_them(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "both", "a", gpus("GPU-1"))
    alone = run(tmp_path / "alone", "b", gpus("GPU-3"))
    run(folder / "second", "b", gpus("GPU-3"))
    bids = tmp_path / "bids.json"
    bids.write_text(json.dumps({"reference": str(alone), "bids": {"acme": {"results": str(folder), "price": 1.0}}}))
    places = {"folder": folder, "alone": alone, "bids": bids, "out": tmp_path / "out"}
    assert call([part.format_map(places) for part in command]) == 2
    told = capsys.readouterr().err
    assert f"{folder}: run a and second are not repeats on one node" in told
    assert not (tmp_path / "out").exists()


def test_a_node_is_known_by_its_gpus_and_not_by_its_name(tmp_path: Path) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1", "GPU-2"), hostname="5f0c1e")
    run(tmp_path / "second", "b", gpus("GPU-1", "GPU-2"), hostname="b7a001", boot_id="another")
    found = make_report(tmp_path)
    assert list(found.lines[0].row.repeats) == ["0", "1", "0#2", "1#2"]
    assert found.coverage == "this node, this session", "no hours lie between them"


def test_a_device_that_was_replaced_is_another(tmp_path: Path) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1", "GPU-2"))
    run(tmp_path / "second", "b", gpus("GPU-1", "GPU-9"))
    with pytest.raises(InputError, match="device 1 was GPU-2 and GPU-9"):
        load(tmp_path)


@pytest.mark.parametrize("manifest", [True, False])
def test_one_gpu_of_several_does_not_stand_for_the_node(tmp_path: Path, manifest: bool) -> None:
    both = gpus("GPU-1", "GPU-2")
    shown = visible(both)
    run(tmp_path / "first", "a", both)
    run(tmp_path / "second", "b", both[:1], gpus=shown, manifest=manifest)
    with pytest.raises(InputError, match=r"they used 2 devices \(0, 1\) and device 0\. Report"):
        load(tmp_path)


def test_nor_do_single_gpus_together(tmp_path: Path) -> None:
    both = gpus("GPU-1", "GPU-2")
    shown = visible(both)
    for name, index in (("a", 0), ("b", 1)):
        run(tmp_path / name, name, both, gpus=shown)
        with changing(tmp_path / name / "run.json") as made:
            made["plan"]["devices"] = made["plan"]["devices"][index : index + 1]
    with pytest.raises(InputError, match="they used device 0 and device 1"):
        load(tmp_path)


def test_another_profile_of_the_same_name_is_another_suite(tmp_path: Path) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1"))
    second = run(tmp_path / "second", "b", gpus("GPU-1"))
    with changing(second / "run.json") as made:
        made["profile"]["sha256"], known = "e" * 64, made["profile"]["sha256"]
    with pytest.raises(InputError, match=f"not repeats on one node: profile quick was {known[:12]} and {'e' * 12}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (
            {"cpus": {"model": "Fast CPU", "sockets": 2, "cores": 256, "threads": 512, "numa_nodes": 2}},
            r"processors: .* and 2 x Fast CPU, 256 cores in all",
        ),
        ({"memory_bytes": 1 << 40}, r"memory: .* and 1.0 TiB"),
        ({"machine": "Other Server"}, "machine: Server and Other Server"),
    ],
)
def test_the_same_gpus_in_another_host_are_another_node(tmp_path: Path, second: dict[str, Any], told: str) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1"), machine="Server")
    run(tmp_path / "second", "b", gpus("GPU-1"), **{"machine": "Server"} | second)
    with pytest.raises(InputError, match=told):
        load(tmp_path)


def test_a_little_less_memory_after_a_reboot_is_the_same_node(tmp_path: Path) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1"), memory_bytes=1000 << 30)
    run(tmp_path / "second", "b", gpus("GPU-1"), memory_bytes=999 << 30, machine=None)
    assert load(tmp_path).tests["quick.vae"].n == 2 * REPEAT


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"boot_id": "after a reboot"}, ""),
        ({"hostname": "container"}, ""),  # its boot id is that of its node
        ({"hostname": "n2", "boot_id": "other"}, "of two nodes"),
        ({"cpus": {"model": "Other CPU", "sockets": 1, "cores": 16, "threads": 16, "numa_nodes": 1}}, "Other CPU"),
        ({"machine": "Other Server"}, "machine: Server and Other Server"),
    ],
)
def test_a_node_without_gpus_is_known_by_its_processors_and_its_name_or_boot(
    tmp_path: Path, second: dict[str, Any], told: str
) -> None:
    run(tmp_path / "first", "a", cpus(), machine="Server")
    run(tmp_path / "second", "b", cpus(), **{"machine": "Server"} | second)
    if told:
        with pytest.raises(InputError, match=told):
            load(tmp_path)
    else:
        assert load(tmp_path).tests["quick.vae"].n == 4 * REPEAT


def test_records_of_2020_are_told_apart_by_their_hosts(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        run(tmp_path / name, name, cpus(), hostname=name, manifest=False)
        for path in (tmp_path / name).glob("*.json"):
            with changing(path) as made:
                del made["mnb"]
        assert load(tmp_path / name).units == "classic"
    with pytest.raises(InputError, match="of two nodes, n1 and n2"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"nvidia_driver": "590.2"}, "driver was 580.1 and 590.2"),
        ({"kernel": "7.0"}, "kernel was 6.18 and 7.0"),
        ({"software": "2.16.0"}, "torch was 2.15.0 and 2.16.0"),
    ],
)
def test_runs_with_other_software_are_not_repeats(tmp_path: Path, second: dict[str, Any], told: str) -> None:
    run(tmp_path / "first", "a", gpus("GPU-1"))
    run(tmp_path / "second", "b", gpus("GPU-1"), **second)
    with pytest.raises(InputError, match=f"not repeats on one node: {told}. Report"):
        load(tmp_path)


def test_two_models_on_one_node_are_not_averaged_over_runs(tmp_path: Path) -> None:
    one, other = gpus("GPU-1", "GPU-2", models=["Small", "Big"])
    shown = visible([one, other])
    run(tmp_path / "first", "a", [one], gpus=shown)
    run(tmp_path / "second", "b", [msgspec.structs.replace(other, index=0)], gpus=shown)
    with pytest.raises(InputError, match="device 0 was GPU-1 and GPU-2; they ran on Small and on Big"):
        load(tmp_path)


def test_a_resume_with_accepted_differences_is_one_run_and_says_so(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "a", gpus("GPU-1", "GPU-2"), hostname="n1")
    later = gpus("GPU-3", "GPU-4")
    for path in folder.glob("*.J1.*"):
        made = json.loads(path.read_text())
        made["mnb"]["devices"] = [msgspec.to_builtins(later[made["device"]])]
        path.write_text(json.dumps(made | {"hostname": "n2"}))
    events = [
        Started(run_id="a", version="1", plan_sha256="", profile_sha256="", launches=8, order="file", nonce=None),
        Session(number=1, hostname="n1", boot_id="x", pid=1, command_line=()),
        Session(number=2, hostname="n2", boot_id="y", pid=1, command_line=()),
        Resumed(missing=4, accepted=("node: hostname was n1 and is n2",)),
    ]
    (folder / "ledger.jsonl").write_bytes(extend(Chain(), "2026-01-06T16:00:00Z", events)[1])
    assert "resumed with another node: hostname was n1 and is n2" in load(folder).notes


def mixed(folder: Path, *, slow: float = 1.0) -> Report:
    """A node with three GPUs of one model, the last of them slow, and one of another that does a quarter."""
    devices = gpus("GPU-1", "GPU-2", "GPU-3", "GPU-4", models=["Big", "Big", "Big", "Small"])
    run(folder, "a", devices)
    factors = {"0": 1.0, "1": 1.002, "2": slow, "3": 0.25}
    for path in folder.glob("*.J*.json"):
        with changing(path) as made:
            for rank in made["mnb"]["ranks"]:
                for row in rank["slices"]:
                    row[2] = round(10_000 * factors[str(made["device"])])
    return make_report(folder, options=ReportOptions(per_gpu=True))


def test_a_node_with_two_models_is_named_and_its_devices_are_held_against_their_like(tmp_path: Path) -> None:
    report = mixed(tmp_path, slow=0.9)
    assert (
        report.summary.notes[0]
        == "devices of several models (3 x Big, 1 x Small): each rate is a mean over different devices"
    )
    assert report.gpus.models == ("Big", "Big", "Big", "Small")
    assert [slow.device for slow in report.gpus.overall] == ["2"]
    assert {slow.device for slow in report.gpus.stragglers} == {"2"}
    assert report.gpus.overall[0].effect_pct == pytest.approx(100 * (0.9 / 1.002**0.5 - 1), abs=1e-9)


def test_of_a_device_without_its_like_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = mixed(tmp_path / "run")
    assert report.gpus.overall == report.gpus.stragglers == ()
    call(["report", str(tmp_path / "run"), "--per-gpu"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "no GPU is significantly slower; " in shown
    assert "; GPU 3 not checked: no other of that model" in shown
    assert "device 3, Small" in shown
