"""What a run read of its code, data and settings: each attack on it is found by a rule, and honest runs keep all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from evidence_attacks import older_ledger
from run_attacks import ATTACKS, import_path, patched_meter, torch_without_record
from tampering import NONCE, WHOLE, environment, host, manifest, proof, record, records

from milabench_ng import __version__
from milabench_ng.model.known_twins import KnownTwin, encode_known
from milabench_ng.records.late_steps import late_steps
from milabench_ng.verification import verify as verifying
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules import DataRule, Rules
from milabench_ng.verification.verify import verify

CLOSED = Rules(closed=True, nonce=NONCE, data={"*": DataRule(kind="twin")})
PROVEN = ("R19", "R21", "R31")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound") / "results"
    make_records.write_run(folder, WHOLE, slices=24)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(sound, tmp_path / "results"))


def rulings(folder: Path, rules: Rules = CLOSED) -> dict[str, Ruling]:
    return {ruling.id: ruling for ruling in verify(folder, rules).rulings}


def results(folder: Path, rules: Rules = CLOSED) -> list[str]:
    found = rulings(folder, rules)
    return [found[rule].result for rule in PROVEN]


def trusted(content: dict[str, Any]) -> None:
    content["mnb"]["marks"] = [{"kind": "data not read again", "what": content["mnb"]["data"]["name"]}]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_found(attack: str, folder: Path) -> None:
    rule, tamper, reason = ATTACKS[attack]
    assert results(folder) == ["pass"] * 3
    tamper(folder)
    assert reason in tampering.told_by(verify(folder, CLOSED), rule)


def test_torch_without_a_record_cannot_be_compared_unless_its_sum_is_demanded(folder: Path) -> None:
    """Other installers than pip leave none."""
    proof("code", "after", torch_without_record)(folder)
    assert rulings(folder)["R21"].result == "open"
    demanded = msgspec.structs.replace(CLOSED, libraries=("0" * 64,))
    assert rulings(folder, demanded)["R21"].result == "fail"


def test_what_is_listed_belongs_to_the_closed_division(folder: Path) -> None:
    """A library path of the system, too: whoever can put a library there needs no variable for it."""
    record(environment(TORCH_CUDA_ARCH_LIST="9.0a", NVIDIA_PRODUCT_NAME="CUDA"))(folder)
    record(environment(NCCL_IB_HCA="mlx5", CUDA_VISIBLE_DEVICES="GPU-1", NVIDIA_VISIBLE_DEVICES="all"))(folder)
    record(environment(LD_LIBRARY_PATH="/usr/local/nvidia/lib64:/usr/local/nvidia/lib"))(folder)
    assert results(folder) == ["pass"] * 3


@pytest.mark.parametrize(
    "line",
    [
        (
            "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-5.14.0 root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M "
            "resume=/dev/mapper/rhel-swap rd.lvm.lv=rhel/root rhgb quiet"
        ),
        (
            "BOOT_IMAGE=(hd0,gpt3)/boot/ostree/fedora-coreos/vmlinuz rw mitigations=auto,nosmt ostree=/ostree/boot.1 "
            "ignition.platform.id=openstack $ignition_firstboot console=tty0 root=UUID=1 rootflags=prjquota boot=UUID=2"
        ),
        "root=LABEL=cloudimg-rootfs ro console=tty1 console=ttyS0 nofb nomodeset gfxpayload=text net.ifnames=0",
        (
            "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro quiet rd.driver.blacklist=nouveau pci=realloc=off "
            "nvme-core.multipath=n iommu=pt earlyprintk=ttyS1 numa_balancing=disable nvidia-drm.modeset=0"
        ),
        (
            "BOOT_IMAGE=/vmlinuz root=UUID=1 ro console=tty0 iommu=pt mitigations=auto,nosmt tsc=reliable "
            "page_reporting.page_reporting_order=11 deferred_init=lazy nested_pvm=1 memhp_default_state=online_kernel "
            "driver_async_probe=mlx5_core fc_dmapin=0xeebe0000,0x3000 -- --own=1"
        ),
    ],
    ids=["RHEL", "CoreOS", "OpenStack", "DGX", "Firecracker"],
)
def test_what_installers_set_raises_no_doubt(line: str, folder: Path) -> None:
    record(host(command_line=line, clock_source="tsc"))(folder)
    assert verify(folder, CLOSED).doubts == ()


@pytest.mark.parametrize(
    ("container", "mount", "doubted"),
    [
        ("lxc", "fuse.lxcfs on /proc/stat", False),
        ("lxc", "fuse.lxcfs on /sys/devices/system/cpu", False),
        ("lxc", "fuse.lxcfs on /proc/cmdline", True),
        ("lxc", "fuse.lxcfs /x on /proc/stat", True),
        (None, "fuse.lxcfs on /proc/stat", True),
    ],
)
def test_lxcfs_is_usual_in_containers_over_its_own_files(
    folder: Path, container: str | None, mount: str, doubted: bool
) -> None:
    manifest(lambda content: content["inventory"].update(container=container))(folder)
    record(host(covered=[mount]))(folder)
    said = f"a file of the kernel is hidden by a mount: {mount}" if doubted else ""
    assert tampering.told_by(verify(folder, CLOSED), "tuned-kernel") == said


def test_where_modules_lay_decides_nothing(folder: Path) -> None:
    """What was imported is compared by content, so that mnb may be begun in any folder."""
    manifest(import_path)(folder)
    assert results(folder) == ["pass"] * 3


def test_code_of_another_commit_is_not_checkable_unless_the_closed_division_is_demanded(folder: Path) -> None:
    assert rulings(folder, Rules())["R21"].result == "not required"
    for edge in ("before", "after"):
        proof("code", edge, patched_meter)(folder)
    found = rulings(folder, Rules())["R21"]
    assert found.result == "open"
    assert found.reasons[0].startswith(f"another commit of mnb {__version__}, or changed: bench")
    assert found.reasons[0].endswith(f"it names no commit of mnb {__version__}: ask for it, and verify with that")
    assert rulings(folder)["R21"].result == "fail"


def test_the_commit_that_ran_is_told_and_to_be_checked_out(folder: Path) -> None:
    def committed(event: dict[str, Any]) -> None:
        patched_meter(event)
        event["code"]["commit"] = "0" * 40

    for edge in ("before", "after"):
        proof("code", edge, committed)(folder)
    said = f"check out commit {'0' * 40} of mnb, without files of your own (git status), and verify with that"
    assert rulings(folder, Rules())["R21"].reasons[0].endswith(said)
    assert said in " ".join(rulings(folder)["R21"].reasons)
    assert verify(folder, Rules()).facts["commit"] == "0" * 40


def test_the_buyer_may_list_more(folder: Path) -> None:
    record(environment(PYTORCH_ALLOC_CONF="x"))(folder)
    record(host(command_line="isolcpus=1-3 nohz_full=1-3", clock_source="hpet"))(folder)
    strict, lax = CLOSED, msgspec.structs.replace(CLOSED, listed=("PYTORCH_ALLOC_CONF", "isolcpus=1-3", "hpet"))
    assert (len(rulings(folder)["R31"].reasons), len(verify(folder, strict).doubts[0].reasons)) == (1, 3)
    assert results(folder, lax) == ["pass"] * 3
    assert verify(folder, lax).doubts[0].reasons == ("the kernel was started with nohz_full=1-3",)


def test_the_buyer_may_pin_all_libraries(folder: Path) -> None:
    shown = re.search("[0-9a-f]{64}", verify(folder, CLOSED).facts["libraries"])
    known, other = (msgspec.structs.replace(CLOSED, libraries=("1" * 64, *sums)) for sums in ((shown[0],), ()))
    assert results(folder, known) == ["pass"] * 3
    assert "which is not among those demanded" in rulings(folder, other)["R21"].reasons[0]


def test_a_launch_tells_its_late_steps_if_its_session_does(tmp_path: Path) -> None:
    """Earlier versions had none; ``vae`` is a test that trains, and whose steps reach 128 to 255."""
    make_records.write_run(tmp_path / "r", WHOLE, slices=60)

    def late(content: dict[str, Any]) -> None:
        for step in late_steps(NONCE, content["mnb"]["label"]):
            for rank in content["mnb"]["ranks"] if step <= 300 else ():
                rank["losses"][str(step)] = rank["gradient_norms"][str(step)] = 1.0

    def forgotten(content: dict[str, Any]) -> None:
        del content["mnb"]["ranks"][0]["losses"][str(late_steps(NONCE, "standard.vae")[0])]

    assert rulings(tmp_path / "r")["R33"].result == "pass"
    records(late)(tmp_path / "r")
    assert rulings(tmp_path / "r")["R33"].result == "pass"
    record(forgotten)(tmp_path / "r")
    step = late_steps(NONCE, "standard.vae")[0]
    assert f"rank 0 has no loss at step {step}" in rulings(tmp_path / "r")["R33"].reasons[0]


def test_trusted_data_is_refused_where_it_is_demanded(folder: Path) -> None:
    records(trusted)(folder)
    for edge in ("before", "after"):
        proof("data", edge, None)(folder)
    assert "(--skip-data-check), but rules require it" in rulings(folder)["R19"].reasons[0]
    assert rulings(folder, Rules(closed=True))["R19"].result == "pass"
    assert rulings(folder, Rules(marks_refused=True))["R22"].result == "fail"


def test_a_twin_that_is_known_to_be_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownTwin(name="imagenet", scale=1.0, generator=1, libraries={"numpy": "2"}, checksum="7" * 64)
    monkeypatch.setattr(verifying, "read_known", lambda: (known,))
    found = "imagenet has SHA-256 555555555555, but its generator makes 777777777777"
    assert rulings(folder)["R19"].reasons == (found,)
    other = msgspec.structs.replace(known, libraries={"numpy": "3"})
    monkeypatch.setattr(verifying, "read_known", lambda: (other,))
    assert results(folder) == ["pass"] * 3
    again = msgspec.structs.replace(known, checksum="8" * 64)
    assert msgspec.json.decode(encode_known([known, other, again]), type=list[KnownTwin]) == [again, other]


@pytest.mark.parametrize(
    ("differing", "why"),
    [
        ({"libraries": {"numpy": "2", "pillow": "13"}}, "known with pillow 13, the run had pillow none"),
        ({"libraries": {"numpy": "3"}}, "known with numpy 3, the run had numpy 2"),
        ({"generator": 2}, "known of generator 2, the run had 1"),
        ({"scale": 0.5}, "none is known at scale 1"),
        ({"name": "mnist"}, "none is known"),
    ],
)
def test_the_verdict_tells_which_twins_were_not_compared_and_why(
    folder: Path, differing: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes up versions of libraries evades the comparison, and is seen to, unless the content is a known one."""
    known = KnownTwin(name="imagenet", scale=1.0, generator=1, libraries={"numpy": "2"}, checksum=make_records.CHECKSUM)
    monkeypatch.setattr(verifying, "read_known", lambda: (known,))
    assert "twins" not in verify(folder, Rules()).facts
    other = msgspec.structs.replace(known, **differing, checksum="7" * 64)
    monkeypatch.setattr(verifying, "read_known", lambda: (other,))
    told = f"not compared with known ones: imagenet ({why})"
    assert verify(folder, Rules()).facts["twins"] == told
    monkeypatch.setattr(verifying, "read_known", lambda: (other, known))
    assert "twins" not in verify(folder, Rules()).facts, "the nearest counts"
    same = msgspec.structs.replace(known, libraries={"numpy": "3"})
    monkeypatch.setattr(verifying, "read_known", lambda: (same,))
    assert "twins" not in verify(folder, Rules()).facts, "equal bytes, whatever made them"


