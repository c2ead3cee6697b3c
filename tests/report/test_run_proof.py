"""What a run read of its code, data and settings: each attack on it is found by a rule, and honest runs keep all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from tampering import NONCE, WHOLE, Change, Tamper, everywhere_in_records, manifest, proof, record

from milabench_ng.known_twins import KnownTwin, encode_known
from milabench_ng.report.verification import verify as verifying
from milabench_ng.report.verification.findings import Ruling
from milabench_ng.report.verification.rules import DataRule, Rules
from milabench_ng.report.verification.verify import verify

CLOSED = Rules(closed=True, nonce=NONCE, data={"*": DataRule(kind="twin")})
PROVEN = ("R19", "R21", "R31")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound") / "results"
    make_records.write_run(folder, WHOLE, slices=30)
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


def patched_meter(event: dict[str, Any]) -> None:
    event["code"]["package"]["bench"] = "f" * 64


def module_from_elsewhere(event: dict[str, Any]) -> None:
    event["code"]["elsewhere"] = ["milabench_ng.bench.meter"]


def patched_torch(event: dict[str, Any]) -> None:
    event["code"]["wheels"]["torch"]["differing"] = ["/site/torch/nn/modules/linear.py"]


def torch_without_record(event: dict[str, Any]) -> None:
    event["code"]["wheels"]["torch"] = None


def padded(event: dict[str, Any]) -> None:
    event["data"] |= {"checksum": "6" * 64, "differing": ["train/n01/0.JPEG"]}


def another_set(event: dict[str, Any]) -> None:
    event["data"]["checksum"] = "6" * 64


def put_back(event: dict[str, Any]) -> None:
    event["data"]["changed_s"] += 60.0


def environment(**changes: str) -> Change:
    return lambda content: content["mnb"]["environment"].update(changes)


def host(**changes: Any) -> Change:
    return lambda content: content["mnb"]["conditions"]["before"]["settings"]["host"].update(changes)


def import_path(content: dict[str, Any]) -> None:
    content["import_path"] = ["/venv/bin", "/usr/lib/python3.11", "/evil"]


def trusted(content: dict[str, Any]) -> None:
    content["mnb"]["marks"] = [{"kind": "data not read again", "what": "imagenet"}]


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "bench/meter.py patched": (
        "R21",
        proof("code", "after", patched_meter),
        "not the one here in bench after the work",
    ),
    "patched during the imports and put back": (
        "R21",
        proof("code", "before", patched_meter),
        "session 1: milabench_ng was not the one here in bench before the work",
    ),
    "a module put in by a .pth file": (
        "R21",
        proof("code", "after", module_from_elsewhere),
        "modules of milabench_ng came from elsewhere (milabench_ng.bench.meter)",
    ),
    "torch patched": (
        "R21",
        proof("code", "after", patched_torch),
        "torch 1.0 is not as it was installed: /site/torch",
    ),
    "torch that cannot be compared": ("R21", proof("code", "after", torch_without_record), "torch has no RECORD"),
    "code not read before": ("R21", proof("code", "before", None), "session 1 does not say which code it began with"),
    "code not read after": (
        "R21",
        proof("code", "after", None),
        "the last session did not read its code after the work",
    ),
    "pictures made smaller and padded": (
        "R19",
        proof("data", "after", padded),
        "session 1: imagenet was damaged after the work: train/n01/0.JPEG",
    ),
    "another data set": ("R19", proof("data", "before", another_set), "imagenet has another checksum than was found"),
    "data changed during the work and put back": (
        "R19",
        proof("data", "after", put_back),
        "files of imagenet were changed during the work",
    ),
    "data not read before": ("R19", proof("data", "before", None), "its session did not compare imagenet with its"),
    "data not read after": (
        "R19",
        proof("data", "after", None),
        "the last session did not read imagenet after the work",
    ),
    "a library path": (
        "R31",
        record(environment(LD_LIBRARY_PATH="/evil")),
        "the environment has LD_LIBRARY_PATH=/evil",
    ),
    "a preloaded library": (
        "R31",
        record(environment(LD_PRELOAD="/evil.so")),
        "the environment has LD_PRELOAD=/evil.so",
    ),
    "TF32 forced": (
        "R31",
        record(environment(NVIDIA_TF32_OVERRIDE="1")),
        "open division: the environment has NVIDIA_TF32",
    ),
    "a back end of torch": (
        "R31",
        record(environment(TORCH_DEVICE_BACKEND_AUTOLOAD="1")),
        "the environment has TORCH_DEVICE_BACKEND_AUTOLOAD=1",
    ),
    "compiled modules of another run": ("R31", record(environment(MNB_PYCACHE="/evil")), "has MNB_PYCACHE=/evil"),
    "mitigations off": (
        "R31",
        record(host(command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet mitigations=off")),
        "open division: the kernel was started with mitigations=off",
    ),
    "a slow clock": ("R31", record(host(clock_source="jiffies")), "the kernel reads the time from jiffies"),
    "a folder on the import path": ("R31", manifest(import_path), "open division: the import path has /evil"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_found(attack: str, folder: Path) -> None:
    rule, tamper, reason = ATTACKS[attack]
    assert results(folder) == ["pass"] * 3
    tamper(folder)
    ruling = rulings(folder)[rule]
    assert ruling.result == "fail"
    assert reason in "\n".join(ruling.reasons)


def test_what_is_listed_belongs_to_the_closed_division(folder: Path) -> None:
    line = "BOOT_IMAGE=/vmlinuz root=UUID=1 ro console=tty0 iommu=pt mitigations=auto,nosmt tsc=reliable -- --own=1"
    record(environment(NCCL_IB_HCA="mlx5", CUDA_VISIBLE_DEVICES="GPU-1", NVIDIA_VISIBLE_DEVICES="all"))(folder)
    record(host(command_line=line, clock_source="tsc"))(folder)
    assert results(folder) == ["pass"] * 3


def test_the_buyer_may_list_more(folder: Path) -> None:
    record(environment(PYTORCH_ALLOC_CONF="x"))(folder)
    record(host(command_line="isolcpus=1-3 nohz_full=1-3", clock_source="hpet"))(folder)
    manifest(import_path)(folder)
    assert len(rulings(folder)["R31"].reasons) == 5
    listed = ("PYTORCH_ALLOC_CONF", "isolcpus=1-3", "nohz_full=1-3", "hpet", "/evil")
    assert results(folder, msgspec.structs.replace(CLOSED, listed=listed)) == ["pass"] * 3


def test_trusted_data_is_refused_where_it_is_demanded(folder: Path) -> None:
    everywhere_in_records(trusted)(folder)
    for edge in ("before", "after"):
        proof("data", edge, None)(folder)
    assert "(--trust-data), and it is demanded" in rulings(folder)["R19"].reasons[0]
    assert rulings(folder, Rules(closed=True))["R19"].result == "pass"
    assert rulings(folder, Rules(marks_refused=True))["R22"].result == "fail"


def test_a_twin_that_is_known_to_be_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownTwin(name="imagenet", scale=1.0, generator=1, libraries={"numpy": "2"}, checksum="7" * 64)
    monkeypatch.setattr(verifying, "read_known", lambda: (known,))
    assert rulings(folder)["R19"].reasons == ("imagenet has SHA-256 555555555555, its generator makes 777777777777",)
    other = msgspec.structs.replace(known, libraries={"numpy": "3"})
    monkeypatch.setattr(verifying, "read_known", lambda: (other,))
    assert results(folder) == ["pass"] * 3
    again = msgspec.structs.replace(known, checksum="8" * 64)
    assert msgspec.json.decode(encode_known([known, other, again]), type=list[KnownTwin]) == [again, other]


def resumed(edges: tuple[str, ...]) -> Callable[[Path], None]:
    """A second session with nothing to do, which read code and data at these edges."""

    def change(folder: Path) -> None:
        proof("code", "after", None)(folder)
        proof("data", "after", None)(folder)
        tampering.add_session(folder, [event for edge in edges for event in make_records.proofs(edge)])  # type: ignore[arg-type]

    return change


def test_a_session_that_was_killed_is_no_failure_if_a_later_one_ended_well(folder: Path) -> None:
    resumed(("before", "after"))(folder)
    assert results(folder) == ["pass"] * 3


def test_but_if_the_last_one_was_killed(folder: Path) -> None:
    resumed(("before",))(folder)
    assert results(folder) == ["fail", "fail", "pass"]


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