def test_a_twin_with_made_up_libraries_in_one_session_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownTwin(name="imagenet", scale=1.0, generator=1, libraries={"numpy": "2"}, checksum="7" * 64)
    monkeypatch.setattr(verifying, "read_known", lambda: (known,))
    proof("data", "after", lambda event: event["data"].update(libraries={"numpy": "9" * 200}))(folder)
    told = verify(folder, Rules()).facts["twins"]
    assert told.startswith("not compared with known ones: imagenet (known with numpy 2, the run had numpy 999")
    assert len(told) < 200
    for edge in ("before", "after"):
        proof("data", edge, None)(folder)
    assert verify(folder, Rules()).facts["twins"].endswith("imagenet (no session read it)")
    manifest(lambda content: content.update(version="0.0.1"))(folder)
    assert verify(folder, Rules()).facts["twins"].endswith("imagenet (the run is of mnb 0.0.1)")


@pytest.mark.parametrize(
    ("edges", "result"), [(("before", "after"), ["pass"] * 3), (("before",), ["fail", "fail", "pass"])]
)
def test_a_session_that_was_killed_is_no_failure_if_a_later_one_ended_well(
    edges: tuple[str, ...], result: list[str], folder: Path
) -> None:
    """The second had nothing to do, and read code and data at these edges."""
    for kind in ("code", "data"):
        proof(kind, "after", None)(folder)
    tampering.add_session(folder, [event for edge in edges for event in make_records.proofs(edge)])  # type: ignore[arg-type]
    assert results(folder) == result


def test_a_run_of_another_version_is_not_asked_for_what_it_could_not_read(folder: Path) -> None:
    def older(content: dict[str, Any]) -> None:
        content.get("mnb", content)["version"] = "0.2.0"

    for path in folder.glob("*.json"):
        tampering.rewrite(path, older)
    make_records.write_ledger(folder, WHOLE)
    for what in ("code", "data"):
        for edge in ("before", "after"):
            proof(what, edge, None)(folder)
    assert rulings(folder)["R19"].result == "pass"
    assert rulings(folder)["R21"].reasons[0].startswith("made with mnb 0.2.0")


def test_a_run_of_before_sessions_said_what_they_read_is_asked_by_closed_rules_only(folder: Path) -> None:
    older_ledger(folder)
    assert rulings(folder, Rules())["R19"].result == "pass"
    assert results(folder) == ["fail", "fail", "pass"]
    kept = tampering.ledger_events(folder)
    kept[0][1]["schema"] = 2
    tampering.write_events(folder, kept)
    assert rulings(folder, Rules())["R19"].result == "fail"
